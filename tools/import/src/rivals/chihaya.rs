//! Chihaya: YAML.

use serde_json::json;

use super::{DAY_S, Plan};
use crate::document::Found;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::rival::{KeyRow, key, number, without};
use crate::sink::ListKind;

pub(crate) const KEYS: &[KeyRow] = &[
    key("chihaya.announce_interval", &["tracker.interval_s"], ""),
    key("chihaya.min_announce_interval", &["tracker.interval_min_s"], ""),
    key(
        "chihaya.metrics_addr",
        &["admin.listen"],
        "Metrics are at /metrics there and here; names differ. Profiles are not served.",
    ),
    key("chihaya.http.addr", &["http.listen"], ""),
    key("chihaya.http.https_addr", &["tls.listen"], ""),
    key(
        "chihaya.http.tls_cert_path chihaya.http.tls_key_path",
        &["tls.certificates"],
        "Read again when the files change.",
    ),
    without(
        "chihaya.http.read_timeout chihaya.http.write_timeout chihaya.http.idle_timeout",
        "fixed: 10 s for a request, 20 s to read a response, 60 s between requests",
    ),
    without(
        "chihaya.http.enable_keepalive",
        "clients decide whether they keep a connection; one that is idle for 60 s is closed",
    ),
    without(
        "chihaya.http.enable_request_timing chihaya.udp.enable_request_timing",
        "latencies are always measured, of a sample",
    ),
    without(
        "chihaya.http.announce_routes chihaya.http.scrape_routes",
        "served paths are /announce and /scrape, also with a key: /announce/KEY and /KEY/announce. Let a reverse \
                 proxy rewrite others",
    ),
    without(
        "chihaya.http.allow_ip_spoofing chihaya.udp.allow_ip_spoofing",
        "a client could name any address as its own; only trusted proxies may name clients",
    ),
    key(
        "chihaya.http.real_ip_header",
        &["http.trusted_proxies", "http.forwarded_header"],
        "Proxies must write X-Forwarded-For or Forwarded. Any client may send the header there; here only \
                 trusted proxies may.",
    ),
    number(
        "chihaya.http.max_numwant chihaya.udp.max_numwant",
        &["tracker.numwant_max"],
        (0, 1000),
        "",
    ),
    without(
        "chihaya.http.default_numwant chihaya.udp.default_numwant",
        "fixed: 50 peers for a client that does not say how many it wants",
    ),
    without(
        "chihaya.http.max_scrape_infohashes chihaya.udp.max_scrape_infohashes",
        "fixed: 256 torrents in a scrape over HTTP, 122 over UDP",
    ),
    key("chihaya.udp.addr", &["udp.listen"], ""),
    without("chihaya.udp.max_clock_skew", "connection ids come from one clock"),
    without(
        "chihaya.udp.private_key",
        "the key of connection ids is random, and survives upgrades. Nodes of a cluster share one, in their join files",
    ),
    without(
        "chihaya.storage.name",
        "swarms are in memory. In place of Redis there is a cluster of trackers: see docs/cluster.md",
    ),
    without("chihaya.storage.config.peer_lifetime", "peers are kept for one and a half intervals"),
    without(
        "chihaya.storage.config.gc_interval chihaya.storage.config.shard_count \
                 chihaya.storage.config.prometheus_reporting_interval",
        "nothing to choose: peers expire one by one, and counts are always current",
    ),
    without("chihaya.storage.config.redis_*", "no Redis: see docs/cluster.md"),
    key(
        "chihaya.prehooks.name chihaya.prehooks.options.whitelist chihaya.prehooks.options.blacklist",
        &["access.mode", "access.clients_allow", "access.clients_deny"],
        "Torrent approval: its hashes become entries of the allow or deny list. Client approval: ids become \
                 prefixes of peer ids, with and without the hyphen that Chihaya drops.",
    ),
    without(
        "chihaya.prehooks.options.max_increase_delta chihaya.prehooks.options.modify_response_probability \
                 chihaya.prehooks.options.modify_min_interval",
        "every interval is varied by up to a twentieth, and the minimum is not",
    ),
    key(
        "chihaya.prehooks.options.issuer chihaya.prehooks.options.audience chihaya.prehooks.options.jwk_set_url",
        &["access.jwt", "access.jwt_issuer", "access.jwt_audience", "access.jwt_keys"],
        "Also over UDP and WebSocket here. The URL of the keys must begin with https. ES256, EdDSA and RS256 of \
                 2048 bits are accepted.",
    ),
    without("chihaya.prehooks.options.jwk_set_update_interval", "fixed: 5 minutes"),
    without("chihaya.posthooks*", "webhooks: see docs/api.md"),
];

pub(crate) const DIFFERENCES: &[&str] = &[
    "All peers of a torrent are one swarm, of IPv4 and IPv6. Chihaya has one for each.",
    "Replies over UDP fit one packet: at most 242 peers over IPv4, 79 over IPv6.",
    "Downloads are counted, and survive restarts. Chihaya always reports 0.",
    "Scrapes obey access lists, too.",
    "Announces, scrapes, connects and connections of one prefix have limits here, [limits].",
    "WebTorrent is served on the HTTP port, too. Set http.websocket to false to refuse it.",
];

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    seconds(mapper, "chihaya.announce_interval", "tracker.interval_s", (1, DAY_S))?;
    seconds(mapper, "chihaya.min_announce_interval", "tracker.interval_min_s", (1, DAY_S))?;
    if let Some((listen, found)) = mapper.addresses("chihaya.metrics_addr", 6880)? {
        mapper.set_admin(&listen, &found.comment());
    }
    let storage = mapper.text("chihaya.storage.name")?;
    if let Some((name, found)) = storage.filter(|(name, _)| name != "memory") {
        mapper.draft.without(&format!("storage {name}"), &found.place, reason(&found));
    }
    http(mapper)?;
    match mapper.addresses("chihaya.udp.addr", 6969)? {
        Some((listen, found)) => mapper.draft.set("udp.listen", json!(listen), found.comment()),
        None => mapper.draft.set("udp.listen", json!([]), "No udp.addr there."),
    }
    for hook in mapper.document.items("chihaya.prehooks") {
        self::hook(mapper, &hook, plan)?;
    }
    Ok(())
}

fn http(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    match mapper.addresses("chihaya.http.addr", 6969)? {
        Some((listen, found)) => mapper.draft.set("http.listen", json!(listen), found.comment()),
        None => mapper.draft.set("http.listen", json!([]), "No http.addr there."),
    }
    let https = mapper.addresses("chihaya.http.https_addr", 443)?;
    let chain = mapper.text("chihaya.http.tls_cert_path")?;
    let key = mapper.text("chihaya.http.tls_key_path")?;
    if let Some((listen, found)) = https {
        let path = |file: Option<(String, Found)>| file.map_or_else(String::new, |(file, _)| file);
        mapper.set_tls(&listen, &path(chain), &path(key), &found.comment());
    }
    if let Some((header, found)) = mapper.text("chihaya.http.real_ip_header")? {
        mapper.trust_proxies(&Mapper::header_comment(&header, &found));
    }
    Ok(())
}

fn hook(mapper: &mut Mapper<'_>, hook: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let Some((name, found)) = mapper.text(&format!("{hook}.name"))? else { return Ok(()) };
    match name.as_str() {
        // Intervals always vary here.
        "interval variation" => {}
        "client approval" => {
            for (list, ours) in
                [("whitelist", "access.clients_allow"), ("blacklist", "access.clients_deny")]
            {
                let ids = mapper.texts(&format!("{hook}.options.{list}"))?;
                let Some((ids, found)) = ids else { continue };
                let prefixes: Vec<String> =
                    ids.iter().flat_map(|id| [format!("-{id}"), id.clone()]).collect();
                mapper.draft.set(ours, json!(prefixes), found.comment());
            }
        }
        "torrent approval" => {
            for (list, kind) in [("whitelist", ListKind::Allow), ("blacklist", ListKind::Deny)] {
                approve(mapper, &format!("{hook}.options.{list}"), kind, plan)?;
            }
        }
        "jwt" => jwt(mapper, &format!("{hook}.options"), &found)?,
        _ => mapper.draft.without(
            &format!("middleware {name}"),
            &found.place,
            "no middleware of this name here",
        ),
    }
    Ok(())
}

/// Takes the approval by signed tokens.
fn jwt(mapper: &mut Mapper<'_>, options: &str, hook: &Found) -> Result<(), ImportError> {
    mapper.draft.set("access.jwt", json!(true), hook.comment());
    for (theirs, ours) in [
        ("issuer", "access.jwt_issuer"),
        ("audience", "access.jwt_audience"),
        ("jwk_set_url", "access.jwt_keys"),
    ] {
        if let Some((text, found)) = mapper.text(&format!("{options}.{theirs}"))? {
            mapper.draft.set(ours, json!(text), found.comment());
        }
    }
    Ok(())
}

/// Takes the hashes of a torrent approval.
fn approve(
    mapper: &mut Mapper<'_>,
    path: &str,
    kind: ListKind,
    plan: &mut Plan,
) -> Result<(), ImportError> {
    let Some((hashes, found)) = mapper.texts(path)? else { return Ok(()) };
    if hashes.is_empty() {
        return Ok(());
    }
    mapper.draft.set("access.mode", json!(kind.word()), found.comment());
    for hash in hashes {
        let hash = hash.parse().map_err(|error| {
            found.place.error(format_args!("{}: {hash:?}: {error}", found.path))
        })?;
        plan.entries.push((kind, hash));
    }
    Ok(())
}

/// Takes a duration of Go and sets a key to its seconds.
fn seconds(
    mapper: &mut Mapper<'_>,
    path: &str,
    ours: &'static str,
    bounds: (u32, u32),
) -> Result<(), ImportError> {
    let Some((text, found)) = mapper.text(path)? else { return Ok(()) };
    let seconds = duration_s(&text).ok_or_else(|| found.expected("a duration such as \"30m\""))?;
    mapper.set_bounded(&found, ours, seconds, bounds);
    Ok(())
}

/// Parses a duration of Go, such as `1h30m` or `1.5s`; a plain number is nanoseconds. Rounds up to seconds.
fn duration_s(text: &str) -> Option<i64> {
    if let Ok(nanoseconds) = text.parse::<i64>() {
        return Some((nanoseconds as f64 / 1e9).ceil() as i64);
    }
    let (mut rest, mut seconds) = (text.trim(), 0.0);
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, unit) = rest.split_at(end);
        let units = [
            ("ms", 1e-3),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ns", 1e-9),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
        ];
        let (name, scale) = units.iter().find(|(name, _)| unit.starts_with(name))?;
        seconds += number.parse::<f64>().ok()? * scale;
        rest = unit.strip_prefix(name)?;
    }
    Some(seconds.ceil() as i64)
}

fn reason(found: &Found) -> &'static str {
    KEYS.iter().find(|row| row.is(&found.path)).map_or("", |row| row.remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_of_go() {
        for (text, seconds) in [
            ("30m", Some(1800)),
            ("1h30m5s", Some(5405)),
            ("1.5s", Some(2)),
            ("100ms", Some(1)),
            ("1800000000000", Some(1800)),
            ("", Some(0)),
            ("30", Some(1)),
            ("30x", None),
            ("m", None),
            ("-5s", None),
        ] {
            assert_eq!(duration_s(text), seconds, "{text}");
        }
    }
}
