//! Packages for systems other than Debian: made, installed, upgraded with peers and removed by the package managers of
//! those systems, in a Debian system that has them.
//!
//! Programs, units, scripts and package managers are the real ones; the rest of Fedora or Arch Linux is missing. Their
//! packages are not in the databases, so `rpm` leaves dependencies out, and the hooks of pacman for systemd are run by
//! hand.

use super::guest::{Guest, Running};
use super::{debian, find, program};
use crate::artifacts::{Architecture, rpmbuild, version};
use crate::command::{command, output, run};
use anyhow::{Context, Result, ensure};
use harness::Directory;
use std::fs;
use std::path::Path;

/// A version that the release upgrades.
const OLDER: &str = "0.0.1";

/// A package manager and what it does with the package.
struct Manager {
    /// Installs the older package.
    install: String,
    /// Installs the package over it.
    upgrade: String,
    remove: &'static str,
    /// The configuration after the removal.
    kept: &'static str,
}

/// Checks the package for Fedora, RHEL and openSUSE.
pub(super) fn check_rpm(folder: &Path, architecture: Architecture) -> Result<()> {
    let package = find(folder, &format!(".{}.rpm", architecture.machine))?;
    let guest = Guest::new("rpm")?;
    guest.add(&package)?;
    let work = Directory::new()?;
    output(rpmbuild(
        OLDER,
        architecture.machine,
        program::unpack(folder, architecture)?.root(),
        work.root(),
    ))?;
    let older = format!("tidegate-{OLDER}-1.{}.rpm", architecture.machine);
    guest.add(&work.path("RPMS").join(architecture.machine).join(&older))?;
    // Debian's rpm wants to be asked twice.
    let rpm = "rpm --upgrade --force-debian --nodeps";
    check(
        guest,
        &Manager {
            install: format!("{rpm} /packages/{older}"),
            upgrade: format!("{rpm} /packages/{}", name(&package)?),
            remove: "rpm --erase --force-debian tidegate",
            kept: "/etc/tidegate/tidegate.toml.rpmsave",
        },
    )
}

/// Checks the package for Arch Linux: makes it from the PKGBUILD and the archive of the release.
pub(super) fn check_arch(folder: &Path, architecture: Architecture) -> Result<()> {
    let guest = Guest::new("arch")?;
    guest.add(&find(folder, "-aur.tar.gz")?)?;
    guest.add(&find(folder, &format!("-{}-linux.tar.gz", architecture.machine))?)?;
    let script = MAKE
        .replace("OLDER", OLDER)
        .replace("VERSION", &version()?)
        .replace("MACHINE", architecture.machine);
    println!("{}", guest.run_offline(&script)?);
    let made = |version: &str| {
        let file = format!("tidegate-bin-{version}-1-{}.pkg.tar.gz", architecture.machine);
        format!("pacman --noconfirm --upgrade /packages/{file}")
    };
    check(
        guest,
        &Manager {
            install: format!("{} && systemd-sysusers && systemctl daemon-reload", made(OLDER)),
            upgrade: made(&version()?),
            remove: "pacman --noconfirm --remove tidegate-bin",
            kept: "/etc/tidegate/tidegate.toml.pacsave",
        },
    )
}

/// Makes the package of the release, and one of an older version with the same files. makepkg refuses to be root's. Arch
/// Linux accepts local files without signatures, Debian's configuration of pacman does not say.
const MAKE: &str = "
echo 'LocalFileSigLevel = Optional' >> /etc/pacman.conf
adduser --system --group --quiet --home /build builder
cd /packages
tar --extract --file *-aur.tar.gz
build() { chown -R builder . && setpriv --reuid=builder --regid=builder --clear-groups env HOME=/build makepkg \"$@\"; }
build
build --printsrcinfo | grep 'pkgver = VERSION'
mkdir older && cd older
cp ../tidegate.install .
sed 's/^pkgver=.*/pkgver=OLDER/' ../PKGBUILD > PKGBUILD
mkdir tidegate-OLDER-MACHINE-linux
tar --extract --strip-components=1 --directory tidegate-OLDER-MACHINE-linux --file ../tidegate-VERSION-MACHINE-linux.tar.gz
tar --create --gzip --file tidegate-OLDER-MACHINE-linux.tar.gz tidegate-OLDER-MACHINE-linux
! build || { echo 'a wrong checksum was accepted'; exit 1; }
build --skipchecksums
cp *.pkg.tar.gz ..
";

/// Parses the recipes whose package managers are not here, or need servers that are not: Homebrew's formula and the files
/// for Nix.
pub(super) fn check_recipes(folder: &Path) -> Result<()> {
    let formula = find(folder, ".rb")?;
    let text = fs::read_to_string(&formula)?;
    ensure!(!text.contains("SHA256_OF"), "the formula lacks a checksum");
    let mut ruby = command(&["ruby", "-c"]);
    ruby.arg(formula);
    run(ruby)?;
    for file in ["flake.nix", "dist/nix/package.nix", "dist/nix/module.nix"] {
        output(command(&["nix-instantiate", "--parse", file]))?;
    }
    Ok(())
}

/// Installs the older package, starts it, upgrades it under a peer, and removes the package.
fn check(guest: Guest, manager: &Manager) -> Result<()> {
    let guest = guest.boot()?;
    guest.run(&manager.install)?;
    let active = guest.run("systemctl is-active tidegate || true")?;
    ensure!(active.trim() == "inactive", "the installation started the service: {active}");
    guest.run("systemctl enable --now tidegate")?;
    debian::serves(&guest)?;
    guest.run(
        "test -s /usr/share/man/man1/tidegate.1.gz && test -s /usr/share/licenses/tidegate/LICENSE",
    )?;
    debian::upgrades(&guest, &manager.upgrade)?;
    guest.run("systemctl restart tidegate")?;
    debian::has_peer(&guest, "after a restart")?;
    guest.run(manager.remove)?;
    is_removed(&guest, manager.kept)
}

/// Checks that processes and files are gone, but for state and the configuration that was changed.
fn is_removed(guest: &Running, kept: &str) -> Result<()> {
    guest.run(&format!("test -d /var/lib/tidegate && grep -q '# mine' {kept}"))?;
    let left = guest.run(
        "pidof tidegate || true
        ls -d /usr/bin/tidegate* /usr/lib/tidegate /usr/share/tidegate /usr/share/doc/tidegate \
            /usr/lib/systemd/system/tidegate* /etc/systemd/system/*/tidegate* 2>/dev/null || true",
    )?;
    ensure!(left.trim().is_empty(), "the removal leaves:\n{left}");
    Ok(())
}

fn name(path: &Path) -> Result<String> {
    Ok(path.file_name().context("no file name")?.to_string_lossy().into_owned())
}
