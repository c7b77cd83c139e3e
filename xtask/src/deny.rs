//! Checks dependencies by cargo-deny, as `deny.toml` describes.

use crate::command::{Tally, command, output, run};
use crate::workspace::root;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Pinned, so that a new release does not change what CI checks.
const VERSION: &str = "0.20.2";

/// Checks bans, licenses and sources. Installs cargo-deny first if this version is missing, which takes
/// a few minutes. Advisories are left out: they need the network and change by the day.
pub(crate) fn check() -> Result<Tally> {
    install()?;
    let mut deny = command(&["cargo", "deny", "--locked", "check", "--hide-inclusion-graph"]);
    deny.args(["bans", "licenses", "sources"]);
    // cargo finds its subcommands by PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder().join("bin")).chain(std::env::split_paths(&path));
    deny.env("PATH", std::env::join_paths(folders)?);
    run(deny)
}

/// Installs cargo-deny below the target folder, unless it is there.
pub(crate) fn install() -> Result<()> {
    let folder = folder();
    let program = folder.join("bin/cargo-deny");
    let installed = program.to_str().and_then(|path| output(command(&[path, "--version"])).ok());
    if installed.is_some_and(|text| text.trim() == format!("cargo-deny {VERSION}")) {
        return Ok(());
    }
    let mut cargo = command(&["cargo", "install", "--quiet", "--locked", "--version", VERSION]);
    cargo.args(["cargo-deny", "--root"]).arg(&folder);
    run(cargo).context("cannot install cargo-deny")?;
    Ok(())
}

fn folder() -> PathBuf {
    root().join("target/cargo-deny")
}
