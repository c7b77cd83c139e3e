//! bittorrent-tracker: its command line, or the options of `new Server` as JSON.

use std::sync::Arc;

use serde_json::{Value, json};

use super::DAY_S;
use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, without};

pub(crate) const KEYS: &[KeyRow] = &[
    key(
        "port http-hostname udp-hostname udp6-hostname",
        &["http.listen", "udp.listen"],
        "Without a port, 8000.",
    ),
    key(
        "http udp ws",
        &["http.listen", "udp.listen", "http.websocket"],
        "Plain HTTP and WebSocket share a port there and here. With ws alone, HTTP announces are served, too.",
    ),
    key("interval", &["tracker.interval_s", "tracker.websocket_interval_s"], "Milliseconds there."),
    key(
        "trust-proxy trustProxy",
        &["http.trusted_proxies"],
        "There any sender of X-Forwarded-For is trusted, and the first address counts. Name your proxies; \
                 `--proxy` does it.",
    ),
    without("peersCacheTtl", "peers are kept for one and a half intervals"),
    without(
        "peersCacheLength",
        "a swarm may have any number of peers; limits.memory_mib bounds them all",
    ),
    key(
        "stats",
        &["http.stats"],
        "Everybody reads them there; here this machine and private networks do: http.stats_networks.",
    ),
    key("quiet q silent s", &["log.level"], "error."),
    without(
        "filter",
        "a function cannot be imported: use access lists, keys, signed tokens (access.jwt), client rules or the \
                 API",
    ),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "Connection ids of UDP are checked. Without that, anyone can have others' addresses announced.",
    "The `ip` field of a UDP announce is ignored: it would let anyone name a victim.",
    "An announce with numwant 0 gets no peers; there it gets 50.",
    "The interval of WebTorrent clients is 120 s there, too, unless interval is set.",
    "Downloads are counted, and survive restarts. There, they are the number of seeders.",
    "A WebSocket peer is bound to its connection. Messages and connections have limits: [http] and [limits].",
];

/// Options without a value.
const SWITCHES: &[&str] =
    &["http", "udp", "ws", "stats", "trust-proxy", "quiet", "q", "silent", "s"];

/// Parses a command line, or JSON.
pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Document, ImportError> {
    if text.trim_start().starts_with('{') {
        return Document::json(file, text);
    }
    let mut document = Document::command_line(file, text, SWITCHES)?;
    document.rename("p", "port");
    Ok(document)
}

pub(crate) fn configure(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    listen(mapper)?;
    if let Some((milliseconds, found)) = mapper.number("interval")? {
        let seconds = milliseconds.max(0).saturating_add(999) / 1000;
        mapper.set_bounded(&found, "tracker.interval_s", seconds, (1, DAY_S));
        mapper.set_bounded(&found, "tracker.websocket_interval_s", seconds, (1, DAY_S / 2));
    } else {
        let comment = "bittorrent-tracker's default.";
        mapper.draft.set("tracker.interval_s", json!(600), comment);
        mapper.draft.set("tracker.websocket_interval_s", json!(120), comment);
    }
    let stats = mapper.flag("stats")?;
    let word = if stats.as_ref().is_none_or(|(is_on, _)| *is_on) { "page" } else { "off" };
    let comment = "bittorrent-tracker's default.".into();
    let comment = stats.map_or(comment, |(_, found)| found.comment());
    mapper.draft.set("http.stats", json!(word), comment);
    for path in ["trust-proxy", "trustProxy"] {
        if let Some((true, found)) = mapper.flag(path)? {
            mapper.trust_proxies(&found.comment());
        }
    }
    for path in ["quiet", "q", "silent", "s"] {
        if let Some((true, found)) = mapper.flag(path)? {
            mapper.draft.set("log.level", json!("error"), found.comment());
        }
    }
    Ok(())
}

fn listen(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let (port, comment) = mapper.port("port", 8000, "bittorrent-tracker's default.")?;
    let mut servers = [None; 3];
    for (name, server) in ["http", "udp", "ws"].iter().zip(&mut servers) {
        // In JSON it may be a table of options.
        *server = match mapper.document.take(name) {
            Some(found) => Some(found.value != Value::Bool(false) && found.value != "false"),
            None if mapper.document.has_below(name) => Some(true),
            None => None,
        };
    }
    // On the command line, the first of them turns the others off.
    let has_on = servers.contains(&Some(true));
    let has_off = servers.contains(&Some(false));
    let [http, udp, ws] = servers.map(|server| server.unwrap_or(!has_on || has_off));
    let mut addresses = |path: &str, default: &str| -> Result<Vec<String>, ImportError> {
        Ok(match mapper.addresses(path, port)? {
            Some((addresses, _)) => addresses,
            None => crate::addresses::parse(default, port)
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
        })
    };
    let tcp = addresses("http-hostname", "[::]")?;
    let mut datagrams = addresses("udp-hostname", "0.0.0.0")?;
    // The socket of udp6 accepts IPv6 only.
    let v6 = addresses("udp6-hostname", "[::]")?;
    datagrams.extend(v6.into_iter().filter(|address| address.starts_with('[')));
    let tcp = if http || ws { tcp } else { Vec::new() };
    let datagrams = if udp { datagrams } else { Vec::new() };
    mapper.draft.set("http.listen", json!(tcp), comment.as_str());
    mapper.draft.set("http.websocket", json!(ws), "By the options http, udp and ws.");
    mapper.draft.set("udp.listen", json!(datagrams), comment);
    Ok(())
}
