//! hefur: its command line, alone or in the unit of systemd.

use serde_json::json;

use crate::error::ImportError;
use crate::mapper::{DAY_S, Mapper};

/// Options without a value.
pub(super) const SWITCHES: &[&str] = &[
    "ipv6",
    "allow-proxy",
    "disable-peers-page",
    "disable-stat-page",
    "disable-file-page",
    "log-color",
    "log-origins",
    "tpl-debug",
    "version",
];

/// Minutes between announces, by default.
const INTERVAL_MIN: i64 = 15;

pub(crate) fn configure(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    listen(mapper)?;
    if let Some((folder, found)) = mapper.text("torrent-dir")? {
        mapper.set_torrents(&found, &folder)?;
    }
    let interval = mapper.number("announce-interval")?;
    let (minutes, comment) = match &interval {
        Some((minutes, found)) => (*minutes, found.comment()),
        None => (INTERVAL_MIN, "hefur's default.".into()),
    };
    let seconds = |minutes: i64| minutes.saturating_mul(60).clamp(60, DAY_S.into());
    mapper.draft.set("tracker.interval_s", json!(seconds(minutes)), comment);
    mapper.set_number("max-numwant", "tracker.numwant_max")?;
    mapper.draft.set_default("tracker.numwant_max", json!(100), "hefur's default.");
    proxies(mapper)?;
    if let Some((level, found)) = mapper.text("log-level")? {
        let level = match level.as_str() {
            "debug" | "info" | "error" => level.as_str(),
            "critical" | "fatal" => "error",
            _ => "warn",
        };
        mapper.draft.set("log.level", json!(level), found.comment());
    }
    mapper.document.take("gid");
    if let Some((user, found)) = mapper.text("uid")? {
        mapper.suggest_user(&user, &found);
    }
    Ok(())
}

fn listen(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let is_v6 = mapper.flag("ipv6")?.is_some_and(|(is_on, _)| is_on);
    let bound = mapper.text("bind-addr")?;
    let any = if is_v6 { "::" } else { "0.0.0.0" };
    let tcp = match &bound {
        // An address of the other family has no effect there.
        Some((address, _)) if address.contains(':') == is_v6 => address.as_str(),
        _ => any,
    };
    let [chain, key] = mapper.certificate("http-cert", "http-key")?;
    for (option, ours, host, default) in [
        ("udp-port", "udp.listen", any, 6969),
        ("http-port", "http.listen", tcp, 6969),
        ("https-port", "tls.listen", tcp, 6970),
    ] {
        let (port, comment) = mapper.port(option, default, "hefur's default.")?;
        let listen = match (port, &bound) {
            (0, _) => Vec::new(),
            (port, Some((_, found))) => found.addresses(host, port)?,
            (port, None) => crate::addresses::parse(host, port).unwrap_or_default(),
        };
        if ours != "tls.listen" {
            mapper.draft.set(ours, json!(listen), comment);
        } else if !chain.is_empty() && !key.is_empty() && port > 0 {
            mapper.set_tls(&listen, &chain, &key, &comment);
        }
    }
    Ok(())
}

fn proxies(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let header = mapper.text("reverse-proxy-header")?.map(|(header, _)| header);
    let Some((from, found)) = mapper.text("reverse-proxy-from")? else { return Ok(()) };
    let header = header.unwrap_or_else(|| "X-Real-IP".into());
    let comment = Mapper::header_comment(&header, &found);
    if from == "0.0.0.0" || from == "::" {
        // Any address there.
        mapper.trust_proxies(&comment);
    } else {
        mapper.draft.push("http.trusted_proxies", &from, comment);
    }
    Ok(())
}
