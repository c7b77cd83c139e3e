//! Torrust Tracker: TOML of the schema versions 2 and 3, and its database.

use serde_json::json;

use super::{DAY_S, Plan};
use crate::draft::DraftListener;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, number, without};
use crate::sink::ListKind;

/// Tables of the database; those with a version are of 2026.
pub(crate) const TABLES: &[&str] =
    &["keys", "whitelist", "whitelist_v1", "torrents", "completed_v1"];

pub(crate) const KEYS: &[KeyRow] = &[
    without("metadata.*", "the configuration has no version here"),
    key(
        "logging.threshold logging.trace_filter",
        &["log.level"],
        "A filter with targets is not taken: areas have other names.",
    ),
    key("logging.trace_style", &["log.format"], "json, or text for all others."),
    number(
        "core.announce_policy.interval",
        &["tracker.interval_s"],
        (1, DAY_S),
        "Torrust's default of 120 s is many times as much work as 1800 s.",
    ),
    number("core.announce_policy.interval_min", &["tracker.interval_min_s"], (1, DAY_S), ""),
    number("core.announce_policy.max_peers_per_announce", &["tracker.numwant_max"], (0, 1000), ""),
    without(
        "core.database.*",
        "give the database, or a dump of it, as one more FILE; records are in state.dir here",
    ),
    key("core.listed", &["access.mode"], "`allow`; the whitelist becomes its entries."),
    key("core.private", &["access.private"], "Also over UDP and WebSocket here."),
    without(
        "core.private_mode.check_keys_expiration",
        "if false, keys are imported without an end",
    ),
    without("core.tracker_policy.max_peer_timeout", "peers are kept for one and a half intervals"),
    without(
        "core.tracker_policy.persistent_torrent_completed_stat",
        "downloads are always kept in state.dir",
    ),
    without(
        "core.tracker_policy.remove_peerless_torrents core.inactive_peer_cleanup_interval",
        "peers and empty torrents are removed one by one, all the time",
    ),
    without(
        "core.tracker_usage_statistics udp_trackers.tracker_usage_statistics \
                 http_trackers.tracker_usage_statistics",
        "statistics are always there, at next to no cost",
    ),
    key(
        "core.net.external_ip udp_trackers.network.external_ip http_trackers.network.external_ip",
        &["tracker.external_address", "tracker.external_address_for"],
        "One of each family. As there, only loopback addresses are replaced; add private networks if you have \
                 peers in them.",
    ),
    key(
        "core.net.on_reverse_proxy http_trackers.network.on_reverse_proxy",
        &["http.trusted_proxies"],
        "Torrust trusts any sender of the header. Name your proxies; `--proxy` does it.",
    ),
    key("udp_trackers.bind_address", &["udp.listen"], ""),
    without(
        "udp_trackers.cookie_lifetime udp_trackers.cookie_lifetime.secs",
        "fixed: a connection id is valid for two to four minutes",
    ),
    without(
        "udp_trackers.max_connection_id_errors_per_ip udp_tracker_server.ip_bans_reset_interval_in_secs",
        "the source of a packet without a connection id can be forged, so anyone could have others banned. See \
                 bans.malformed_per_min",
    ),
    key(
        "udp_trackers.public_url http_trackers.public_url",
        &["http.public_host"],
        "The host of the URL, for the announce URLs of the page at /.",
    ),
    without(
        "udp_trackers.network.ipv6_v6only http_trackers.network.ipv6_v6only http_trackers.ipv6_v6only \
                 udp_trackers.ipv6_v6only udp_trackers.network.on_reverse_proxy udp_trackers.cookie_lifetime.nanos",
        "nothing to choose: an IPv6 address accepts no IPv4 traffic, and `[::]` becomes two addresses",
    ),
    key("http_trackers.bind_address", &["http.listen", "tls.listen"], ""),
    key(
        "http_trackers.tsl_config.ssl_cert_path http_trackers.tsl_config.ssl_key_path \
                 http_trackers.tls_config.ssl_cert_path http_trackers.tls_config.ssl_key_path",
        &["tls.certificates"],
        "Read again when the files change.",
    ),
    key(
        "http_api.bind_address",
        &["admin.listen"],
        "Paths and answers of the API are others: see docs/api.md.",
    ),
    key(
        "http_api.tsl_config* http_api.tls_config*",
        &["admin.tls"],
        "Written as a comment: admin.tls uses the certificates of [tls].",
    ),
    without(
        "http_api.access_tokens*",
        "tokens have permissions here: make them by `tidegate admin tokens create`",
    ),
    without(
        "health_check_api.bind_address",
        "health is at /health/live and /health/ready of admin.listen",
    ),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "A reply is a random sample of the swarm. Torrust returns the first peers in the order of their ids.",
    "Keys work over UDP, too: in the path of the announce URL.",
    "Announces, scrapes, connects and connections of one prefix have limits here, [limits].",
    "Scrapes of torrents that are not on the allow list are refused. Torrust answers with zeros.",
    "WebTorrent is served on the HTTP port, too. Set http.websocket to false to refuse it.",
    "The API has other paths, and tokens with permissions: see docs/api.md.",
];

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    log(mapper)?;
    if let Some((true, found)) = mapper.flag("core.listed")? {
        mapper.draft.set("access.mode", json!("allow"), found.comment());
        plan.list = Some(ListKind::Allow);
    }
    if let Some((true, found)) = mapper.flag("core.private")? {
        mapper.draft.set("access.private", json!(true), found.comment());
    }
    if let Some((false, _)) = mapper.flag("core.private_mode.check_keys_expiration")? {
        plan.ignores_expiry = true;
    }
    if let Some((true, found)) = mapper.flag("core.net.on_reverse_proxy")? {
        mapper.trust_proxies(&found.comment());
    }
    udp(mapper)?;
    http(mapper)?;
    external(mapper)?;
    api(mapper)
}

/// Takes the address of peers beside the tracker.
fn external(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    mapper.set_external("core.net.external_ip")?;
    for section in ["udp_trackers", "http_trackers"] {
        for tracker in mapper.document.items(section) {
            mapper.set_external(&format!("{tracker}.network.external_ip"))?;
        }
    }
    if mapper.draft.find("tracker.external_address").is_some() {
        let networks = json!(["127.0.0.0/8", "::1"]);
        let comment = "As in Torrust. Without this key, private networks count, too.";
        mapper.draft.set("tracker.external_address_for", networks, comment);
    }
    Ok(())
}

/// Takes the addresses of the API.
fn api(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    if let Some((listen, found)) = mapper.addresses("http_api.bind_address", 1212)? {
        mapper.set_admin(&listen, &found.comment());
    }
    for config in ["tsl_config", "tls_config"] {
        let chain = mapper.text(&format!("http_api.{config}.ssl_cert_path"))?;
        let _ = mapper.text(&format!("http_api.{config}.ssl_key_path"))?;
        if let Some((chain, found)) = chain {
            let comment = format!(
                "{} Not in effect: add the certificate {chain} to tls.certificates.",
                found.comment()
            );
            mapper.draft.suggest("admin.tls", json!(true), comment);
        }
    }
    Ok(())
}

/// Takes the host of a listener's announce URL.
fn public_host(mapper: &mut Mapper<'_>, tracker: &str) -> Result<(), ImportError> {
    let Some((url, found)) = mapper.text(&format!("{tracker}.public_url"))? else { return Ok(()) };
    let authority = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|it| it.is_ascii_digit()) => host,
        _ => authority,
    };
    mapper.draft.set("http.public_host", json!(host), found.comment());
    Ok(())
}

fn log(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    for path in ["logging.threshold", "logging.trace_filter"] {
        let Some((level, found)) = mapper.text(path)? else { continue };
        let level = level.to_ascii_lowercase();
        match level.as_str() {
            "off" => mapper.draft.set("log.level", json!("error"), found.comment()),
            "error" | "warn" | "info" | "debug" | "trace" => {
                mapper.draft.set("log.level", json!(level), found.comment());
            }
            _ => mapper.draft.without(path, &found.place, "a filter with targets; see log.level"),
        }
    }
    if let Some((style, found)) = mapper.text("logging.trace_style")? {
        let format = if style == "json" { "json" } else { "text" };
        mapper.draft.set("log.format", json!(format), found.comment());
    }
    Ok(())
}

fn udp(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    for tracker in mapper.document.items("udp_trackers") {
        if let Some((listen, found)) = mapper.addresses(&format!("{tracker}.bind_address"), 6969)? {
            let comment = found.comment();
            listen.iter().for_each(|it| mapper.draft.push("udp.listen", it, comment.as_str()));
        }
        public_host(mapper, &tracker)?;
    }
    mapper.draft.set_default("udp.listen", json!([]), "No udp_trackers there.");
    Ok(())
}

fn http(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    for tracker in mapper.document.items("http_trackers") {
        let bound = mapper.addresses(&format!("{tracker}.bind_address"), 7070)?;
        let mut files = [String::new(), String::new()];
        for config in ["tsl_config", "tls_config"] {
            for (name, file) in ["ssl_cert_path", "ssl_key_path"].iter().zip(&mut files) {
                if let Some((path, _)) = mapper.text(&format!("{tracker}.{config}.{name}"))? {
                    *file = path;
                }
            }
        }
        let proxied = mapper.flag(&format!("{tracker}.network.on_reverse_proxy"))?;
        public_host(mapper, &tracker)?;
        let Some((listen, found)) = bound else { continue };
        let [chain, key] = files;
        let comment = found.comment();
        match proxied {
            Some((true, proxied)) => {
                let proxies = json!(mapper.proxies());
                let mut listener = DraftListener {
                    protocol: "http",
                    listen,
                    keys: Vec::new(),
                    comments: vec![comment],
                };
                listener.set("http.trusted_proxies", proxies, proxied.comment());
                mapper.listener(listener);
            }
            _ if !chain.is_empty() => mapper.set_tls(&listen, &chain, &key, &comment),
            _ => {
                listen.iter().for_each(|it| mapper.draft.push("http.listen", it, comment.as_str()))
            }
        }
    }
    mapper.draft.set_default("http.listen", json!([]), "No http_trackers without TLS there.");
    Ok(())
}
