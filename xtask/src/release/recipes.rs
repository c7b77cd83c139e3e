//! The source archive, and recipes by which package managers build or fetch a release: a PKGBUILD for Arch Linux and a
//! formula for Homebrew, with version and checksums.

use super::Release;
use anyhow::Result;
use std::fs;
use std::path::Path;
use trials::archive;
use trials::command::{command, output};
use trials::workspace::root;

/// Writes `tidegate-VERSION-source.tar.gz`: the files of the commit.
pub(super) fn write_source(release: &Release) -> Result<()> {
    let name = format!("tidegate-{}", release.version);
    let tar = release.out.join(format!("{name}-source.tar"));
    let mut git = command(&["git", "archive", "--format=tar", &format!("--prefix={name}/")]);
    git.arg("--output").arg(&tar).arg(&release.commit.id);
    output(git)?;
    archive::gzip(&[&tar])
}

/// Writes `tidegate-VERSION-aur.tar.gz` and `tidegate-VERSION.rb`. The archives that they name must be there.
pub(super) fn write(release: &Release) -> Result<()> {
    let name = format!("tidegate-{}", release.version);
    let folder = release.stage("recipes")?;
    fill(release, "dist/arch/PKGBUILD", &folder.join("PKGBUILD"))?;
    fs::copy(root().join("dist/arch/tidegate.install"), folder.join("tidegate.install"))?;
    let file = release.out.join(format!("{name}-aur.tar.gz"));
    archive::tar_gz(&folder, ".", &file, release.commit.epoch)?;
    fill(release, "dist/homebrew/tidegate.rb", &release.out.join(format!("{name}.rb")))
}

/// Copies a recipe with the version and the checksums of the archives. Those that the release lacks stay marks.
fn fill(release: &Release, from: &str, to: &Path) -> Result<()> {
    let mut text = fs::read_to_string(root().join(from))?.replace("VERSION", &release.version);
    let machines = release.architectures.iter().map(|it| format!("{}-linux", it.machine));
    for archive in machines.chain(["source".into()]) {
        let file = format!("tidegate-{}-{archive}.tar.gz", release.version);
        let mark = format!("SHA256_OF_{}", archive.trim_end_matches("-linux"));
        text = text.replace(&mark, &archive::sha256(&release.out.join(file))?);
    }
    Ok(fs::write(to, text)?)
}
