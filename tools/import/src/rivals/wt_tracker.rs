//! wt-tracker: JSON.

use serde_json::json;

use crate::draft::{DraftKey, DraftListener};
use crate::error::{ImportError, Place};
use crate::mapper::Mapper;

/// The key of a server's limit.
const CONNECTIONS: &str = "http.connections_max";

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

/// Takes a server. The first one sets the sections; others with another limit become listeners of their own.
fn server(mapper: &mut Mapper<'_>, server: &str, is_first: bool) -> Result<(), ImportError> {
    let (port, _) = mapper.port(&format!("{server}.server.port"), 8000, "")?;
    let place = Place::file(&mapper.document.file);
    let comment = format!("From {server} ({place}).");
    let host = mapper.addresses(&format!("{server}.server.host"), port)?;
    let listen = host.map_or_else(|| vec![format!("0.0.0.0:{port}")], |(listen, _)| listen);
    let [chain, key] = mapper.certificate(
        &format!("{server}.server.cert_file_name"),
        &format!("{server}.server.key_file_name"),
    )?;
    let is_tls = !chain.is_empty() && !key.is_empty();
    if let Some((count, _)) = mapper.number(&format!("{server}.websockets.maxConnections"))?
        && count > 0
    {
        let max = json!(count.clamp(1, 10_000_000));
        let known = mapper.draft.find(CONNECTIONS);
        if !is_tls && !is_first && known.is_some_and(|known| known.value != max) {
            let keys = vec![DraftKey::new(CONNECTIONS, max, comment.as_str())];
            let comments = vec![comment];
            let listener = DraftListener { protocol: "http", listen, keys, comments };
            mapper.draft.listeners.push(listener);
            return Ok(());
        }
        mapper.draft.set(CONNECTIONS, max, comment.as_str());
    }
    if is_tls {
        mapper.set_tls(&listen, &chain, &key, &comment);
    } else {
        listen.iter().for_each(|it| mapper.draft.push("http.listen", it, comment.as_str()));
    }
    Ok(())
}
