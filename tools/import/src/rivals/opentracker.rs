//! opentracker: `keyword value` lines, lists of info hashes, and what `/stats?mode=statedump` prints.

use std::path::Path;

use serde_json::json;

use super::Plan;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::options::ListKind;

/// Ports without a number.
const PORT: u16 = 6969;

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    mapper.set_numbers(&["listen.udp.workers"])?;
    listen(mapper)?;
    let root = mapper.text_without("tracker.rootdir")?;
    for (path, mode, kind) in [
        ("access.whitelist", "allow", ListKind::Allow),
        ("access.blacklist", "deny", ListKind::Deny),
    ] {
        if let Some((file, found)) = mapper.text(path)? {
            let file = match &root {
                // The root of the file system, once opentracker has changed it, or where it was started.
                Some(root) if !Path::new(&file).starts_with(root) => {
                    Path::new(root).join(file.trim_start_matches('/')).display().to_string()
                }
                _ => file,
            };
            mapper.set_list(&found, mode, &file)?;
            plan.list = Some(kind);
        }
    }
    for found in mapper.document.take_all("access.stats") {
        let network = found.value.as_str().unwrap_or_default();
        mapper.draft.push("http.stats_networks", network, found.comment());
    }
    if let Some((path, found)) = mapper.text("access.stats_path")? {
        let path = format!("/{}", path.trim_start_matches('/'));
        mapper.draft.set("http.stats_path", json!(path), found.comment());
    }
    mapper.draft.set("http.stats", json!("opentracker"), "As opentracker's /stats.");
    for found in mapper.document.take_all("access.proxy") {
        let network = found.value.as_str().unwrap_or_default();
        mapper.draft.push("http.trusted_proxies", network, found.comment());
    }
    if let Some((user, found)) = mapper.text("tracker.user")? {
        mapper.suggest_user(&user, &found);
    }
    compiled(mapper);
    defaults(mapper);
    Ok(())
}

fn listen(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    let is_v4_only = mapper.options.compiled.iter().any(|it| it == "WANT_V4_ONLY");
    let mut has_any = false;
    for (path, keys) in [
        ("listen.tcp_udp", ["udp.listen", "http.listen"].as_slice()),
        ("listen.tcp", &["http.listen"]),
        ("listen.udp", &["udp.listen"]),
    ] {
        for found in mapper.document.take_all(path) {
            has_any = true;
            for address in found.addresses(found.value.as_str().unwrap_or_default(), PORT)? {
                if is_v4_only && address.starts_with('[') {
                    continue;
                }
                keys.iter().for_each(|key| mapper.draft.push(key, &address, found.comment()));
            }
        }
    }
    let all =
        if is_v4_only { json!(["0.0.0.0:6969"]) } else { json!(["0.0.0.0:6969", "[::]:6969"]) };
    for key in ["udp.listen", "http.listen"] {
        match has_any {
            true => mapper.draft.set_default(key, json!([]), "No such listener there."),
            false => mapper.draft.set(key, all.clone(), "opentracker's default: no listen line."),
        }
    }
    Ok(())
}

/// Names what was compiled in.
fn compiled(mapper: &mut Mapper<'_>) {
    let place = crate::error::Place::file(&"--compiled".into());
    for name in &mapper.options.compiled {
        match mapper.row(name) {
            Some(row) if row.ours.is_empty() => mapper.draft.without(name, &place, row.remark),
            Some(_) if name == "WANT_FULLSCRAPE" => {
                mapper.draft.set(
                    "http.full_scrape",
                    json!(true),
                    "From --compiled WANT_FULLSCRAPE.",
                );
            }
            Some(_) => {}
            None => mapper.draft.without(name, &place, "no compile-time option of opentracker"),
        }
    }
}

/// Sets what opentracker has compiled in.
fn defaults(mapper: &mut Mapper<'_>) {
    for (key, value, comment) in [
        ("tracker.interval_s", 1620, "opentracker's: 27 to 33 minutes. Intervals vary here, too."),
        ("tracker.numwant_max", 200, "opentracker's."),
    ] {
        mapper.draft.set_default(key, json!(value), comment);
    }
}
