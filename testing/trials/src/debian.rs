//! Installs Debian packages, as root or by sudo.

use crate::command::{command, is_root, output, run};
use anyhow::{Context, Result, bail};

/// Debian packages, each with what needs it. Not pinned: a Debian release keeps one version of a
/// package and removes older builds, so a pinned version could soon not be installed. Everything
/// else that the tests install has an exact version: npm's clients and the Python packages by a
/// committed list, pebble by its tag, crates by `Cargo.lock`.
const PACKAGES: &[(&str, &str)] = &[
    ("aria2", "real-client tests"),
    ("transmission-cli", "real-client tests"),
    ("python3-libtorrent", "real-client tests"),
    ("haproxy", "real-client tests of clients behind a proxy, walk-throughs"),
    ("nginx", "walk-throughs of the book"),
    ("caddy", "walk-throughs of the book"),
    ("opentracker", "walk-throughs of the book: migration"),
    ("chromium", "real-client tests of WebTorrent, tests of the dashboard"),
    ("prometheus", "tests of metrics, alarms and the Grafana dashboard"),
    ("libfaketime", "tests of restarts with another wall clock, and of the state of releases"),
    ("xz-utils", "the archives of the state of releases"),
    ("curl", "tests of the binary: TLS, ACME"),
    ("minisign", "signatures of releases, and the page of the book about them"),
    ("rpm", "packages of releases"),
    ("openssl", "tests of the binary: TLS, ACME, and certificates for them"),
    ("iproute2", "networks of namespaces: for real clients, and for tests of XDP"),
    ("ethtool", "those of XDP: what is left to drivers"),
    ("clang-14", "comparing the XDP program with its source"),
    ("util-linux", "those namespaces: unshare, setpriv"),
    ("mariadb-client-core", "tests of sites and their databases"),
    ("mariadb-server-core", "tests of sites and their databases"),
    ("busybox", "the backups of dist/compose"),
    ("php-cli", "walk-throughs of the book: sites"),
    ("php-sqlite3", "walk-throughs of the book: sites"),
    ("php-curl", "the API's client in PHP"),
    ("php-guzzlehttp-guzzle", "the API's client in PHP"),
    ("php-mbstring", "the API's client in PHP"),
    ("nftables", "checking the firewall of docs/operate/firewall.md"),
];

/// Programs that many have from elsewhere, and the packages of those who do not.
const PROGRAMS: &[(&str, &str)] = &[("node", "nodejs"), ("npm", "npm")];

/// Installs what is missing of all packages.
pub(crate) fn install_all() -> Result<()> {
    let packages = PACKAGES.iter().map(|(name, _)| *name).filter(|name| !is_installed(name));
    let runs = |program: &str| output(command(&[program, "--version"])).is_ok();
    let programs = PROGRAMS.iter().filter(|(program, _)| !runs(program)).map(|(_, name)| *name);
    let missing: Vec<&str> = packages.chain(programs).collect();
    if missing.is_empty() {
        println!("all {} packages are here", PACKAGES.len() + PROGRAMS.len());
        return Ok(());
    }
    install(&missing)
}

/// Installs those of these packages that are missing.
///
/// # Errors
///
/// If apt fails.
pub fn install_missing(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn is_installed(package: &str) -> bool {
    let words = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package];
    output(command(&words)).is_ok_and(|status| status == "installed")
}

/// Has apt wait for another installation that runs, seconds.
const WAIT: &str = "-oDPkg::Lock::Timeout=300";

/// Installs packages.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("install by hand: {}", packages.join(" "));
    if output(command(&["apt-get", "--version"])).is_err() {
        bail!("no apt-get here; {by_hand}");
    }
    let prefix: &[&str] = if is_root() { &[] } else { &["sudo", "-n"] };
    let apt = |words: &[&str]| {
        let mut command = command(&[prefix, &["apt-get", "-qq", WAIT], words].concat());
        command.env("DEBIAN_FRONTEND", "noninteractive");
        run(command).with_context(|| by_hand.clone())
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())?;
    Ok(())
}
