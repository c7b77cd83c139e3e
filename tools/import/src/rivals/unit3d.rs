//! UNIT3D-Announce: a file of variables, and the tables of UNIT3D.

use serde_json::json;

use super::{DAY_S, Plan};
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::KeyRow;

/// Tables of the database.
pub(crate) const TABLES: &[&str] = &["groups", "users", "torrents", "blacklist_clients"];

pub(crate) const KEYS: &[KeyRow] = &[
    KeyRow { theirs: "LISTENING_IP_ADDRESS LISTENING_PORT", ours: &["http.listen"], remark: "" },
    KeyRow {
        theirs: "NUMWANT_DEFAULT",
        ours: &[],
        remark: "fixed: 50 peers for a client that does not say how many it wants",
    },
    KeyRow { theirs: "NUMWANT_MAX", ours: &["tracker.numwant_max"], remark: "" },
    KeyRow { theirs: "ANNOUNCE_MIN", ours: &["tracker.interval_s"], remark: "" },
    KeyRow { theirs: "ANNOUNCE_MAX", ours: &[], remark: "intervals vary by up to a twentieth" },
    KeyRow {
        theirs: "ACTIVE_PEER_TTL",
        ours: &[],
        remark: "peers are kept for one and a half intervals",
    },
    KeyRow {
        theirs: "MAX_PEERS_PER_TORRENT_PER_USER",
        ours: &[],
        remark: "each imported key has it as its own limit, peers_per_torrent",
    },
    KeyRow {
        theirs: "REVERSE_PROXY_CLIENT_IP_HEADER_NAME",
        ours: &["http.trusted_proxies", "http.forwarded_header"],
        remark: "Proxies must write X-Forwarded-For or Forwarded. Any sender of the header is trusted there; here only \
                 trusted proxies are.",
    },
    KeyRow {
        theirs: "DATABASE_URL",
        ours: &[],
        remark: "give a dump of the database as one more FILE; records are in state.dir here",
    },
    KeyRow {
        theirs: "FLUSH_INTERVAL FLUSH_INTERVAL_MILLISECONDS",
        ours: &[],
        remark: "fixed: 5 s",
    },
    KeyRow {
        theirs: "ANNOUNCE_MIN_ENFORCED",
        ours: &["tracker.interval_min_s", "tracker.enforce_interval_min"],
        remark: "A client that is less than 47 s early may be served.",
    },
    KeyRow {
        theirs: "USER_RECEIVE_SEED_LIST_RATE_LIMITS USER_RECEIVE_LEECH_LIST_RATE_LIMITS",
        ours: &[],
        remark: "each key can have a limit of announces per minute, in the API; limits.announces_per_s bounds each \
                 address",
    },
    KeyRow {
        theirs: "LISTENING_UNIX_SOCKET",
        ours: &[],
        remark: "a reverse proxy on the same machine connects to a loopback address: http.listen",
    },
    KeyRow {
        theirs: "MAX_BATCHES_PER_FLUSH MAX_RECORDS_PER_BATCH RUST_LOG",
        ours: &[],
        remark: "nothing to choose; log.level has other areas",
    },
    KeyRow {
        theirs: "UPLOAD_FACTOR DOWNLOAD_FACTOR DONOR_* LIFETIME_DONOR_*",
        ours: &[],
        remark: "totals are what clients report: the site multiplies",
    },
    KeyRow {
        theirs: "PEER_EXPIRY_INTERVAL INACTIVE_PEER_TTL",
        ours: &[],
        remark: "peers expire one by one; a peer that returns counts from what it reports then",
    },
    KeyRow {
        theirs: "APIKEY",
        ours: &[],
        remark: "the site uses the API with a token of its own: `tidegate admin tokens create`",
    },
    KeyRow {
        theirs: "IS_CONNECTIVITY_CHECK_ENABLED CONNECTIVITY_CHECK_INTERVAL REQUIRE_PEER_CONNECTIVITY",
        ours: &[],
        remark: "the tracker does not connect to peers, which would also reveal its address",
    },
    KeyRow {
        theirs: "IS_ANNOUNCE_LOGGING_ENABLED",
        ours: &[],
        remark: "announces are not logged one by one; events and totals are in the API",
    },
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
    let port = match mapper.number("LISTENING_PORT")? {
        Some((port, found)) => {
            u16::try_from(port).map_err(|_| found.expected("a port from 0 to 65535"))?
        }
        None => 6969,
    };
    match mapper.addresses("LISTENING_IP_ADDRESS", port)? {
        Some((listen, found)) => mapper.draft.set("http.listen", json!(listen), found.comment()),
        None => {
            let listen = json!([format!("127.0.0.1:{port}")]);
            mapper.draft.set("http.listen", listen, "UNIT3D-Announce's default.");
        }
    }
    mapper.draft.set("udp.listen", json!([]), "UNIT3D-Announce has no UDP.");
    mapper.set_number("NUMWANT_MAX", "tracker.numwant_max", (0, 1000))?;
    mapper.set_number("ANNOUNCE_MIN", "tracker.interval_s", (1, DAY_S))?;
    if let Some((seconds, found)) = mapper.number("ANNOUNCE_MIN_ENFORCED")? {
        mapper.set_bounded(&found, "tracker.interval_min_s", seconds, (1, DAY_S));
        mapper.draft.set("tracker.enforce_interval_min", json!(seconds > 0), found.comment());
    }
    if let Some((count, _)) = mapper.number("MAX_PEERS_PER_TORRENT_PER_USER")? {
        plan.peers_per_torrent = u16::try_from(count.max(0)).unwrap_or(u16::MAX);
    }
    if let Some((header, found)) = mapper.text("REVERSE_PROXY_CLIENT_IP_HEADER_NAME")? {
        let comment = match header.eq_ignore_ascii_case("x-forwarded-for") {
            true => found.comment(),
            false => format!(
                "{} The proxy must write X-Forwarded-For in place of {header:?}.",
                found.comment()
            ),
        };
        mapper.trust_proxies(&comment);
    }
    Ok(())
}
