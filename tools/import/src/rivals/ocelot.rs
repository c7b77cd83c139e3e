//! Ocelot: `key = value` lines, and the tables of Gazelle.

use std::sync::Arc;

use serde_json::json;

use super::DAY_S;
use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, number, without};

/// Tables of the database.
pub(crate) const TABLES: &[&str] = &["users_main", "torrents", "xbt_client_whitelist"];

pub(crate) const KEYS: &[KeyRow] = &[
    key("listen_port", &["http.listen"], ""),
    number(
        "max_middlemen",
        &["http.connections_max"],
        (1, 10_000_000),
        "Of all workers there, of each worker here.",
    ),
    without("connection_timeout", "fixed: 10 s for a request"),
    without(
        "keepalive_timeout",
        "clients decide whether they keep a connection; one that is idle for 60 s is closed",
    ),
    number("announce_interval", &["tracker.interval_s"], (1, DAY_S), ""),
    number(
        "numwant_limit",
        &["tracker.numwant_max"],
        (0, 1000),
        "A client that does not say how many it wants gets 50 at most.",
    ),
    without("peers_timeout", "peers are kept for one and a half intervals"),
    without(
        "max_connections max_read_buffer max_request_size request_log_size reap_peers_interval",
        "nothing to choose",
    ),
    without("del_reason_lifetime", "clients do not hear why a torrent was removed"),
    without("schedule_interval", "fixed: totals are written every 5 seconds"),
    without(
        "mysql_db mysql_host mysql_username mysql_password readonly",
        "give a dump of the database as one more FILE; records are in state.dir here",
    ),
    key(
        "site_host site_path",
        &["site.url"],
        "For calls about used-up tokens; needs site.kind = \"gazelle\".",
    ),
    without(
        "site_password report_password",
        "[site] reads Gazelle's tables and answers its calls (docs/run/gazelle.md); without it the site uses the API",
    ),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "With site.kind = \"gazelle\" the site's tables are read and written, and its calls answered, at a listener of its own, \
     site.listen. See docs/run/gazelle.md.",
    "Without it, from a dump: totals of a user are what clients report, there is no freeleech and no table of who has \
     downloaded what. A user who may only seed gets a key with that rule.",
    "The `ip` parameter is ignored: a client could name any address as its own.",
    "Announces, scrapes and connections of one prefix have limits here, [limits].",
];

pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Document, ImportError> {
    // Lines without `=` are ignored there.
    let text: Vec<&str> =
        text.lines().map(|line| if line.contains('=') { line } else { "" }).collect();
    Document::lines(file, &text.join("\n"), Some('='))
}

pub(crate) fn configure(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let (port, comment) = mapper.port("listen_port", 34000, "Ocelot's default.")?;
    mapper.draft.set("http.listen", json!([format!("0.0.0.0:{port}")]), comment);
    mapper.draft.set("udp.listen", json!([]), "Ocelot has no UDP.");
    mapper.draft.set_default("tracker.interval_s", json!(1800), "Ocelot's default.");
    let path = mapper.text("site_path")?.map(|(path, _)| path).unwrap_or_default();
    if let Some((host, found)) = mapper.text("site_host")? {
        let url = format!("http://{host}/{}", path.trim_matches('/'));
        mapper.draft.suggest("site.url", json!(url.trim_end_matches('/')), found.comment());
    }
    Ok(())
}
