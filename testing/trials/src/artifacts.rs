//! The parts of a release: names that those who make packages and those who test them share.

use crate::command::command;
use crate::workspace::root;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// An architecture that releases are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Rust's target.
    pub target: &'static str,
    /// The name in Debian and in images.
    pub debian: &'static str,
    /// As `uname -m` and Rust name it.
    pub machine: &'static str,
}

/// All of them.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture { target: "x86_64-unknown-linux-musl", debian: "amd64", machine: "x86_64" },
    Architecture { target: "aarch64-unknown-linux-musl", debian: "arm64", machine: "aarch64" },
];

impl Architecture {
    /// Returns true if this machine runs its programs.
    pub fn is_native(self) -> bool {
        self.machine == std::env::consts::ARCH
    }
}

/// The file with the checksums of all others.
pub const SUMS: &str = "SHA256SUMS";

/// Returns the version of the workspace.
///
/// # Errors
///
/// Returns an error if `Cargo.toml` has none.
pub fn version() -> Result<String> {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml"))?.parse()?;
    let version = manifest.get("workspace").and_then(|it| it.get("package")?.get("version"));
    Ok(version.and_then(|it| it.as_str()).context("no workspace.package.version")?.to_owned())
}

/// Returns the command that makes an RPM package of a version and a machine's name, of the files of a release's archive.
/// The package is in `work/RPMS`.
pub fn rpmbuild(version: &str, machine: &str, files: &Path, work: &Path) -> Command {
    let target = format!("{machine}-linux");
    let mut rpmbuild = command(&["rpmbuild", "-bb", "--quiet", "--nodeps", "--target", &target]);
    let definitions = [
        ("_topdir", work.display().to_string()),
        ("release_version", version.to_owned()),
        ("archive_folder", files.display().to_string()),
        ("dist_folder", root().join("dist").display().to_string()),
    ];
    for (name, value) in definitions {
        rpmbuild.args(["--define", &format!("{name} {value}")]);
    }
    rpmbuild.arg(root().join("dist/rpm/tidegate.spec"));
    rpmbuild
}
