//! Installs what the tests need beyond a Rust toolchain.

use crate::clients::{PEBBLE, pebble_folder};
use crate::command::{Tally, command, output, run};
use crate::debian;
use crate::foreign;
use crate::venv::{API_TOOLS, CARGO_TOOLS};
use crate::workspace::{root, target};
use anyhow::{Context, Result};
use harness::nats;
use std::fs;
use std::path::{Path, PathBuf};

/// The clients from npm, pinned by `package-lock.json`.
const WEB_CLIENTS: &str = "testing/clients/web";

/// Checks and renders the Helm chart.
const HELM_VERSION: &str = "v3.22.0";

/// Installs what is missing: packages, as root or by sudo, npm's clients, pebble, the NATS server, Python
/// programs, and the foreign target if it can be had.
pub(crate) fn run_setup() -> Result<Tally> {
    debian::install_all()?;
    install_web_clients()?;
    install_pebble()?;
    install_nats()?;
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

/// Builds the ACME server, and the DNS server that belongs to it.
fn install_pebble() -> Result<()> {
    let folder = pebble_folder();
    let programs = ["pebble", "pebble-challtestsrv"];
    let modules = programs.map(|name| PEBBLE.replace("NAME", name));
    install_go(&folder, &programs, &modules).context("pebble needs Go 1.24 or newer")
}

/// Builds the server that clusters of trackers are tested with.
fn install_nats() -> Result<()> {
    install_go(&nats::folder(), &["nats-server"], &[nats::MODULE.to_owned()])
        .context("nats-server needs Go 1.26, or 1.21, which fetches that")
}

/// Builds helm, unless it is there, and returns its path. Not a part of the setup: only charts need it.
pub(crate) fn install_helm() -> Result<PathBuf> {
    let folder = target().join("tools").join(format!("helm-{HELM_VERSION}"));
    let module = format!("helm.sh/helm/v3/cmd/helm@{HELM_VERSION}");
    install_go(&folder, &["helm"], &[module]).context("helm needs a recent Go")?;
    Ok(folder.join("helm"))
}

/// Builds programs from Go's module proxy, unless they are in `folder`, which has their version in its name.
fn install_go(folder: &Path, programs: &[&str], modules: &[String]) -> Result<()> {
    if programs.iter().all(|name| folder.join(name).is_file()) {
        println!("{} is here", programs[0]);
        return Ok(());
    }
    if output(command(&["go", "version"])).is_err() {
        debian::install(&["golang-go"])?;
    }
    let mut go = command(&["go", "install"]);
    go.args(modules).env("GOBIN", folder);
    run(go)?;
    Ok(())
}
