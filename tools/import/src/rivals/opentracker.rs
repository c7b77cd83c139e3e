//! opentracker: `keyword value` lines, lists of info hashes, and what `/stats?mode=statedump` prints.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::Plan;
use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::KeyRow;
use crate::sink::ListKind;

pub(crate) const KEYS: &[KeyRow] = &[
    KeyRow {
        theirs: "listen.tcp_udp",
        ours: &["udp.listen", "http.listen"],
        remark: "Without a port, 6969. Without any listen line, all addresses.",
    },
    KeyRow { theirs: "listen.tcp", ours: &["http.listen"], remark: "" },
    KeyRow { theirs: "listen.udp", ours: &["udp.listen"], remark: "" },
    KeyRow {
        theirs: "listen.udp.workers",
        ours: &["udp.workers"],
        remark: "0 is the event loop there and one thread per core here.",
    },
    KeyRow {
        theirs: "access.whitelist",
        ours: &["access.mode", "access.allow"],
        remark: "The same file; it is followed without a signal. A line that is no info hash is an error here.",
    },
    KeyRow {
        theirs: "access.blacklist",
        ours: &["access.mode", "access.deny"],
        remark: "The same. It is in force in every mode.",
    },
    KeyRow {
        theirs: "access.fifo_add access.fifo_delete",
        ours: &[],
        remark: "entries are added and removed by `tidegate admin lists`, the API, or in the file",
    },
    KeyRow {
        theirs: "access.stats",
        ours: &["http.stats", "http.stats_networks"],
        remark: "opentracker's modes are served. Without the key, everybody reads /stats there; here this machine and \
                 private networks do.",
    },
    KeyRow { theirs: "access.stats_path", ours: &["http.stats_path"], remark: "" },
    KeyRow {
        theirs: "access.proxy",
        ours: &["http.trusted_proxies"],
        remark: "The last address in X-Forwarded-For that is not a trusted proxy counts; there it is the first.",
    },
    KeyRow {
        theirs: "livesync.cluster.listen livesync.cluster.node_ip",
        ours: &[],
        remark: "several nodes are one tracker through NATS, encrypted and authenticated: see docs/cluster.md",
    },
    KeyRow {
        theirs: "batchsync.cluster.admin_ip",
        ours: &[],
        remark: "nodes of a cluster send each other what they miss: see docs/cluster.md",
    },
    KeyRow {
        theirs: "tracker.rootdir",
        ours: &[],
        remark: "the sandbox (process.sandbox) replaces chroot. Lists were looked for below this directory",
    },
    KeyRow {
        theirs: "tracker.user",
        ours: &["process.user"],
        remark: "Written as a comment: systemd starts tidegate with a user of its own.",
    },
    KeyRow {
        theirs: "tracker.redirect_url",
        ours: &[],
        remark: "http.page serves a page with the announce URLs at /: let a reverse proxy redirect",
    },
    KeyRow {
        theirs: "WANT_V4_ONLY",
        ours: &["udp.listen", "http.listen"],
        remark: "With `--compiled WANT_V4_ONLY`, IPv4 addresses only.",
    },
    KeyRow {
        theirs: "WANT_IP_FROM_QUERY_STRING",
        ours: &[],
        remark: "a client could name any address as its own; only trusted proxies may name clients",
    },
    KeyRow {
        theirs: "WANT_COMPRESSION_GZIP WANT_COMPRESSION_GZIP_ALWAYS WANT_COMPRESSION_ZSTD",
        ours: &[],
        remark: "replies to announces are too small for compression; full scrapes are compressed for clients that ask",
    },
    KeyRow {
        theirs: "WANT_FULLSCRAPE",
        ours: &["http.full_scrape"],
        remark: "With `--compiled WANT_FULLSCRAPE`. Bencoded, also gzip; other formats by `/stats?mode=tpbs`.",
    },
    KeyRow {
        theirs: "WANT_MODEST_FULLSCRAPES",
        ours: &[],
        remark: "always on here: one in 5 minutes for each client",
    },
    KeyRow {
        theirs: "WANT_RESTRICT_STATS",
        ours: &["http.stats_networks"],
        remark: "Always on here.",
    },
    KeyRow {
        theirs: "WANT_SYNC_LIVE",
        ours: &[],
        remark: "several nodes are one tracker through NATS: see docs/cluster.md",
    },
    KeyRow {
        theirs: "WANT_SYSLOGS",
        ours: &[],
        remark: "the log goes to standard error, which systemd sends to the journal",
    },
    KeyRow {
        theirs: "WANT_KEEPALIVE WANT_ACCESSLIST_WHITE WANT_ACCESSLIST_BLACK WANT_DYNAMIC_ACCESSLIST WANT_IP_FROM_PROXY \
                 WANT_DEV_RANDOM WANT_ARC4RANDOM WANT_NO_AUTO_FREE WANT_LOG_NETWORKS WANT_LOG_NUMWANT \
                 WANT_FULLLOG_NETWORKS WANT_SPOT_WOODPECKER",
        ours: &[],
        remark: "nothing is chosen at compile time here",
    },
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "Intervals and lifetimes were compiled in; the configuration has opentracker's values, and a reload changes them.",
    "Announces, scrapes, connects and connections of one prefix have limits here, [limits], with values that only abuse \
     reaches. One address has at most 8 peers in a torrent: limits.peers_per_address.",
    "A UDP announce needs a connection id that was issued to its address within the last minutes. opentracker accepts \
     each id as long as it runs.",
    "WebTorrent is served on the HTTP port, too. Set http.websocket to false to refuse it.",
    "Swarms survive a restart, if state.dir is set.",
];

/// Ports without a number.
const PORT: u16 = 6969;

/// Parses a configuration, or a command line with opentracker's options.
pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Document, ImportError> {
    Document::lines(file, text, None)
}

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    listen(mapper)?;
    if mapper.document.has("listen.udp.workers") {
        mapper.set_number("listen.udp.workers", "udp.workers", (0, 1024))?;
    }
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
