//! `cargo xtask packages`: installs each package of a release in a fresh container, as its user would, and checks the
//! tracker there. Needs root, on Debian.

mod ansible;
mod chart;
mod compose;
mod debian;
mod foreign;
mod guest;
mod pages;
mod podman;
mod program;
mod repository;

use crate::artifacts::{ARCHITECTURES, Architecture, SUMS};
use crate::command::{command, run as run_command};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Debian packages that these tests need besides those of all tests.
const TOOLS: &[&str] = &[
    "apt-utils",
    "nix-bin",
    "rpm",
    "ruby",
    "debootstrap",
    "systemd-container",
    "lintian",
    "podman",
    "crun",
    "skopeo",
    "qemu-user-static",
    "libplist-utils",
];

/// Announce URLs of a tracker with the configuration of packages.
const URLS: &str =
    "udp://127.0.0.1:6969/announce http://127.0.0.1:6969/announce ws://127.0.0.1:6969/";

/// Tests the packages in `folder`, by the tests whose names contain one of `names`, or by all if there are none.
///
/// # Errors
///
/// Returns an error if the files are not those of a release.
pub fn run(folder: &Path, names: &[&str]) -> Result<()> {
    crate::debian::install_missing(TOOLS)?;
    let mut sums = command(&["sha256sum", "--check", "--strict", "--quiet", SUMS]);
    sums.current_dir(folder);
    run_command(sums).context("the files are not those of the release")?;
    let mut failed = Vec::new();
    let mut test = |name: &str, check: &dyn Fn() -> Result<()>| {
        if !names.is_empty() && !names.iter().any(|it| name.contains(it)) {
            return;
        }
        let result = check();
        println!("== {name}: {}", if result.is_ok() { "ok" } else { "FAILED" });
        if let Err(error) = result {
            println!("{error:#}");
            failed.push(name.to_owned());
        }
    };
    test("chart", &|| chart::check(folder));
    test("recipes", &|| foreign::check_recipes(folder));
    for architecture in built(folder)? {
        let machine = architecture.machine;
        test(&format!("static program, {machine}"), &|| program::check(folder, architecture));
        test(&format!("lintian, {machine}"), &|| debian::lint(folder, architecture));
        if architecture.is_native() {
            test("Debian package, without systemd", &|| {
                debian::check_offline(folder, architecture)
            });
            test("Debian package", &|| debian::check(folder, architecture));
            test("RPM package", &|| foreign::check_rpm(folder, architecture));
            test("package for Arch Linux", &|| foreign::check_arch(folder, architecture));
            test("apt repository", &|| repository::check(folder, architecture));
            test("Ansible role", &|| ansible::check(folder, architecture));
            test("compose file with monitoring", &|| compose::check(folder, architecture));
            test("pages about systems", &|| pages::check_systems(folder, architecture));
            test("page about containers", &|| pages::check_container(folder));
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the architectures that the release has.
fn built(folder: &Path) -> Result<Vec<Architecture>> {
    let has = |it: &&Architecture| find(folder, &format!("_{}.deb", it.debian)).is_ok();
    let built: Vec<_> = ARCHITECTURES.iter().filter(has).copied().collect();
    anyhow::ensure!(!built.is_empty(), "no packages in {}", folder.display());
    Ok(built)
}

/// Returns the file in `folder` whose name ends with `end`.
fn find(folder: &Path, end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.with_context(|| format!("no *{end} in {}", folder.display()))
}
