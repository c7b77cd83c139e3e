//! aquatic: TOML of aquatic_udp, aquatic_http and aquatic_ws, a file each.

use std::path::Path;

use serde_json::json;

use super::Plan;
use crate::draft::{DraftKey, DraftListener};
use crate::error::{ImportError, Place};
use crate::machine;
use crate::mapper::Mapper;
use crate::options::ListKind;

/// The program that a file is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Udp,
    Http,
    Ws,
}

pub(crate) fn configure(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<(), ImportError> {
    mapper.set_numbers(&["protocol.max_response_peers", "protocol.max_peers"])?;
    let program = program(mapper)?;
    let listen = listen(mapper, program)?;
    listeners(mapper, program, &listen, plan)?;
    let (workers, interval) = match program {
        Program::Udp => ("udp.workers", "tracker.interval_s"),
        Program::Http => ("http.workers", "tracker.interval_s"),
        Program::Ws => ("http.workers", "tracker.websocket_interval_s"),
    };
    mapper.set_number("socket_workers", workers)?;
    if let Some((level, found)) = mapper.text("log_level")? {
        let level = if level == "off" { "error".into() } else { level };
        mapper.draft.set("log.level", json!(level), found.comment());
    }
    mapper.set_number("protocol.peer_announce_interval", interval)?;
    metrics(mapper)
}

/// Finds out which program a file is for, by keys that only it has, or else by the file's name.
fn program(mapper: &Mapper<'_>) -> Result<Program, ImportError> {
    let document = &mapper.document;
    let has_any = |paths: &[&str]| paths.iter().any(|path| document.has(path));
    if has_any(&["network.address", "network.websocket_max_message_size", "protocol.max_offers"]) {
        return Ok(Program::Ws);
    }
    if has_any(&["network.socket_recv_buffer_size", "protocol.max_response_peers"])
        || document.has_below("scrape_exports")
        || document.has_below("statistics")
    {
        return Ok(Program::Udp);
    }
    if has_any(&["network.keep_alive", "network.runs_behind_reverse_proxy", "protocol.max_peers"]) {
        return Ok(Program::Http);
    }
    let name = document.file.to_ascii_lowercase();
    let by_name = [("udp", Program::Udp), ("http", Program::Http), ("ws", Program::Ws)];
    let by_name = by_name.iter().find(|(word, _)| name.contains(word));
    by_name.map(|(_, program)| *program).ok_or_else(|| {
        Place::file(&document.file).error(
            "expected keys of aquatic_udp, aquatic_http or aquatic_ws, found only keys that all have: \
             rename the file so that its name contains udp, http or ws",
        )
    })
}

/// Returns the addresses, with the comment about them.
fn listen(mapper: &mut Mapper<'_>, program: Program) -> Result<Vec<(String, String)>, ImportError> {
    let by_default = |address: &str| (address.to_owned(), "aquatic's default.".to_owned());
    if program == Program::Ws {
        let only_ipv6 = mapper.flag("network.only_ipv6")?.is_some_and(|(only, _)| only);
        let Some((listen, found)) = mapper.addresses("network.address", 3000)? else {
            return Ok(vec![by_default("0.0.0.0:3000")]);
        };
        let kept = listen.into_iter().filter(|it| it.starts_with('[') || !only_ipv6);
        return Ok(kept.map(|it| (it, found.comment())).collect());
    }
    let mut all = Vec::new();
    for (flag, path, address) in [
        ("network.use_ipv4", "network.address_ipv4", "0.0.0.0:3000"),
        ("network.use_ipv6", "network.address_ipv6", "[::]:3000"),
    ] {
        let is_used = mapper.flag(flag)?.is_none_or(|(is_used, _)| is_used);
        let found = mapper.text(path)?;
        match found {
            _ if !is_used => {}
            Some((text, found)) => match text.parse::<std::net::SocketAddr>() {
                Ok(_) => all.push((text, found.comment())),
                Err(_) => return Err(found.expected("an IP address and a port")),
            },
            None => all.push(by_default(address)),
        }
    }
    Ok(all)
}

/// Sets what listens, with its certificate, proxies and access list.
fn listeners(
    mapper: &mut Mapper<'_>,
    program: Program,
    listen: &[(String, String)],
    plan: &mut Plan,
) -> Result<(), ImportError> {
    let tls = mapper.flag("network.enable_tls")?;
    let [chain, key] =
        mapper.certificate("network.tls_certificate_path", "network.tls_private_key_path")?;
    let addresses: Vec<String> = listen.iter().map(|(address, _)| address.clone()).collect();
    let is_tls = tls.as_ref().is_some_and(|(is_on, _)| *is_on);
    let (protocol, section) = match (program, is_tls) {
        (Program::Udp, _) => ("udp", "udp.listen"),
        (_, false) => ("http", "http.listen"),
        (_, true) => ("tls", "tls.listen"),
    };
    if let Some(keys) = access(mapper, plan)? {
        let comments = listen.iter().map(|(_, comment)| comment.clone()).collect();
        let listener = DraftListener { protocol, listen: addresses, keys, comments };
        mapper.draft.listeners.push(listener);
    } else if let Some((true, found)) = tls {
        mapper.set_tls(&addresses, &chain, &key, &found.comment());
    } else {
        for (address, comment) in listen {
            mapper.draft.push(section, address, comment.as_str());
        }
    }
    if let Some((true, found)) = mapper.flag("network.runs_behind_reverse_proxy")? {
        mapper.trust_proxies(&found.comment());
    }
    Ok(())
}

/// Sets the access list. If another program's file has set a different one, returns the keys for a listener of its own.
fn access(mapper: &mut Mapper<'_>, plan: &mut Plan) -> Result<Option<Vec<DraftKey>>, ImportError> {
    let mode = mapper.text("access_list.mode")?;
    let file = mapper.text("access_list.path")?;
    let root = privileges(mapper)?;
    let Some((mode, found)) = mode.filter(|(mode, _)| mode == "allow" || mode == "deny") else {
        let comment = "access_list.mode is off there.";
        if mapper.draft.find("access.mode").is_some_and(|key| key.value != "open") {
            return Ok(Some(vec![DraftKey::new("access.mode", json!("open"), comment)]));
        }
        mapper.draft.set_default("access.mode", json!("open"), comment);
        return Ok(None);
    };
    let file = file.map_or_else(|| "./access-list.txt".into(), |(file, _)| file);
    let file = match root {
        Some(root) => Path::new(&root).join(file.trim_start_matches('/')).display().to_string(),
        None => file,
    };
    let (mode, ours, kind) = match mode.as_str() {
        "deny" => ("deny", "access.deny", ListKind::Deny),
        _ => ("allow", "access.allow", ListKind::Allow),
    };
    plan.list.get_or_insert(kind);
    let is_other = mapper.draft.find("access.mode").is_some_and(|key| key.value != mode)
        || mapper.draft.find(ours).is_some_and(|key| key.value != file);
    if is_other {
        machine::check_list(file.as_ref())
            .map_err(|error| found.place.error(format_args!("access_list.path: {error}")))?;
        return Ok(Some(vec![
            DraftKey::new("access.mode", json!(mode), found.comment()),
            DraftKey::new(ours, json!(file), found.comment()),
        ]));
    }
    mapper.set_list(&found, mode, &file)?;
    Ok(None)
}

/// Suggests the user. Returns the directory of chroot, if the program changes to one.
fn privileges(mapper: &mut Mapper<'_>) -> Result<Option<String>, ImportError> {
    let root = mapper.text_without("privileges.chroot_path")?;
    let drops = mapper.flag("privileges.drop_privileges")?.is_some_and(|(drops, _)| drops);
    mapper.document.take("privileges.group");
    if let Some((user, found)) = mapper.text("privileges.user")?
        && drops
    {
        mapper.suggest_user(&user, &found);
    }
    Ok(root.filter(|_| drops))
}

fn metrics(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    for section in ["statistics", "metrics"] {
        let runs = mapper.flag(&format!("{section}.run_prometheus_endpoint"))?;
        let listen = mapper.addresses(&format!("{section}.prometheus_endpoint_address"), 9000)?;
        if let (Some((true, _)), Some((listen, found))) = (runs, listen)
            && mapper.draft.find("admin.listen").is_none()
        {
            mapper.set_admin(&listen, &found.comment());
        }
    }
    Ok(())
}
