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

/// Keys whose integers are those of ours.
const NUMBERS: &[&str] = &[
    "NUMWANT_MAX",
    "ANNOUNCE_MIN",
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
    let key = mapper.text("APIKEY")?;
    let Some((url, found)) = mapper.text("DATABASE_URL")? else { return Ok(()) };
    let remark = "To read and write the site's database and answer its calls: make the files below, remove these # and \
                  access.mode, which the site decides then.";
    mapper.draft.suggest("site.kind", json!("unit3d"), remark);
    mapper.draft.suggest("site.database", json!(without_password(&url)), found.comment());
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

/// Returns a URL without the password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let (user, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let user = user.split(':').next().unwrap_or_default();
    let at = if user.is_empty() { "" } else { "@" };
    format!("{scheme}://{user}{at}{place}")
}
