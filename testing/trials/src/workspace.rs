//! The folders of the workspace, and the programs that it builds.

use crate::command::{command, run};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the workspace root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns cargo's target folder.
pub fn target() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    // A relative path starts at cargo's working directory, which is the root.
    root().join(target)
}

/// The tracker under test, if it is not the one that the tests have built.
static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// Returns the tracker under test: what `TIDEGATE_BINARY` names, or the program that the tests of the
/// binary have built.
pub fn binary() -> PathBuf {
    let built = || target().join("debug/tidegate");
    let named = || std::env::var_os("TIDEGATE_BINARY").map_or_else(built, PathBuf::from);
    BINARY.get().cloned().unwrap_or_else(named)
}

/// Has [`binary`] return the release build.
///
/// # Errors
///
/// Returns an error if another one has been chosen.
pub fn test_release() -> Result<()> {
    BINARY.set(target().join("release/tidegate")).ok().context("the binary is set already")
}

/// Builds what [`binary`] returns, and the program of trials under load, unless `TIDEGATE_BINARY` names another.
///
/// # Errors
///
/// Returns an error if it cannot be built.
pub fn build() -> Result<()> {
    if std::env::var_os("TIDEGATE_BINARY").is_none() {
        let words = ["cargo", "build", "--quiet", "--locked", "--package", "tidegate"];
        run(command(&[words.as_slice(), &["--package", "tidegate-trials"]].concat()))?;
    }
    ensure!(binary().is_file(), "no {}", binary().display());
    Ok(())
}
