//! wt-tracker: JSON.

use serde_json::json;

use crate::draft::DraftListener;
use crate::error::{ImportError, Place};
use crate::mapper::Mapper;

pub(crate) fn configure(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    mapper.set_numbers(&["tracker.announceInterval"])?;
    mapper.draft.set("udp.listen", json!([]), "wt-tracker has no UDP.");
    mapper.draft.set("http.stats", json!("page"), "As wt-tracker's /stats.json.");
    let servers = mapper.document.items("servers");
    if servers.is_empty() {
        let listen = json!(["0.0.0.0:8000"]);
        mapper.draft.set("http.listen", listen, "wt-tracker's default: no servers.");
    }
    for (number, server) in servers.iter().enumerate() {
        self::server(mapper, server, number == 0)?;
    }
    mapper.draft.set_default("http.listen", json!([]), "No server without TLS there.");
    for (path, ours) in [
        ("websocketsAccess.allowOrigins", "http.websocket_origins_allow"),
        ("websocketsAccess.denyOrigins", "http.websocket_origins_deny"),
    ] {
        if let Some((origins, found)) = mapper.texts(path)? {
            origins.iter().for_each(|it| mapper.draft.push(ours, it, found.comment()));
        }
    }
    if let Some((true, found)) = mapper.flag("websocketsAccess.denyEmptyOrigin")? {
        mapper.draft.push("http.websocket_origins_deny", "", found.comment());
    }
    Ok(())
}

/// Takes a server. The first one sets the sections; others with different rules become listeners of their own.
fn server(mapper: &mut Mapper<'_>, server: &str, is_first: bool) -> Result<(), ImportError> {
    let (port, _) = mapper.port(&format!("{server}.server.port"), 8000, "")?;
    let place = Place::file(&mapper.document.file);
    let comment = format!("From {server} ({place}).");
    let host = mapper.addresses(&format!("{server}.server.host"), port)?;
    let listen = host.map_or_else(|| vec![format!("0.0.0.0:{port}")], |(listen, _)| listen);
    let key = mapper.text(&format!("{server}.server.key_file_name"))?;
    let chain = mapper.text(&format!("{server}.server.cert_file_name"))?;
    let rules = rules(mapper, server)?;
    let set = |mapper: &mut Mapper<'_>| {
        for (name, value) in &rules {
            mapper.draft.set(name, value.clone(), comment.as_str());
        }
    };
    if let (Some((key, _)), Some((chain, _))) = (&key, &chain) {
        let differs = rules.iter().any(|(name, value)| {
            mapper.draft.find(name).is_some_and(|known| known.value != *value)
        });
        if is_first || differs {
            set(mapper);
        }
        mapper.set_tls(&listen, chain, key, &comment);
        return Ok(());
    }
    let is_same = rules
        .iter()
        .all(|(name, value)| mapper.draft.find(name).is_none_or(|known| known.value == *value));
    if is_first || is_same {
        set(mapper);
        listen.iter().for_each(|it| mapper.draft.push("http.listen", it, comment.as_str()));
    } else {
        let comments = vec![comment.clone()];
        let mut listener = DraftListener { protocol: "http", listen, keys: Vec::new(), comments };
        for (name, value) in rules {
            listener.set(name, value, comment.as_str());
        }
        mapper.listener(listener);
    }
    Ok(())
}

/// Takes the rules of a server's WebSockets.
fn rules(
    mapper: &mut Mapper<'_>,
    server: &str,
) -> Result<Vec<(&'static str, serde_json::Value)>, ImportError> {
    let mut rules = Vec::new();
    let path = |name: &str| format!("{server}.websockets.{name}");
    if let Some((count, _)) = mapper.number(&path("maxConnections"))?
        && count > 0
    {
        rules.push(("http.connections_max", json!(count.clamp(1, 10_000_000))));
    }
    Ok(rules)
}
