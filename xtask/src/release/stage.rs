//! Files beside the programs that several packages contain, and the archive of the static programs.

use super::{Architecture, PROGRAMS, Release, copy, licences};
use crate::archive;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use trials::command::{command, output, run};
use trials::workspace::root;

/// Files that are made for a release, in a folder: manual pages in `man`, completions, licences.
#[derive(Debug)]
pub(super) struct Texts {
    folder: PathBuf,
}

/// Shells whose completions packages install.
pub(super) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Returns the name of a program's script for a shell.
pub(super) fn completions(program: &str, shell: &str) -> String {
    match shell {
        "zsh" => format!("_{program}"),
        _ => format!("{program}.{shell}"),
    }
}

/// Returns the program and the shell of each script.
pub(super) fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROGRAMS.iter().flat_map(|program| SHELLS.map(|shell| (*program, shell)))
}

impl Texts {
    /// Makes the files, by the programs for this machine.
    pub(super) fn write(release: &Release) -> Result<Self> {
        let folder = release.stage("texts")?;
        let native = release.architectures.iter().find(|it| it.is_native());
        let native = *native.context("one target must be this machine's")?;
        let [tracker, importer] = ["tidegate", "tidegate-import"]
            .map(|it| release.program(native, it).display().to_string());
        let pages = folder.join("man");
        fs::create_dir(&pages)?;
        run(command(&[&tracker, "man", "--out", &pages.display().to_string()]))?;
        fs::write(pages.join("tidegate-import.1"), output(command(&[&importer, "--man"]))?)?;
        let scripts = folder.join("completions");
        fs::create_dir(&scripts)?;
        for shell in SHELLS {
            let script = output(command(&[&tracker, "completions", shell]))?;
            fs::write(scripts.join(completions("tidegate", shell)), script)?;
            let script = output(command(&[&importer, "--completions", shell]))?;
            fs::write(scripts.join(completions("tidegate-import", shell)), script)?;
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
    for name in PROGRAMS {
        copy(&release.program(architecture, name), &folder.join(name))?;
    }
    for (from, to) in FILES {
        copy(&root().join(from), &folder.join(to))?;
    }
    copy(&texts.licences(), &folder.join("THIRD-PARTY.txt"))?;
    texts.copy_pages(&folder.join("man"))?;
    for (program, shell) in scripts() {
        let script = completions(program, shell);
        copy(&texts.completions(&script), &folder.join("completions").join(script))?;
    }
    let file = release.out.join(format!("{name}.tar.gz"));
    archive::tar_gz(&stage, &name, &file, release.commit.epoch)
}
