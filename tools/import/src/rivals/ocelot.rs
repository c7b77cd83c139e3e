//! Ocelot: `key = value` lines, and the tables of Gazelle.

use std::sync::Arc;

use serde_json::json;

use super::DAY_S;
use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::KeyRow;

/// Tables of the database.
pub(crate) const TABLES: &[&str] = &["users_main", "torrents", "xbt_client_whitelist"];

pub(crate) const KEYS: &[KeyRow] = &[
    KeyRow { theirs: "listen_port", ours: &["http.listen"], remark: "" },
    KeyRow {
        theirs: "max_middlemen",
        ours: &["http.connections_max"],
        remark: "Of all workers there, of each worker here.",
    },
    KeyRow { theirs: "connection_timeout", ours: &[], remark: "fixed: 10 s for a request" },
    KeyRow {
        theirs: "keepalive_timeout",
        ours: &[],
        remark: "clients decide whether they keep a connection; one that is idle for 60 s is closed",
    },
    KeyRow { theirs: "announce_interval", ours: &["tracker.interval_s"], remark: "" },
    KeyRow {
        theirs: "numwant_limit",
        ours: &["tracker.numwant_max"],
        remark: "A client that does not say how many it wants gets 50 at most.",
    },
    KeyRow {
        theirs: "peers_timeout",
        ours: &[],
        remark: "peers are kept for one and a half intervals",
    },
    KeyRow {
        theirs: "max_connections max_read_buffer max_request_size request_log_size reap_peers_interval",
        ours: &[],
        remark: "nothing to choose",
    },
    KeyRow {
        theirs: "del_reason_lifetime",
        ours: &[],
        remark: "clients do not hear why a torrent was removed",
    },
    KeyRow {
        theirs: "schedule_interval",
        ours: &[],
        remark: "fixed: totals are written every 5 seconds",
    },
    KeyRow {
        theirs: "mysql_db mysql_host mysql_username mysql_password readonly",
        ours: &[],
        remark: "give a dump of the database as one more FILE; records are in state.dir here",
    },
    KeyRow {
        theirs: "site_host site_path site_password report_password",
        ours: &[],
        remark: "the site uses the API, with a token of its own: `tidegate admin tokens create`",
    },
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "The site no longer calls /PASSWORD/update: it uses the API for keys and lists. See docs/api.md.",
    "Totals of a user are what clients report, with implausible reports left out. There is no freeleech, and no table of \
     who has downloaded what: the site reads totals from the API and computes ratios itself.",
    "A user who may only seed has no state here: such keys are imported as expired, or as valid with \
     --allow-seed-only.",
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
    let (port, comment) = match mapper.number("listen_port")? {
        Some((port, found)) => match u16::try_from(port) {
            Ok(port) => (port, found.comment()),
            Err(_) => return Err(found.expected("a port from 0 to 65535")),
        },
        None => (34000, "Ocelot's default.".into()),
    };
    mapper.draft.set("http.listen", json!([format!("0.0.0.0:{port}")]), comment);
    mapper.draft.set("udp.listen", json!([]), "Ocelot has no UDP.");
    mapper.set_number("announce_interval", "tracker.interval_s", (1, DAY_S))?;
    mapper.set_number("numwant_limit", "tracker.numwant_max", (0, 1000))?;
    mapper.set_number("max_middlemen", "http.connections_max", (1, 10_000_000))?;
    mapper.draft.set_default("tracker.interval_s", json!(1800), "Ocelot's default.");
    Ok(())
}
