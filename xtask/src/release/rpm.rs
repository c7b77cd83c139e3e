//! RPM packages of the static programs.

use super::{Architecture, Release};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use trials::artifacts::rpmbuild;
use trials::command::run;

/// Packs `tidegate-VERSION-1.MACHINE.rpm` of the files of the archive.
pub(super) fn package(release: &Release, architecture: Architecture, files: &Path) -> Result<()> {
    let stage = release.stage("rpm")?;
    let machine = architecture.machine;
    let mut build = rpmbuild(&release.version, machine, files, &stage);
    build.env("SOURCE_DATE_EPOCH", release.commit.epoch.to_string());
    run(build).context("cannot build the package (Debian's package is rpm)")?;
    let name = format!("tidegate-{}-1.{machine}.rpm", release.version);
    fs::copy(stage.join("RPMS").join(machine).join(&name), release.out.join(name))?;
    Ok(())
}
