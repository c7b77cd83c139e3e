//! Files beside the program that several packages contain, and the archive of the static program.

use super::{Architecture, Release, archive, copy, licences};
use crate::command::{command, output, run};
use crate::workspace::root;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Files that are made for a release, in a folder: manual pages in `man`, completions, licences.
#[derive(Debug)]
pub(super) struct Texts {
    folder: PathBuf,
}

/// Shells whose completions packages install, and the names of the scripts.
pub(super) const COMPLETIONS: &[(&str, &str)] =
    &[("bash", "tidegate.bash"), ("zsh", "_tidegate"), ("fish", "tidegate.fish")];

impl Texts {
    /// Makes the files, by the program for this machine.
    pub(super) fn write(release: &Release) -> Result<Self> {
        let folder = release.stage("texts")?;
        let native = release.architectures.iter().find(|it| it.is_native());
        let program = release.program(*native.context("one target must be this machine's")?);
        let program = program.display().to_string();
        let pages = folder.join("man");
        fs::create_dir(&pages)?;
        run(command(&[&program, "man", "--out", &pages.display().to_string()]))?;
        fs::create_dir(folder.join("completions"))?;
        for (shell, name) in COMPLETIONS {
            let script = output(command(&[&program, "completions", shell]))?;
            fs::write(folder.join("completions").join(name), script)?;
        }
        fs::write(folder.join("THIRD-PARTY.txt"), licences::texts()?)?;
        Ok(Self { folder })
    }

    pub(super) fn licences(&self) -> PathBuf {
        self.folder.join("THIRD-PARTY.txt")
    }

    pub(super) fn completions(&self, name: &str) -> PathBuf {
        self.folder.join("completions").join(name)
    }

    /// Copies the manual pages.
    pub(super) fn copy_pages(&self, to: &Path) -> Result<Vec<PathBuf>> {
        let mut pages = Vec::new();
        for entry in fs::read_dir(self.folder.join("man"))? {
            let entry = entry?;
            let page = to.join(entry.file_name());
            copy(&entry.path(), &page)?;
            pages.push(page);
        }
        pages.sort();
        Ok(pages)
    }
}

/// Files of the workspace in the archive of the static program, and their names there.
const FILES: &[(&str, &str)] = &[
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("dist/tidegate.toml", "tidegate.toml"),
    ("dist/tidegate.service", "systemd/tidegate.service"),
    ("dist/tidegate.socket", "systemd/tidegate.socket"),
    ("dist/tidegate-xdp.conf", "systemd/tidegate-xdp.conf"),
    ("dist/cluster/cluster.conf", "systemd/cluster.conf"),
    ("dist/prometheus/alerts.yml", "prometheus/alerts.yml"),
    ("dist/grafana/tidegate.json", "grafana/tidegate.json"),
];

/// Packs `tidegate-VERSION-MACHINE-linux.tar.gz`.
pub(super) fn archive(release: &Release, architecture: Architecture, texts: &Texts) -> Result<()> {
    let name = format!("tidegate-{}-{}-linux", release.version, architecture.machine);
    let stage = release.stage("archive")?;
    let folder = stage.join(&name);
    copy(&release.program(architecture), &folder.join("tidegate"))?;
    for (from, to) in FILES {
        copy(&root().join(from), &folder.join(to))?;
    }
    copy(&texts.licences(), &folder.join("THIRD-PARTY.txt"))?;
    texts.copy_pages(&folder.join("man"))?;
    for (_, script) in COMPLETIONS {
        copy(&texts.completions(script), &folder.join("completions").join(script))?;
    }
    let file = release.out.join(format!("{name}.tar.gz"));
    archive::tar_gz(&stage, &name, &file, release.commit.epoch)
}
