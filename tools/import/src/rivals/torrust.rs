//! Torrust Tracker: TOML of the schema versions 2 and 3, and its database.

use serde_json::json;

use super::Plan;
use crate::draft::{DraftKey, DraftListener};
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::options::ListKind;

/// Tables of the database; those with a version are of 2026.
pub(crate) const TABLES: &[&str] =
    &["keys", "whitelist", "whitelist_v1", "torrents", "completed_v1"];

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    mapper.set_numbers(&[
        "core.announce_policy.interval",
        "core.announce_policy.interval_min",
        "core.announce_policy.max_peers_per_announce",
    ])?;
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
                let key = DraftKey::new("http.trusted_proxies", proxies, proxied.comment());
                mapper.draft.listeners.push(DraftListener {
                    protocol: "http",
                    listen,
                    keys: vec![key],
                    comments: vec![comment],
                });
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
