//! `cargo xtask release`: everything that is published of a version, made from one commit.
//!
//! The same commit gives the same bytes on every machine with the same tools: paths are replaced, times are the
//! commit's, and archives are sorted. `--verify` builds twice, in two target folders, and compares. `--key` signs the
//! checksums.

mod debian;
mod dependencies;
mod image;
mod licences;
mod program;
mod recipes;
mod repository;
mod rpm;
mod sbom;
mod stage;
mod trust;

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use trials::archive;
use trials::artifacts::{ARCHITECTURES, Architecture, SUMS, version};
use trials::command::{command, output, run};
use trials::workspace::{root, target};

pub(crate) use licences::{check as check_licences, write as write_licences};
pub(crate) use repository::add as add_to_repository;

/// The programs that packages install. Each is a package of the workspace, too.
const PROGRAMS: &[&str] = &["tidegate", "tidegate-import"];

/// The commit that is released.
#[derive(Debug)]
struct Commit {
    id: String,
    /// As in 2026-11-23T01:02:03Z.
    date: String,
    /// Seconds since 1970: the time of all files.
    epoch: u64,
}

/// A release that is being made.
#[derive(Debug)]
struct Release {
    version: String,
    commit: Commit,
    architectures: Vec<Architecture>,
    /// The folder of the files that are published.
    out: PathBuf,
    /// Cargo's target folder, and a place for what goes into packages.
    work: PathBuf,
}

const USAGE: &str = "expected `release [--target TARGET]... [--out DIR] [--key FILE] [--verify]`";

/// Runs the task with the arguments of its user.
pub(crate) fn run_task(words: &[&str]) -> Result<()> {
    let mut architectures = Vec::new();
    let (mut out, mut key, mut verify) = (None, None, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--target" => {
                let name = words.next().context(USAGE)?;
                let known = ARCHITECTURES.iter().find(|it| it.target == *name);
                architectures.push(*known.with_context(|| format!("no releases for {name}"))?);
            }
            "--out" => out = Some(root().join(words.next().context(USAGE)?)),
            "--key" => key = Some(root().join(words.next().context(USAGE)?)),
            "--verify" => verify = true,
            _ => bail!(USAGE),
        }
    }
    if architectures.is_empty() {
        architectures = ARCHITECTURES.to_vec();
    }
    let commit = clean_commit()?;
    let version = version()?;
    check_version(&version)?;
    let out = out.unwrap_or_else(|| target().join(format!("release-{version}")));
    let release = Release { version, commit, architectures, out, work: target().join("dist-1") };
    release.build()?;
    if verify {
        release.verify()?;
    }
    if let Some(key) = key {
        let comment = format!("tidegate {} {}", release.version, release.commit.id);
        trust::sign(&release.out, &key, &comment)?;
    }
    println!("{}", fs::read_to_string(release.out.join(SUMS))?);
    Ok(())
}

/// Checks that the files that name the version name this one.
fn check_version(version: &str) -> Result<()> {
    let image = format!("image: tidegate:{version}");
    let lines = [
        ("dist/compose/compose.yaml", image.clone()),
        ("dist/compose/monitored/compose.yaml", image.clone()),
        ("dist/cluster/compose.yaml", image),
        ("dist/helm/tidegate/Chart.yaml", format!("version: {version}")),
        ("dist/helm/tidegate/Chart.yaml", format!("appVersion: \"{version}\"")),
        ("CHANGELOG.md", format!("## {version}")),
    ];
    for (file, line) in lines {
        let text = fs::read_to_string(root().join(file)).context(file)?;
        ensure!(text.lines().any(|it| it.trim() == line), "{file} lacks the line `{line}`");
    }
    Ok(())
}

/// Returns the folder that releases of this version are written to unless the user names another.
pub(crate) fn default_out() -> Result<PathBuf> {
    Ok(target().join(format!("release-{}", version()?)))
}

/// Returns the commit that is checked out. Fails if files differ from it.
fn clean_commit() -> Result<Commit> {
    let changes = output(command(&["git", "status", "--porcelain"]))?;
    ensure!(
        changes.is_empty(),
        "a release is made from a commit, but these files differ:\n{changes}"
    );
    let words = ["git", "show", "--no-patch", "--format=%H %ct %cd"];
    let mut show = command(&[&words[..], &["--date=format-local:%Y-%m-%dT%H:%M:%SZ"]].concat());
    show.env("TZ", "UTC");
    let shown = output(show)?;
    let mut parts = shown.split_whitespace().map(str::to_owned);
    let mut part = || parts.next().context("git says nothing about the commit");
    let (id, epoch, date) = (part()?, part()?, part()?);
    Ok(Commit { id, date, epoch: epoch.parse()? })
}

impl Release {
    /// Builds and packs everything into an empty folder.
    fn build(&self) -> Result<()> {
        fs::create_dir_all(&self.work)?;
        archive::recreate(&self.out)?;
        for architecture in &self.architectures {
            program::build(self, *architecture)?;
        }
        let texts = stage::Texts::write(self)?;
        for architecture in &self.architectures {
            let files = stage::archive(self, *architecture, &texts)?;
            debian::package(self, *architecture, &files)?;
            rpm::package(self, *architecture, &files)?;
        }
        recipes::write_source(self)?;
        recipes::write(self)?;
        image::write(self)?;
        self.compose()?;
        self.chart()?;
        sbom::write(self)?;
        fs::copy(
            texts.licences(),
            self.out.join(format!("tidegate-{}-THIRD-PARTY.txt", self.version)),
        )?;
        trust::write_provenance(self)?;
        trust::write_sums(&self.out)
    }

    /// Copies the compose file.
    fn compose(&self) -> Result<()> {
        let to = self.out.join(format!("tidegate-{}-compose.yaml", self.version));
        copy(&root().join("dist/compose/compose.yaml"), &to)
    }

    /// Packs the Helm chart, as `helm package` does but with the commit's time.
    fn chart(&self) -> Result<()> {
        let file = self.out.join(format!("tidegate-{}.helm.tgz", self.version));
        archive::tar_gz(&root().join("dist/helm"), "tidegate", &file, self.commit.epoch)
    }

    /// Builds everything a second time in another folder, and compares.
    fn verify(&self) -> Result<()> {
        let again = Self {
            version: self.version.clone(),
            commit: clean_commit()?,
            architectures: self.architectures.clone(),
            out: target().join("release-again"),
            work: target().join("dist-2").join("elsewhere"),
        };
        again.build()?;
        let mut check = command(&["sha256sum", "--check", "--strict"]);
        check.arg(self.out.join(SUMS)).current_dir(&again.out);
        run(check).context("the second build differs from the first")
    }

    /// Returns an empty folder for what is packed.
    fn stage(&self, name: &str) -> Result<PathBuf> {
        let folder = self.work.join("stage").join(name);
        archive::recreate(&folder)?;
        Ok(folder)
    }

    /// Returns one of [`PROGRAMS`] for an architecture.
    fn program(&self, architecture: Architecture, name: &str) -> PathBuf {
        self.work.join(architecture.target).join("dist").join(name)
    }
}

/// Copies a file, and creates its folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_the_version_of_the_workspace() {
        check_version(&version().unwrap()).unwrap();
        assert!(check_version("0.0.0").is_err());
    }
}
