//! Chihaya: YAML.

use serde_json::json;

use super::Plan;
use crate::document::Found;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::options::ListKind;

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    mapper.set_numbers(&["chihaya.http.max_numwant", "chihaya.udp.max_numwant"])?;
    seconds(mapper, "chihaya.announce_interval", "tracker.interval_s")?;
    seconds(mapper, "chihaya.min_announce_interval", "tracker.interval_min_s")?;
    if let Some((listen, found)) = mapper.addresses("chihaya.metrics_addr", 6880)? {
        mapper.set_admin(&listen, &found.comment());
    }
    let storage = mapper.text("chihaya.storage.name")?;
    if let Some((name, found)) = storage.filter(|(name, _)| name != "memory") {
        let reason = mapper.reason(&found.path);
        mapper.draft.without(&format!("storage {name}"), &found.place, reason);
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
    let [chain, key] =
        mapper.certificate("chihaya.http.tls_cert_path", "chihaya.http.tls_key_path")?;
    if let Some((listen, found)) = mapper.addresses("chihaya.http.https_addr", 443)? {
        mapper.set_tls(&listen, &chain, &key, &found.comment());
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
    mapper.draft.set("access.mode", json!(kind.label()), found.comment());
    for hash in hashes {
        let hash = hash.parse().map_err(|error| {
            found.place.error(format_args!("{}: {hash:?}: {error}", found.path))
        })?;
        plan.entries.push((kind, hash));
    }
    Ok(())
}

/// Takes a duration of Go and sets a key to its seconds.
fn seconds(mapper: &mut Mapper<'_>, path: &str, ours: &'static str) -> Result<(), ImportError> {
    let Some((text, found)) = mapper.text(path)? else { return Ok(()) };
    let seconds = duration_s(&text).ok_or_else(|| found.expected("a duration such as \"30m\""))?;
    mapper.set_bounded(&found, ours, seconds);
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
