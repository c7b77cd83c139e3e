//! bittorrent-tracker: its command line, or the options of `new Server` as JSON.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;

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
        mapper.set_bounded(&found, "tracker.interval_s", seconds);
        mapper.set_bounded(&found, "tracker.websocket_interval_s", seconds);
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
            None => crate::addresses::parse(default, port).unwrap_or_default(),
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
