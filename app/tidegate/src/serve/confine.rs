//! Rights: the user that the process runs as, and the sandbox: which directories and ports it may still
//! use while it serves.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use net::process::{self, Identity, Sandbox, SandboxPolicy};
use tracing::{info, warn};

use super::places;
use config::{AcmeConfig, Config, SiteConfig, TokenConfig};

/// Where the C library reads how to resolve host names.
const RESOLVER: &str = "/etc/resolv.conf";
/// DNS over TCP, for responses that are too long for a datagram.
const DNS_PORT: u16 = 53;

pub(super) fn become_user(config: &Config) -> Result<()> {
    if !process::is_root() {
        if !config.user.is_empty() {
            Identity::find(&config.user, "").context("process.user")?;
            let user = &config.user;
            warn!(user, "only root can switch to another user: process.user is ignored");
        }
        drop_capabilities();
        return Ok(());
    }
    if config.user.is_empty() {
        warn!(
            "serving as root: name a user in process.user, to which the tracker switches when its \
             ports are bound"
        );
        return Ok(());
    }
    let identity = Identity::find(&config.user, "").context("process.user")?;
    process::drop_privileges(identity).context("process.user")?;
    info!(user = config.user, "switched user");
    Ok(())
}

/// Drops the capabilities that root has, or that a service was started with, e.g. to bind low ports.
fn drop_capabilities() {
    match process::drop_capabilities() {
        Ok(dropped) if dropped.is_empty() => {}
        // Their names would fill several lines.
        Ok(_) if process::is_root() => info!("dropped all capabilities of root"),
        Ok(dropped) => info!(capabilities = dropped.join(", "), "dropped all capabilities"),
        // A filter of the service manager may not know of the call.
        Err(error) => warn!(%error, "cannot drop capabilities (capset): they stay"),
    }
}

/// Drops the rights that serving does not need, if configured. `file` is the configuration file, and `ports` are
/// those of other machines that the process connects to beside the configured ones.
pub(super) fn confine(config: &Config, file: Option<&Path>, ports: &[u16]) -> Option<Sandbox> {
    if !config.sandbox {
        return None;
    }
    // Without process.user, root keeps its user, and with it the right to read its files. The launcher keeps all.
    if process::is_root() {
        drop_capabilities();
    }
    let sandbox = process::confine(allowed(config, file, ports));
    info!("sandbox: {sandbox}");
    Some(sandbox)
}

fn allowed(config: &Config, file: Option<&Path>, found: &[u16]) -> SandboxPolicy {
    let files = file.into_iter().chain(config.files());
    let acme = config.acme.as_ref();
    let mut ports: Vec<u16> = acme.map(AcmeConfig::port).into_iter().collect();
    ports.extend(&config.webhook_ports);
    ports.extend(config.tokens.as_ref().and_then(TokenConfig::port));
    ports.extend(config.list_urls().map(|(_, url)| url.port));
    ports.extend(config.site.iter().flat_map(SiteConfig::ports));
    ports.extend(found);
    // Connecting to hosts requires resolving their names.
    let resolver = (!ports.is_empty()).then_some(Path::new(RESOLVER));
    if !ports.is_empty() {
        ports.push(DNS_PORT);
    }
    let authorities = acme.and_then(|acme| acme.ca.as_deref());
    let of_cluster = config.cluster.as_ref().map(|cluster| cluster.join.as_path());
    let mut readable = directories(files.chain(authorities).chain(resolver).chain(of_cluster));
    let folders =
        config.folders().flat_map(|path| [std::path::absolute(path), path.canonicalize()]);
    readable.extend(folders.flatten());
    let writable = places::writable(config).map(|(_, folder)| folder.to_owned()).collect();
    let probes = config.site.as_ref().is_some_and(|site| !site.connectable_from.is_empty());
    SandboxPolicy { readable, writable, ports, any_port: probes }
}

/// Returns why the sandbox prevents `config` from being applied by a reload, if it does.
pub(super) fn reload_conflict(sandbox: Option<&Sandbox>, config: &Config) -> Option<String> {
    let sandbox = sandbox?;
    let remedy = "restart or upgrade (SIGUSR2) to apply it, or set process.sandbox = \"off\"";
    if let Some(path) = config.files().chain(config.folders()).find(|path| !sandbox.can_read(path))
    {
        let directories: Vec<_> =
            sandbox.folders().iter().map(|folder| folder.display().to_string()).collect();
        return Some(format!(
            "the sandbox does not allow reading {}, only files in {}: {remedy}",
            path.display(),
            if directories.is_empty() { "no directory".into() } else { directories.join(", ") },
        ));
    }
    let of_tokens = config.tokens.as_ref().and_then(TokenConfig::port);
    let of_tokens = of_tokens.map(|port| (port, "access.jwt_keys"));
    let of_lists = config.list_urls().map(|(_, url)| (url.port, "a list at a URL"));
    let mut ports = of_tokens.into_iter().chain(of_lists);
    if let Some((port, what)) = ports.find(|(port, _)| !sandbox.can_connect(*port)) {
        return Some(format!(
            "the sandbox does not allow connecting to port {port} for {what}: {remedy}"
        ));
    }
    let acme = config.acme.as_ref()?;
    let can = sandbox.can_write(&acme.cache)
        && sandbox.can_connect(acme.port())
        && acme.ca.as_ref().is_none_or(|ca| sandbox.can_read(ca));
    (!can).then(|| {
        format!(
            "the sandbox does not allow writing to {} or connecting to {}, because [tls.acme] was \
             different at startup: {remedy}",
            acme.cache.display(),
            acme.directory
        )
    })
}

/// Returns the directories of `files`, before and after following links. Directories, because
/// replacing a file creates a new one of the same name. Of files in the root directory, only the file
/// itself is returned.
fn directories<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    for file in files {
        let real = file.canonicalize().ok();
        for path in [std::path::absolute(file).ok(), real].into_iter().flatten() {
            let folder = match path.parent() {
                Some(folder) if folder.parent().is_some() => folder.to_owned(),
                _ => path,
            };
            if !directories.contains(&folder) {
                directories.push(folder);
            }
        }
    }
    directories
}
