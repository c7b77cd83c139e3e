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
    key("ANNOUNCE_MIN", &["tracker.interval_s"], ""),
    key(
        "ANNOUNCE_MAX",
        &["tracker.interval_jitter_s"],
        "What it is above ANNOUNCE_MIN: intervals are between both.",
    ),
    without(
        "ACTIVE_PEER_TTL",
        "peers are kept for one and a half intervals, and for longer if ANNOUNCE_MAX is far above ANNOUNCE_MIN",
    ),
    key(
        "MAX_PEERS_PER_TORRENT_PER_USER",
        &["site.clients_per_torrent"],
        "Without a site, each imported key has it as its own limit, peers_per_torrent.",
    ),
    key(
        "REVERSE_PROXY_CLIENT_IP_HEADER_NAME",
        &["http.trusted_proxies", "http.forwarded_header"],
        "Proxies must write X-Forwarded-For or Forwarded. Any sender of the header is trusted there; here only \
                 trusted proxies are.",
    ),
    key(
        "DATABASE_URL",
        &["site.database", "site.database_password", "site.database_ca"],
        "The password goes to a file; of its parameters, ssl-ca is taken. Without a site, give a dump of the database as \
                 one more FILE.",
    ),
    key("FLUSH_INTERVAL", &["site.flush_s"], ""),
    without("FLUSH_INTERVAL_MILLISECONDS", "site.flush_s has seconds"),
    key(
        "ANNOUNCE_MIN_ENFORCED",
        &["tracker.interval_min_s", "tracker.enforce_interval_min"],
        "A client that is less than 47 s early may be served.",
    ),
    key(
        "USER_RECEIVE_SEED_LIST_RATE_LIMITS",
        &["site.seed_lists"],
        "Lists that a user did not get are not counted here.",
    ),
    key("USER_RECEIVE_LEECH_LIST_RATE_LIMITS", &["site.leech_lists"], "The same."),
    without(
        "LISTENING_UNIX_SOCKET",
        "a reverse proxy on the same machine connects to a loopback address: http.listen",
    ),
    without(
        "MAX_BATCHES_PER_FLUSH MAX_RECORDS_PER_BATCH RUST_LOG",
        "nothing to choose; log.level has other areas",
    ),
    key("UPLOAD_FACTOR", &["site.upload_factor"], ""),
    key("DOWNLOAD_FACTOR", &["site.download_factor"], ""),
    key("DONOR_UPLOAD_FACTOR_OVERRIDE", &["site.donor_upload_factor"], ""),
    key("DONOR_DOWNLOAD_FACTOR_OVERRIDE", &["site.donor_download_factor"], ""),
    key("LIFETIME_DONOR_UPLOAD_FACTOR_OVERRIDE", &["site.lifetime_donor_upload_factor"], ""),
    key("LIFETIME_DONOR_DOWNLOAD_FACTOR_OVERRIDE", &["site.lifetime_donor_download_factor"], ""),
    without("DONOR_* LIFETIME_DONOR_*", "is_immune of groups decides who is immune"),
    without(
        "PEER_EXPIRY_INTERVAL INACTIVE_PEER_TTL",
        "peers expire one by one; a peer that returns counts from what it reports then",
    ),
    key("APIKEY", &["site.tracker_key"], "It goes to a file. It is TRACKER_KEY of the site."),
    key(
        "IS_CONNECTIVITY_CHECK_ENABLED",
        &["site.connectable_from"],
        "It names the address that clients are probed from, and that they learn. Announces do not wait for probes; \
                 ports below 1024 and private addresses are not probed.",
    ),
    key("REQUIRE_PEER_CONNECTIVITY", &["site.connectable_required"], ""),
    without("CONNECTIVITY_CHECK_INTERVAL", "fixed: results are valid for half an hour"),
    without(
        "IS_ANNOUNCE_LOGGING_ENABLED",
        "announces are not logged one by one; events and totals are in the API",
    ),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "With site.kind = \"unit3d\" the site's tables are read and written, and its calls answered, at a listener of its own, \
     site.listen: TRACKER_HOST and TRACKER_PORT of the site name that one. See docs/run/unit3d.md.",
    "Without it, from a dump: totals of a user are what clients report, there is no freeleech and no history. A user who \
     may only seed gets a key with that rule.",
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
    configure_interval(mapper)?;
    if let Some((count, found)) = mapper.number("MAX_PEERS_PER_TORRENT_PER_USER")? {
        plan.peers_per_torrent = u16::try_from(count.max(0)).unwrap_or(u16::MAX);
        let clients = count.clamp(1, 1000);
        mapper.draft.set("site.clients_per_torrent", json!(clients), found.comment());
    }
    if let Some((header, found)) = mapper.text("REVERSE_PROXY_CLIENT_IP_HEADER_NAME")? {
        mapper.trust_proxies(&Mapper::header_comment(&header, &found));
    }
    configure_site(mapper)
}

/// Takes the interval, which is a random one between two bounds.
fn configure_interval(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let min = mapper.number("ANNOUNCE_MIN")?;
    if let Some((seconds, found)) = &min {
        mapper.set_bounded(found, "tracker.interval_s", *seconds, (1, DAY_S));
    }
    if let Some((max, found)) = mapper.number("ANNOUNCE_MAX")? {
        // Its default.
        let min = min.map_or(1_800, |(seconds, _)| seconds);
        let more = max.saturating_sub(min);
        mapper.set_bounded(&found, "tracker.interval_jitter_s", more, (0, DAY_S));
    }
    Ok(())
}

/// Factors, which may be empty, and their keys.
const FACTORS: [(&str, &str); 6] = [
    ("UPLOAD_FACTOR", "site.upload_factor"),
    ("DOWNLOAD_FACTOR", "site.download_factor"),
    ("DONOR_UPLOAD_FACTOR_OVERRIDE", "site.donor_upload_factor"),
    ("DONOR_DOWNLOAD_FACTOR_OVERRIDE", "site.donor_download_factor"),
    ("LIFETIME_DONOR_UPLOAD_FACTOR_OVERRIDE", "site.lifetime_donor_upload_factor"),
    ("LIFETIME_DONOR_DOWNLOAD_FACTOR_OVERRIDE", "site.lifetime_donor_download_factor"),
];

/// Suggests `[site]`. It is not in force: it needs files with secrets, which the user makes.
fn configure_site(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    for (theirs, ours) in FACTORS {
        if let Some((text, found)) = mapper.text(theirs)? {
            let factor = text.trim().parse().map_err(|_| found.expected("an integer"))?;
            mapper.set_bounded(&found, ours, factor, (0, 10_000));
        }
    }
    if let Some((seconds, found)) = mapper.number("FLUSH_INTERVAL")? {
        mapper.set_bounded(&found, "site.flush_s", seconds, (1, 60));
    }
    for (theirs, ours) in [
        ("USER_RECEIVE_SEED_LIST_RATE_LIMITS", "site.seed_lists"),
        ("USER_RECEIVE_LEECH_LIST_RATE_LIMITS", "site.leech_lists"),
    ] {
        if let Some((windows, found)) = mapper.text(theirs)? {
            mapper.draft.set(ours, json!(windows.trim()), found.comment());
        }
    }
    configure_probes(mapper)?;
    let key = mapper.text("APIKEY")?;
    let Some((url, found)) = mapper.text("DATABASE_URL")? else { return Ok(()) };
    let remark = "To read and write the site's database and answer its calls: make the files below, remove these # and \
                  access.mode, which the site decides then.";
    mapper.draft.suggest("site.kind", json!("unit3d"), remark);
    mapper.draft.suggest("site.database", json!(without_password(&url)), found.comment());
    if let Some(ca) = parameter(&url, "ssl-ca") {
        mapper.draft.suggest("site.database_ca", json!(ca), found.comment());
    }
    let file = "/etc/tidegate/site/database";
    let remark = "A file with the password of DATABASE_URL, which only the tracker may read.";
    mapper.draft.suggest("site.database_password", json!(file), remark);
    let remark = "TRACKER_HOST and TRACKER_PORT of the site name it.";
    mapper.draft.suggest("site.listen", json!("127.0.0.1:6971"), remark);
    let remark = match key {
        Some(_) => "A file with APIKEY, which is TRACKER_KEY of the site.",
        None => "A file with TRACKER_KEY of the site.",
    };
    mapper.draft.suggest("site.tracker_key", json!("/etc/tidegate/site/tracker-key"), remark);
    Ok(())
}

/// Suggests probes of clients, if there were any.
fn configure_probes(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let enabled = mapper.flag("IS_CONNECTIVITY_CHECK_ENABLED")?;
    let required = mapper.flag("REQUIRE_PEER_CONNECTIVITY")?;
    let Some((true, found)) = enabled else { return Ok(()) };
    let remark = format!(
        "{} Name the address of this machine that clients are probed from: they learn it.",
        found.comment()
    );
    mapper.draft.suggest("site.connectable_from", json!(["203.0.113.7"]), remark);
    if let Some((true, found)) = required {
        mapper.draft.suggest("site.connectable_required", json!(true), found.comment());
    }
    Ok(())
}

/// Returns a parameter of a URL.
fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let (_, parameters) = url.split_once('?')?;
    let mut pairs = parameters.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns a URL without the password, and without parameters, which are those of another driver.
fn without_password(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let (user, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let user = user.split(':').next().unwrap_or_default();
    let at = if user.is_empty() { "" } else { "@" };
    format!("{scheme}://{user}{at}{place}")
}
