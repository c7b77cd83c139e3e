//! hefur: its command line, alone or in the unit of systemd.

use std::sync::Arc;

use serde_json::json;

use super::DAY_S;
use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, without};

pub(crate) const KEYS: &[KeyRow] = &[
    key(
        "http-port https-port udp-port bind-addr ipv6",
        &["http.listen", "tls.listen", "udp.listen"],
        "bind-addr is for TCP. With ipv6, `::` becomes two addresses.",
    ),
    key("http-cert http-key", &["tls.certificates"], "Read again when the files change."),
    key("torrent-dir", &["access.mode", "access.allow_torrents"], "The same folder."),
    without(
        "scan-interval max-scan-depth max-scan-inodes max-torrent-size max-torrent-name",
        "nothing to choose: changes are noticed within seconds; 8 levels of folders, a million files of 32 MiB at \
                 most. names take at most 64 MiB",
    ),
    key(
        "announce-interval",
        &["tracker.interval_s"],
        "Minutes there. A peer is removed after one and a half intervals.",
    ),
    without("scrape-interval", "scrapes have limits by prefix: limits.scrapes_per_s"),
    without("http-timeout", "fixed: 10 s for a request, 20 s to read a response"),
    key(
        "max-numwant min-numwant",
        &["tracker.numwant_max"],
        "A client that wants fewer than min-numwant gets what it wants here; one that does not say it, 50.",
    ),
    without("max-peers", "a swarm may have any number of peers; limits.memory_mib bounds them all"),
    without(
        "allow-proxy",
        "a client could name any address as its own; only trusted proxies may name clients",
    ),
    key(
        "reverse-proxy-from reverse-proxy-header",
        &["http.trusted_proxies", "http.forwarded_header"],
        "Proxies must write X-Forwarded-For or Forwarded.",
    ),
    key(
        "uid gid",
        &["process.user"],
        "Written as a comment: systemd starts tidegate with a user of its own. The group is the user's.",
    ),
    without("chroot", "the sandbox (process.sandbox) replaces chroot"),
    key("log-level", &["log.level"], ""),
    without(
        "log-file log-color log-compression log-filter log-origins log-rotation-interval",
        "the log goes to standard error: systemd or a container keeps it",
    ),
    without(
        "disable-stat-page disable-peers-page disable-file-page www-dir tpl-debug",
        "there are no such pages: http.page is at /, torrents and peers are on the dashboard",
    ),
    without("control-socket version", "commands are `tidegate admin` and `tidegate version`"),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "A torrent file that is removed ends its torrent within seconds. While a file is replaced, its torrent stays.",
    "IPv4 and IPv6 are one swarm. hefur serves one of them, unless it is started with -ipv6.",
    "The list of torrents is not public: names and sizes are on the dashboard and in the API.",
    "Downloads are counted over restarts.",
    "Announces, scrapes, connects and connections of one prefix have limits here, [limits].",
    "WebTorrent is served on the HTTP port, too. Set http.websocket to false to refuse it.",
];

/// Options without a value.
const SWITCHES: &[&str] = &[
    "ipv6",
    "allow-proxy",
    "disable-peers-page",
    "disable-stat-page",
    "disable-file-page",
    "log-color",
    "log-origins",
    "tpl-debug",
    "version",
];

/// Minutes between announces, by default.
const INTERVAL_MIN: i64 = 15;

pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Document, ImportError> {
    Document::command_line(file, text, SWITCHES)
}

pub(crate) fn configure(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    listen(mapper)?;
    if let Some((folder, found)) = mapper.text("torrent-dir")? {
        mapper.set_torrents(&found, &folder)?;
    }
    let interval = mapper.number("announce-interval")?;
    let (minutes, comment) = match &interval {
        Some((minutes, found)) => (*minutes, found.comment()),
        None => (INTERVAL_MIN, "hefur's default.".into()),
    };
    let seconds = |minutes: i64| minutes.saturating_mul(60).clamp(60, DAY_S.into());
    mapper.draft.set("tracker.interval_s", json!(seconds(minutes)), comment);
    mapper.set_number("max-numwant", "tracker.numwant_max", (0, 1000))?;
    mapper.draft.set_default("tracker.numwant_max", json!(100), "hefur's default.");
    proxies(mapper)?;
    if let Some((level, found)) = mapper.text("log-level")? {
        let level = match level.as_str() {
            "debug" | "info" | "error" => level.as_str(),
            "critical" | "fatal" => "error",
            _ => "warn",
        };
        mapper.draft.set("log.level", json!(level), found.comment());
    }
    mapper.document.take("gid");
    if let Some((user, found)) = mapper.text("uid")? {
        mapper.suggest_user(&user, &found);
    }
    Ok(())
}

fn listen(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let is_v6 = mapper.flag("ipv6")?.is_some_and(|(is_on, _)| is_on);
    let bound = mapper.text("bind-addr")?;
    let any = if is_v6 { "::" } else { "0.0.0.0" };
    let tcp = match &bound {
        // An address of the other family has no effect there.
        Some((address, _)) if address.contains(':') == is_v6 => address.as_str(),
        _ => any,
    };
    let chain = mapper.text("http-cert")?;
    let key = mapper.text("http-key")?;
    for (option, ours, host, default) in [
        ("udp-port", "udp.listen", any, 6969),
        ("http-port", "http.listen", tcp, 6969),
        ("https-port", "tls.listen", tcp, 6970),
    ] {
        let (port, comment) = mapper.port(option, default, "hefur's default.")?;
        let listen = match (port, &bound) {
            (0, _) => Vec::new(),
            (port, Some((_, found))) => found.addresses(host, port)?,
            (port, None) => crate::addresses::parse(host, port)
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
        };
        if ours != "tls.listen" {
            mapper.draft.set(ours, json!(listen), comment);
        } else if let (Some((chain, _)), Some((key, _)), 1..) = (&chain, &key, port) {
            mapper.set_tls(&listen, chain, key, &comment);
        }
    }
    Ok(())
}

fn proxies(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let header = mapper.text("reverse-proxy-header")?.map(|(header, _)| header);
    let Some((from, found)) = mapper.text("reverse-proxy-from")? else { return Ok(()) };
    let header = header.unwrap_or_else(|| "X-Real-IP".into());
    let comment = Mapper::header_comment(&header, &found);
    if from == "0.0.0.0" || from == "::" {
        // Any address there.
        mapper.trust_proxies(&comment);
    } else {
        mapper.draft.push("http.trusted_proxies", &from, comment);
    }
    Ok(())
}
