//! Installs what the tests need beyond a Rust toolchain.

use crate::command::{command, output, run};
use crate::dashboard;
use crate::debian;
use crate::venv::{API_TOOLS, CARGO_TOOLS, CLIENT_TOOLS, GENERATORS};
use crate::workspace::{root, target};
use anyhow::{Context, Result};
use harness::{nats, pebble};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of what comes from npm, pinned by `package-lock.json`: clients, and checks of the dashboard's scripts.
const NPM_FOLDERS: [&str; 2] = ["testing/clients/web", dashboard::FOLDER];

/// Checks and renders the Helm chart.
const HELM_VERSION: &str = "v3.22.0";
/// The version of mdBook, which makes the book of `docs/`.
const MDBOOK: &str = "0.5.4";

/// Installs what is missing: packages, as root or by sudo, npm's clients, pebble, the NATS server, Python
/// programs, and mdBook.
///
/// # Errors
///
/// Returns an error if something cannot be installed.
pub fn run_setup() -> Result<()> {
    debian::install_all()?;
    NPM_FOLDERS.into_iter().try_for_each(install_by_npm)?;
    install_pebble()?;
    install_nats()?;
    CARGO_TOOLS.install()?;
    API_TOOLS.install()?;
    CLIENT_TOOLS.install()?;
    GENERATORS.install()?;
    install_mdbook()?;
    Ok(())
}

/// Installs them unless what was installed last had the same lock file. No package's own scripts run:
/// those that want to build or download something can do without.
fn install_by_npm(folder: &str) -> Result<()> {
    let name = folder;
    let folder = root().join(folder);
    let lock = fs::read(folder.join("package-lock.json")).context("no package-lock.json")?;
    let installed = folder.join("node_modules/.installed-lock.json");
    if fs::read(&installed).is_ok_and(|old| old == lock) {
        println!("{name} has npm's packages");
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
    let modules = pebble::NAMES.map(|name| pebble::MODULE.replace("NAME", name));
    install_go(&pebble::folder(), &pebble::NAMES, &modules).context("pebble needs Go 1.24 or newer")
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

/// Returns the folder of mdBook, by version.
pub fn mdbook_folder() -> PathBuf {
    target().join("tools").join(format!("mdbook-{MDBOOK}"))
}

/// Compiles mdBook, with the search and without its server. A debug build takes a second for the book, and a
/// minute less to compile.
///
/// # Errors
///
/// Returns an error if it cannot be compiled.
pub fn install_mdbook() -> Result<()> {
    let folder = mdbook_folder();
    if folder.join("bin/mdbook").is_file() {
        println!("mdbook is here");
        return Ok(());
    }
    let (place, built) = (folder.display().to_string(), folder.join("build"));
    let words = ["cargo", "install", "--quiet", "--locked", "--debug", "--root", &place];
    let what = ["--no-default-features", "--features", "search", "--version", MDBOOK, "mdbook"];
    let mut cargo = command(&[&words[..], &what].concat());
    // A folder of its own: cargo locks that of the workspace.
    cargo.env("CARGO_TARGET_DIR", &built).env("CARGO_PROFILE_DEV_DEBUG", "0");
    run(cargo)?;
    Ok(fs::remove_dir_all(built)?)
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
