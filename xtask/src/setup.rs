//! Installs what the tests need beyond a Rust toolchain.

use crate::clients::{PEBBLE, pebble_folder};
use crate::command::{Tally, command, output, run};
use crate::debian;
use crate::foreign;
use crate::venv::{API_TOOLS, CARGO_TOOLS};
use crate::workspace::root;
use anyhow::{Context, Result};
use std::fs;

/// The clients from npm, pinned by `package-lock.json`.
const WEB_CLIENTS: &str = "testing/clients/web";

/// Installs what is missing: packages, as root or by sudo, npm's clients, pebble, Python programs, and the
/// foreign target if it can be had.
pub(crate) fn run_setup() -> Result<Tally> {
    debian::install_all()?;
    install_web_clients()?;
    install_pebble()?;
    CARGO_TOOLS.install()?;
    API_TOOLS.install()?;
    foreign::add_target();
    Ok(Tally::ONE)
}

/// Installs them unless what was installed last had the same lock file. No package's own scripts run:
/// those that want to build or download something can do without.
fn install_web_clients() -> Result<()> {
    let folder = root().join(WEB_CLIENTS);
    let lock = fs::read(folder.join("package-lock.json")).context("no package-lock.json")?;
    let installed = folder.join("node_modules/.installed-lock.json");
    if fs::read(&installed).is_ok_and(|old| old == lock) {
        println!("npm's clients are here");
        return Ok(());
    }
    let mut npm = command(&["npm", "ci", "--ignore-scripts"]);
    npm.current_dir(folder);
    run(npm)?;
    fs::write(installed, lock)?;
    Ok(())
}

/// Builds the ACME server, and the DNS server that belongs to it, from Go's module proxy.
fn install_pebble() -> Result<()> {
    let folder = pebble_folder();
    if folder.join("pebble-challtestsrv").is_file() && folder.join("pebble").is_file() {
        println!("pebble is here");
        return Ok(());
    }
    if output(command(&["go", "version"])).is_err() {
        debian::install(&["golang-go"])?;
    }
    let programs = ["pebble", "pebble-challtestsrv"].map(|name| PEBBLE.replace("NAME", name));
    let mut go = command(&["go", "install", &programs[0], &programs[1]]);
    go.env("GOBIN", folder);
    run(go).context("pebble needs Go 1.24 or newer")?;
    Ok(())
}
