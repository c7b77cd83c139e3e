//! UNIT3D-Announce: a file of variables, and the tables of UNIT3D.

use serde_json::json;

use super::Plan;
use crate::error::ImportError;
use crate::mapper::Mapper;

/// Tables of the database.
pub(crate) const TABLES: &[&str] = &["groups", "users", "torrents", "blacklist_clients"];

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    mapper.set_numbers(NUMBERS)?;
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
        mapper.set_bounded(&found, "tracker.interval_min_s", seconds);
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

/// Takes the interval, which is a random one between two bounds there: the middle of both makes as many announces.
fn configure_interval(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let (min, max) = (mapper.number("ANNOUNCE_MIN")?, mapper.number("ANNOUNCE_MAX")?);
    let Some((_, found)) = min.as_ref().or(max.as_ref()) else { return Ok(()) };
    // Its defaults.
    let min_s = min.as_ref().map_or(1_800, |it| it.0);
    let max_s = max.as_ref().map_or(3_600, |it| it.0);
    mapper.set_bounded(found, "tracker.interval_s", min_s.midpoint(max_s.max(min_s)));
    Ok(())
}

/// Keys whose integers are those of ours.
const NUMBERS: &[&str] = &[
    "NUMWANT_MAX",
    "FLUSH_INTERVAL",
    "UPLOAD_FACTOR",
    "DOWNLOAD_FACTOR",
    "DONOR_UPLOAD_FACTOR_OVERRIDE",
    "DONOR_DOWNLOAD_FACTOR_OVERRIDE",
    "LIFETIME_DONOR_UPLOAD_FACTOR_OVERRIDE",
    "LIFETIME_DONOR_DOWNLOAD_FACTOR_OVERRIDE",
];

/// Suggests `[site]`. It is not in force: it needs files with secrets, which the user makes.
fn configure_site(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
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
