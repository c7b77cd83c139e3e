//! Torrust Tracker: TOML of the schema versions 2 and 3, and its database.

use serde_json::json;

use super::{DAY_S, Plan};
use crate::draft::DraftListener;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::KeyRow;
use crate::sink::ListKind;

/// Tables of the database; those with a version are of 2026.
pub(crate) const TABLES: &[&str] =
    &["keys", "whitelist", "whitelist_v1", "torrents", "completed_v1"];

pub(crate) const KEYS: &[KeyRow] = &[
    KeyRow { theirs: "metadata.*", ours: &[], remark: "the configuration has no version here" },
    KeyRow {
        theirs: "logging.threshold logging.trace_filter",
        ours: &["log.level"],
        remark: "A filter with targets is not taken: areas have other names.",
    },
    KeyRow {
        theirs: "logging.trace_style",
        ours: &["log.format"],
        remark: "json, or text for all others.",
    },
    KeyRow {
        theirs: "core.announce_policy.interval",
        ours: &["tracker.interval_s"],
        remark: "Torrust's default of 120 s is many times as much work as 1800 s.",
    },
    KeyRow {
        theirs: "core.announce_policy.interval_min",
        ours: &["tracker.interval_min_s"],
        remark: "",
    },
    KeyRow {
        theirs: "core.announce_policy.max_peers_per_announce",
        ours: &["tracker.numwant_max"],
        remark: "",
    },
    KeyRow {
        theirs: "core.database.*",
        ours: &[],
        remark: "give the database, or a dump of it, as one more FILE; records are in state.dir here",
    },
    KeyRow {
        theirs: "core.listed",
        ours: &["access.mode"],
        remark: "`allow`; the whitelist becomes its entries.",
    },
    KeyRow {
        theirs: "core.private",
        ours: &["access.private"],
        remark: "Also over UDP and WebSocket here.",
    },
    KeyRow {
        theirs: "core.private_mode.check_keys_expiration",
        ours: &[],
        remark: "if false, keys are imported without an end",
    },
    KeyRow {
        theirs: "core.tracker_policy.max_peer_timeout",
        ours: &[],
        remark: "peers are kept for one and a half intervals",
    },
    KeyRow {
        theirs: "core.tracker_policy.persistent_torrent_completed_stat",
        ours: &[],
        remark: "downloads are always kept in state.dir",
    },
    KeyRow {
        theirs: "core.tracker_policy.remove_peerless_torrents core.inactive_peer_cleanup_interval",
        ours: &[],
        remark: "peers and empty torrents are removed one by one, all the time",
    },
    KeyRow {
        theirs: "core.tracker_usage_statistics udp_trackers.tracker_usage_statistics \
                 http_trackers.tracker_usage_statistics",
        ours: &[],
        remark: "statistics are always there, at next to no cost",
    },
    KeyRow {
        theirs: "core.net.external_ip udp_trackers.network.external_ip http_trackers.network.external_ip",
        ours: &["tracker.external_address", "tracker.external_address_for"],
        remark: "One of each family. As there, only loopback addresses are replaced; add private networks if you have \
                 peers in them.",
    },
    KeyRow {
        theirs: "core.net.on_reverse_proxy http_trackers.network.on_reverse_proxy",
        ours: &["http.trusted_proxies"],
        remark: "Torrust trusts any sender of the header. Name your proxies; `--proxy` does it.",
    },
    KeyRow { theirs: "udp_trackers.bind_address", ours: &["udp.listen"], remark: "" },
    KeyRow {
        theirs: "udp_trackers.cookie_lifetime udp_trackers.cookie_lifetime.secs",
        ours: &[],
        remark: "fixed: a connection id is valid for two to four minutes",
    },
    KeyRow {
        theirs: "udp_trackers.max_connection_id_errors_per_ip udp_tracker_server.ip_bans_reset_interval_in_secs",
        ours: &[],
        remark: "the source of a packet without a connection id can be forged, so anyone could have others banned. See \
                 bans.malformed_per_min",
    },
    KeyRow {
        theirs: "udp_trackers.public_url http_trackers.public_url",
        ours: &["http.public_host"],
        remark: "The host of the URL, for the announce URLs of the page at /.",
    },
    KeyRow {
        theirs: "udp_trackers.network.ipv6_v6only http_trackers.network.ipv6_v6only http_trackers.ipv6_v6only \
                 udp_trackers.ipv6_v6only udp_trackers.network.on_reverse_proxy udp_trackers.cookie_lifetime.nanos",
        ours: &[],
        remark: "nothing to choose: an IPv6 address accepts no IPv4 traffic, and `[::]` becomes two addresses",
    },
    KeyRow {
        theirs: "http_trackers.bind_address",
        ours: &["http.listen", "tls.listen"],
        remark: "",
    },
    KeyRow {
        theirs: "http_trackers.tsl_config.ssl_cert_path http_trackers.tsl_config.ssl_key_path \
                 http_trackers.tls_config.ssl_cert_path http_trackers.tls_config.ssl_key_path",
        ours: &["tls.certificates"],
        remark: "Read again when the files change.",
    },
    KeyRow {
        theirs: "http_api.bind_address",
        ours: &["admin.listen"],
        remark: "Paths and answers of the API are others: see docs/api.md.",
    },
    KeyRow {
        theirs: "http_api.tsl_config* http_api.tls_config*",
        ours: &["admin.tls"],
        remark: "Written as a comment: admin.tls uses the certificates of [tls].",
    },
    KeyRow {
        theirs: "http_api.access_tokens*",
        ours: &[],
        remark: "tokens have permissions here: make them by `tidegate admin tokens create`",
    },
    KeyRow {
        theirs: "health_check_api.bind_address",
        ours: &[],
        remark: "health is at /health/live and /health/ready of admin.listen",
    },
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
    let policy = "core.announce_policy";
    mapper.set_number(&format!("{policy}.interval"), "tracker.interval_s", (1, DAY_S))?;
    mapper.set_number(&format!("{policy}.interval_min"), "tracker.interval_min_s", (1, DAY_S))?;
    mapper.set_number(
        &format!("{policy}.max_peers_per_announce"),
        "tracker.numwant_max",
        (0, 1000),
    )?;
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
