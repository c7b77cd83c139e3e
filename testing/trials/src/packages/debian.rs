//! The Debian package: installed, upgraded with its swarms, removed and purged.

use super::guest::{Guest, Running};
use super::{URLS, find};
use crate::artifacts::Architecture;
use crate::command::{command, output, run};
use anyhow::{Result, ensure};
use harness::Directory;
use std::path::{Path, PathBuf};

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

/// Looks at the package by lintian, without tags that are about uploads to Debian.
pub(super) fn lint(folder: &Path, architecture: Architecture) -> Result<()> {
    let mut lintian =
        command(&["lintian", "--fail-on=error", "--suppress-tags", "bogus-mail-host"]);
    lintian.arg("--allow-root").arg(package(folder, architecture)?);
    run(lintian)
}

/// Installs and purges it where no service manager runs, as in a build of an image.
pub(super) fn check_offline(folder: &Path, architecture: Architecture) -> Result<()> {
    let guest = Guest::new("offline")?;
    let package = package(folder, architecture)?;
    guest.add(&package)?;
    guest.run_offline(
        "dpkg --install /packages/*.deb
        tidegate version
        test -d /var/lib/tidegate && id tidegate && test -L /etc/systemd/system/multi-user.target.wants/tidegate.service
        dpkg --remove tidegate
        test -d /var/lib/tidegate && test -f /etc/tidegate/tidegate.toml
        dpkg --purge tidegate",
    )?;
    is_purged(&guest.run_offline(LEFT)?)
}

/// Lists the paths that a purge must have removed.
const LEFT: &str = "
ls -d /var/lib/tidegate /etc/tidegate /etc/systemd/system/*/tidegate* /var/lib/systemd/deb-systemd-helper-*/*tidegate* \
    /usr/share/doc/tidegate 2>/dev/null || true
getent passwd tidegate || true
getent group tidegate || true";

fn is_purged(left: &str) -> Result<()> {
    ensure!(left.trim().is_empty(), "a purge leaves:\n{left}");
    Ok(())
}

/// Installs it, upgrades it under a peer, restarts, removes, installs again and purges it.
pub(super) fn check(folder: &Path, architecture: Architecture) -> Result<()> {
    let guest = Guest::new("booted")?;
    let directory = Directory::new()?;
    let package = package(folder, architecture)?;
    guest.add(&package)?;
    let older = directory.path("older.deb");
    repack(&package, "0.0.1", &older)?;
    guest.add(&older)?;
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let guest = guest.boot()?;
    guest.run("dpkg --install /packages/older.deb")?;
    serves(&guest)?;
    guest.run("test -s /usr/share/man/man1/tidegate.1.gz")?;
    upgrades(&guest, &format!("dpkg --install /packages/{name}"))?;
    guest.run("systemctl restart tidegate")?;
    has_peer(&guest, "after a restart")?;
    guest.run("systemctl stop tidegate && systemctl start tidegate.socket tidegate")?;
    guest.run(&format!("tidegate check {URLS}"))?;
    guest.run("systemctl stop tidegate.socket && dpkg --remove tidegate")?;
    guest.run("test -d /var/lib/tidegate && test -f /etc/tidegate/tidegate.toml")?;
    let active = guest.run("pidof tidegate || true")?;
    ensure!(active.trim().is_empty(), "the removed tracker runs: {active}");
    guest.run(&format!("dpkg --install /packages/{name}"))?;
    has_peer(&guest, "installed again")?;
    guest.run("dpkg --purge tidegate")?;
    is_purged(&guest.run(LEFT)?)
}

/// Checks that the service of an installed package serves, with the files and the user of the package.
pub(super) fn serves(guest: &Running) -> Result<()> {
    guest.wait("systemctl is-active tidegate && tidegate admin health")?;
    println!("{}", guest.run(&format!("tidegate check {URLS}"))?);
    println!(
        "{}",
        guest.run(
            "systemctl status --no-pager tidegate | head -n 12; systemctl is-enabled tidegate"
        )?
    );
    guest.run(
        "test \"$(ps -o user= -p $(systemctl show -p MainPID --value tidegate))\" = tidegate
        test \"$(stat -c %U:%a /var/lib/tidegate)\" = tidegate:700
        test -s /var/lib/tidegate/first-token
        systemd-analyze verify tidegate.service tidegate.socket
        tidegate config check --config /etc/tidegate/tidegate.toml || true
        mkdir -p /etc/systemd/system/tidegate.service.d
        ln -s /usr/share/tidegate/xdp.conf /etc/systemd/system/tidegate.service.d/
        systemd-analyze verify tidegate.service
        rm -r /etc/systemd/system/tidegate.service.d
        systemctl daemon-reload
        journalctl --unit tidegate | grep 'may use [0-9]* MiB of memory' | grep -v 'use [0-9]\\{9,\\} MiB'
        tidegate-import --help
        test -s /usr/share/bash-completion/completions/tidegate",
    )?;
    Ok(())
}

/// Installs the package over the older one by a command. Peers and the operator's configuration stay, and the tracker is
/// never away.
pub(super) fn upgrades(guest: &Running, install: &str) -> Result<()> {
    guest.run(&format!("tidegate announce --stay udp://127.0.0.1:6969/announce {HASH}"))?;
    guest.run("echo '# mine' >> /etc/tidegate/tidegate.toml")?;
    has_peer(guest, "before the upgrade")?;
    let pid = "systemctl show -p MainPID --value tidegate";
    let before = guest.run(pid)?;
    guest.run(install)?;
    let after = guest.run(pid)?;
    ensure!(before != after && after.trim() != "0", "process {before} became {after}");
    has_peer(guest, "after the upgrade")?;
    guest.run("grep -q '# mine' /etc/tidegate/tidegate.toml")?;
    println!("{}", guest.run("journalctl --no-pager --unit tidegate | tail -n 20")?);
    let restarts = guest.run("systemctl show -p NRestarts --value tidegate")?;
    ensure!(restarts.trim() == "0", "the upgrade restarted the unit: {restarts}");
    let exe = guest.run("readlink /proc/$(systemctl show -p MainPID --value tidegate)/exe")?;
    ensure!(exe.trim() == "/usr/bin/tidegate", "{exe} still runs");
    Ok(())
}

pub(super) fn has_peer(guest: &Running, when: &str) -> Result<()> {
    guest.wait("tidegate admin health")?;
    let scrape = format!("tidegate scrape --json udp://127.0.0.1:6969/announce {HASH}");
    let counts = guest.run(&scrape)?;
    ensure!(counts.contains("\"leechers\":1"), "{when}, the peer is gone: {counts}");
    Ok(())
}

fn package(folder: &Path, architecture: Architecture) -> Result<PathBuf> {
    find(folder, &format!("_{}.deb", architecture.debian))
}

/// Makes a package of the same files with another version.
pub(super) fn repack(package: &Path, version: &str, to: &Path) -> Result<()> {
    let directory = Directory::new()?;
    let files = directory.path("files");
    let mut unpack = command(&["dpkg-deb", "--raw-extract"]);
    unpack.arg(package).arg(&files);
    output(unpack)?;
    let expression = format!("s/^Version: .*/Version: {version}-1/");
    let mut edit = command(&["sed", "--in-place", &expression]);
    edit.arg(files.join("DEBIAN/control"));
    output(edit)?;
    let mut pack = command(&["dpkg-deb", "--root-owner-group", "-Znone", "--build"]);
    pack.arg(&files).arg(to);
    output(pack).map(drop)
}
