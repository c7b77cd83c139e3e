//! opentracker: `keyword value` lines, lists of info hashes, and what `/stats?mode=statedump` prints.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::Plan;
use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, number, without};
use crate::sink::ListKind;

pub(crate) const KEYS: &[KeyRow] = &[
    key(
        "listen.tcp_udp",
        &["udp.listen", "http.listen"],
        "Without a port, 6969. Without any listen line, all addresses.",
    ),
    key("listen.tcp", &["http.listen"], ""),
    key("listen.udp", &["udp.listen"], ""),
    number(
        "listen.udp.workers",
        &["udp.workers"],
        (0, 1024),
        "0 is the event loop there and one thread per core here.",
    ),
    key(
        "access.whitelist",
        &["access.mode", "access.allow"],
        "The same file; it is followed without a signal. A line that is no info hash is an error here.",
    ),
    key(
        "access.blacklist",
        &["access.mode", "access.deny"],
        "The same. It is in force in every mode.",
    ),
    without(
        "access.fifo_add access.fifo_delete",
        "entries are added and removed by `tidegate admin lists`, the API, or in the file",
    ),
    key(
        "access.stats",
        &["http.stats", "http.stats_networks"],
        "opentracker's modes are served. Without the key, everybody reads /stats there; here this machine and \
                 private networks do.",
    ),
    key("access.stats_path", &["http.stats_path"], ""),
    key(
        "access.proxy",
        &["http.trusted_proxies"],
        "The last address in X-Forwarded-For that is not a trusted proxy counts; there it is the first.",
    ),
    without(
        "livesync.cluster.listen livesync.cluster.node_ip",
        "several nodes are one tracker through NATS, encrypted and authenticated: see docs/cluster.md",
    ),
    without(
        "batchsync.cluster.admin_ip",
        "nodes of a cluster send each other what they miss: see docs/cluster.md",
    ),
    without(
        "tracker.rootdir",
        "the sandbox (process.sandbox) replaces chroot. Lists were looked for below this directory",
    ),
    key(
        "tracker.user",
        &["process.user"],
        "Written as a comment: systemd starts tidegate with a user of its own.",
    ),
    without(
        "tracker.redirect_url",
        "http.page serves a page with the announce URLs at /: let a reverse proxy redirect",
    ),
    key(
        "WANT_V4_ONLY",
        &["udp.listen", "http.listen"],
        "With `--compiled WANT_V4_ONLY`, IPv4 addresses only.",
    ),
    without(
        "WANT_IP_FROM_QUERY_STRING",
        "a client could name any address as its own; only trusted proxies may name clients",
    ),
    without(
        "WANT_COMPRESSION_GZIP WANT_COMPRESSION_GZIP_ALWAYS WANT_COMPRESSION_ZSTD",
        "replies to announces are too small for compression; full scrapes are compressed for clients that ask",
    ),
    key(
        "WANT_FULLSCRAPE",
        &["http.full_scrape"],
        "With `--compiled WANT_FULLSCRAPE`. Bencoded, also gzip; other formats by `/stats?mode=tpbs`.",
    ),
    without("WANT_MODEST_FULLSCRAPES", "always on here: one in 5 minutes for each client"),
    key("WANT_RESTRICT_STATS", &["http.stats_networks"], "Always on here."),
    without("WANT_SYNC_LIVE", "several nodes are one tracker through NATS: see docs/cluster.md"),
    without("WANT_SYSLOGS", "the log goes to standard error, which systemd sends to the journal"),
    without(
        "WANT_KEEPALIVE WANT_ACCESSLIST_WHITE WANT_ACCESSLIST_BLACK WANT_DYNAMIC_ACCESSLIST WANT_IP_FROM_PROXY \
                 WANT_DEV_RANDOM WANT_ARC4RANDOM WANT_NO_AUTO_FREE WANT_LOG_NETWORKS WANT_LOG_NUMWANT \
                 WANT_FULLLOG_NETWORKS WANT_SPOT_WOODPECKER",
        "nothing is chosen at compile time here",
    ),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "Intervals and lifetimes were compiled in; the configuration has opentracker's values, and a reload changes them.",
    "Announces, scrapes, connects and connections of one prefix have limits here, [limits], with values that only abuse \
     reaches. One address has at most 8 peers in a torrent: limits.peers_per_address.",
    "A UDP announce needs a connection id that was issued to its address within the last minutes. opentracker accepts \
     each id as long as it runs.",
    "WebTorrent is served on the HTTP port, too. Set http.websocket to false to refuse it.",
    "Swarms survive a restart, unless `serve --memory` is used.",
];

/// Ports without a number.
const PORT: u16 = 6969;

/// Parses a configuration, or a command line with opentracker's options.
pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Document, ImportError> {
    Document::lines(file, text, None)
}

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    listen(mapper)?;
    let root = mapper.document.take("tracker.rootdir");
    let root = root.map(|found| {
        mapper.draft.without(&found.path, &found.place, reason("tracker.rootdir"));
        found.value.as_str().unwrap_or_default().to_owned()
    });
    for (path, mode, kind) in [
        ("access.whitelist", "allow", ListKind::Allow),
        ("access.blacklist", "deny", ListKind::Deny),
    ] {
        if let Some((file, found)) = mapper.text(path)? {
            let file = match &root {
                // The root of the file system, once opentracker has changed it, or where it was started.
                Some(root) if !Path::new(&file).starts_with(root) => {
                    Path::new(root).join(file.trim_start_matches('/')).display().to_string()
                }
                _ => file,
            };
            mapper.set_list(&found, mode, &file)?;
            plan.list = Some(kind);
        }
    }
    for found in mapper.document.take_all("access.stats") {
        let network = found.value.as_str().unwrap_or_default();
        mapper.draft.push("http.stats_networks", network, found.comment());
    }
    if let Some((path, found)) = mapper.text("access.stats_path")? {
        let path = format!("/{}", path.trim_start_matches('/'));
        mapper.draft.set("http.stats_path", json!(path), found.comment());
    }
    mapper.draft.set("http.stats", json!("opentracker"), "As opentracker's /stats.");
    for found in mapper.document.take_all("access.proxy") {
        let network = found.value.as_str().unwrap_or_default();
        mapper.draft.push("http.trusted_proxies", network, found.comment());
    }
    if let Some((user, found)) = mapper.text("tracker.user")? {
        mapper.suggest_user(&user, &found);
    }
    compiled(mapper);
    defaults(mapper);
    Ok(())
}

fn listen(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let is_v4_only = mapper.options.compiled.iter().any(|it| it == "WANT_V4_ONLY");
    let mut has_any = false;
    for (path, keys) in [
        ("listen.tcp_udp", ["udp.listen", "http.listen"].as_slice()),
        ("listen.tcp", &["http.listen"]),
        ("listen.udp", &["udp.listen"]),
    ] {
        for found in mapper.document.take_all(path) {
            has_any = true;
            for address in found.addresses(found.value.as_str().unwrap_or_default(), PORT)? {
                if is_v4_only && address.starts_with('[') {
                    continue;
                }
                keys.iter().for_each(|key| mapper.draft.push(key, &address, found.comment()));
            }
        }
    }
    let all =
        if is_v4_only { json!(["0.0.0.0:6969"]) } else { json!(["0.0.0.0:6969", "[::]:6969"]) };
    for key in ["udp.listen", "http.listen"] {
        match has_any {
            true => mapper.draft.set_default(key, json!([]), "No such listener there."),
            false => mapper.draft.set(key, all.clone(), "opentracker's default: no listen line."),
        }
    }
    Ok(())
}

/// Names what was compiled in.
fn compiled(mapper: &mut Mapper<'_>) {
    let place = crate::error::Place::file(&"--compiled".into());
    for name in &mapper.options.compiled {
        match KEYS.iter().find(|row| row.is(name)) {
            Some(row) if row.ours.is_empty() => mapper.draft.without(name, &place, row.remark),
            Some(_) if name == "WANT_FULLSCRAPE" => {
                mapper.draft.set(
                    "http.full_scrape",
                    json!(true),
                    "From --compiled WANT_FULLSCRAPE.",
                );
            }
            Some(_) => {}
            None => mapper.draft.without(name, &place, "no compile-time option of opentracker"),
        }
    }
}

fn reason(theirs: &str) -> &'static str {
    KEYS.iter().find(|row| row.is(theirs)).map_or("", |row| row.remark)
}

/// Sets what opentracker has compiled in.
fn defaults(mapper: &mut Mapper<'_>) {
    for (key, value, comment) in [
        ("tracker.interval_s", 1620, "opentracker's: 27 to 33 minutes. Intervals vary here, too."),
        ("tracker.numwant_max", 200, "opentracker's."),
    ] {
        mapper.draft.set_default(key, json!(value), comment);
    }
}
