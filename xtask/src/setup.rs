//! Installs what the tests need beyond a Rust toolchain.

use crate::clients::{PEBBLE, pebble_folder};
use crate::command::{Tally, command, output, run};
use crate::foreign;
use crate::workspace::root;
use crate::{api, deny};
use anyhow::{Context, Result, bail};
use std::fs;

/// Debian packages, each with what needs it. Not pinned: a Debian release keeps one version of a
/// package and removes older builds, so a pinned version could soon not be installed. Everything
/// else that the tests install has an exact version: npm's clients and the Python packages by a
/// committed list, pebble by its tag, crates by `Cargo.lock`.
const PACKAGES: &[(&str, &str)] = &[
    ("aria2", "real-client tests"),
    ("transmission-cli", "real-client tests"),
    ("python3-libtorrent", "real-client tests"),
    ("haproxy", "real-client tests of clients behind a proxy"),
    ("chromium", "real-client tests of WebTorrent, tests of the dashboard"),
    ("prometheus", "tests of metrics, alarms and the Grafana dashboard"),
    ("curl", "tests of the binary: TLS, ACME"),
    ("openssl", "tests of the binary: TLS, ACME, and certificates for them"),
    ("iproute2", "addresses inside the namespaces of the real-client tests"),
    ("util-linux", "those namespaces: unshare, setpriv"),
];

/// Programs that many have from elsewhere, and the packages of those who do not.
const PROGRAMS: &[(&str, &str)] = &[("node", "nodejs"), ("npm", "npm")];

/// The clients from npm, pinned by `package-lock.json`.
const WEB_CLIENTS: &str = "testing/clients/web";

/// Installs what is missing: packages, as root or by sudo, npm's clients, pebble, schemathesis, and the foreign
/// target if it can be had.
pub(crate) fn run_setup() -> Result<Tally> {
    let packages = PACKAGES.iter().map(|(name, _)| *name).filter(|name| !is_installed(name));
    let programs = PROGRAMS.iter().filter(|(program, _)| !runs(program)).map(|(_, name)| *name);
    let missing: Vec<&str> = packages.chain(programs).collect();
    if missing.is_empty() {
        println!("all {} packages are here", PACKAGES.len() + PROGRAMS.len());
    } else {
        install(&missing)?;
    }
    install_web_clients()?;
    install_pebble()?;
    if !api::has_venv() {
        install(&["python3-venv"])?;
    }
    deny::install()?;
    api::install()?;
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
        install(&["golang-go"])?;
    }
    let programs = ["pebble", "pebble-challtestsrv"].map(|name| PEBBLE.replace("NAME", name));
    let mut go = command(&["go", "install", &programs[0], &programs[1]]);
    go.env("GOBIN", folder);
    run(go).context("pebble needs Go 1.24 or newer")?;
    Ok(())
}

fn runs(program: &str) -> bool {
    output(command(&[program, "--version"])).is_ok()
}

fn is_installed(package: &str) -> bool {
    let words = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package];
    output(command(&words)).is_ok_and(|status| status == "installed")
}

/// Installs those Debian packages that are not here yet.
pub(crate) fn install_packages(packages: &[&str]) -> Result<()> {
    let missing: Vec<_> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("install by hand: {}", packages.join(" "));
    if output(command(&["apt-get", "--version"])).is_err() {
        bail!("no apt-get here; {by_hand}");
    }
    let root = output(command(&["id", "-u"]))?.trim() == "0";
    let prefix: &[&str] = if root { &[] } else { &["sudo", "-n"] };
    let apt = |words: &[&str]| {
        let mut command = command(&[prefix, &["apt-get", "-qq"], words].concat());
        command.env("DEBIAN_FRONTEND", "noninteractive");
        run(command).with_context(|| by_hand.clone())
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_there_is_missing() {
        assert!(!is_installed("no-such-package"));
        assert!(!runs("no-such-program"));
        assert!(runs("cargo"));
    }
}
