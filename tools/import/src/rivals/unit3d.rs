//! UNIT3D-Announce: a file of variables, and the tables of UNIT3D.

use serde_json::json;

use super::{DAY_S, Plan};
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, number, without};

/// Tables of the database.
pub(crate) const TABLES: &[&str] = &["groups", "users", "torrents", "blacklist_clients"];

pub(crate) const KEYS: &[KeyRow] = &[
    key("LISTENING_IP_ADDRESS LISTENING_PORT", &["http.listen"], ""),
    without("NUMWANT_DEFAULT", "fixed: 50 peers for a client that does not say how many it wants"),
    number("NUMWANT_MAX", &["tracker.numwant_max"], (0, 1000), ""),
    number("ANNOUNCE_MIN", &["tracker.interval_s"], (1, DAY_S), ""),
    without("ANNOUNCE_MAX", "intervals vary by up to a twentieth"),
    without("ACTIVE_PEER_TTL", "peers are kept for one and a half intervals"),
    without(
        "MAX_PEERS_PER_TORRENT_PER_USER",
        "each imported key has it as its own limit, peers_per_torrent",
    ),
    key(
        "REVERSE_PROXY_CLIENT_IP_HEADER_NAME",
        &["http.trusted_proxies", "http.forwarded_header"],
        "Proxies must write X-Forwarded-For or Forwarded. Any sender of the header is trusted there; here only \
                 trusted proxies are.",
    ),
    without(
        "DATABASE_URL",
        "give a dump of the database as one more FILE; records are in state.dir here",
    ),
    without("FLUSH_INTERVAL FLUSH_INTERVAL_MILLISECONDS", "fixed: 5 s"),
    key(
        "ANNOUNCE_MIN_ENFORCED",
        &["tracker.interval_min_s", "tracker.enforce_interval_min"],
        "A client that is less than 47 s early may be served.",
    ),
    without(
        "USER_RECEIVE_SEED_LIST_RATE_LIMITS USER_RECEIVE_LEECH_LIST_RATE_LIMITS",
        "each key can have a limit of announces per minute, in the API; limits.announces_per_s bounds each \
                 address",
    ),
    without(
        "LISTENING_UNIX_SOCKET",
        "a reverse proxy on the same machine connects to a loopback address: http.listen",
    ),
    without(
        "MAX_BATCHES_PER_FLUSH MAX_RECORDS_PER_BATCH RUST_LOG",
        "nothing to choose; log.level has other areas",
    ),
    without(
        "UPLOAD_FACTOR DOWNLOAD_FACTOR DONOR_* LIFETIME_DONOR_*",
        "totals are what clients report: the site multiplies",
    ),
    without(
        "PEER_EXPIRY_INTERVAL INACTIVE_PEER_TTL",
        "peers expire one by one; a peer that returns counts from what it reports then",
    ),
    without(
        "APIKEY",
        "the site uses the API with a token of its own: `tidegate admin tokens create`",
    ),
    without(
        "IS_CONNECTIVITY_CHECK_ENABLED CONNECTIVITY_CHECK_INTERVAL REQUIRE_PEER_CONNECTIVITY",
        "the tracker does not connect to peers, which would also reveal its address",
    ),
    without(
        "IS_ANNOUNCE_LOGGING_ENABLED",
        "announces are not logged one by one; events and totals are in the API",
    ),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "The site's calls of /announce/APIKEY/… are others here: it uses the API for keys and lists. See docs/api.md.",
    "Totals of a user are what clients report, with implausible reports left out. There is no freeleech, and no history \
     of who has downloaded what: the site reads totals from the API and computes ratios itself.",
    "A user who may only seed has no state here: such keys are imported as expired, or as valid with \
     --allow-seed-only. Download slots of groups are not limited.",
    "Web browsers are refused by their headers, as there. Peer id prefixes are: access.clients_deny.",
    "Announces, scrapes and connections of one prefix have limits here, [limits]. Scrapes are served.",
];

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    let (port, _) = mapper.port("LISTENING_PORT", 6969, "")?;
    match mapper.addresses("LISTENING_IP_ADDRESS", port)? {
        Some((listen, found)) => mapper.draft.set("http.listen", json!(listen), found.comment()),
        None => {
            let listen = json!([format!("127.0.0.1:{port}")]);
            mapper.draft.set("http.listen", listen, "UNIT3D-Announce's default.");
        }
    }
    mapper.draft.set("udp.listen", json!([]), "UNIT3D-Announce has no UDP.");
    if let Some((seconds, found)) = mapper.number("ANNOUNCE_MIN_ENFORCED")? {
        mapper.set_bounded(&found, "tracker.interval_min_s", seconds, (1, DAY_S));
        mapper.draft.set("tracker.enforce_interval_min", json!(seconds > 0), found.comment());
    }
    if let Some((count, _)) = mapper.number("MAX_PEERS_PER_TORRENT_PER_USER")? {
        plan.peers_per_torrent = u16::try_from(count.max(0)).unwrap_or(u16::MAX);
    }
    if let Some((header, found)) = mapper.text("REVERSE_PROXY_CLIENT_IP_HEADER_NAME")? {
        mapper.trust_proxies(&Mapper::header_comment(&header, &found));
    }
    Ok(())
}
