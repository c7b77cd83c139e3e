//! The archive of the static programs, and the files in it. Its `install.sh` makes the files of other packages.

use super::{Architecture, PROGRAMS, Release, copy, licences};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use trials::archive;
use trials::command::{command, output, run};
use trials::workspace::root;

/// Files that are made for a release, in a folder: manual pages in `man`, completions, licences.
#[derive(Debug)]
pub(super) struct Texts {
    folder: PathBuf,
}

/// Shells that the archive has completions for.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Returns the name of a program's script for a shell.
fn completions(program: &str, shell: &str) -> String {
    match shell {
        "zsh" => format!("_{program}"),
        _ => format!("{program}.{shell}"),
    }
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
}

/// Files of the workspace in the archive of the static program, and their names there.
const FILES: &[(&str, &str)] = &[
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("dist/install.sh", "install.sh"),
    ("dist/tidegate.toml", "tidegate.toml"),
    ("dist/hand-over", "systemd/hand-over"),
    ("dist/tidegate.service", "systemd/tidegate.service"),
    ("dist/tidegate.socket", "systemd/tidegate.socket"),
    ("dist/tidegate.sysusers", "systemd/tidegate.sysusers"),
    ("dist/tidegate-xdp.conf", "systemd/tidegate-xdp.conf"),
    ("dist/cluster/cluster.conf", "systemd/cluster.conf"),
    ("dist/prometheus/alerts.yml", "prometheus/alerts.yml"),
    ("dist/grafana/tidegate.json", "grafana/tidegate.json"),
];

/// Packs `tidegate-VERSION-MACHINE-linux.tar.gz`, and returns the folder with its files.
pub(super) fn archive(
    release: &Release,
    architecture: Architecture,
    texts: &Texts,
) -> Result<PathBuf> {
    let name = format!("tidegate-{}-{}-linux", release.version, architecture.machine);
    let stage = release.stage("archive")?;
    let folder = stage.join(&name);
    for program in PROGRAMS {
        copy(&release.program(architecture, program), &folder.join(program))?;
    }
    for (from, to) in FILES {
        copy(&root().join(from), &folder.join(to))?;
    }
    let mut copy = command(&["cp", "--recursive"]);
    copy.arg(texts.folder.join(".")).arg(&folder);
    output(copy)?;
    let file = release.out.join(format!("{name}.tar.gz"));
    archive::tar_gz(&stage, &name, &file, release.commit.epoch)?;
    Ok(folder)
}

/// Installs the files of the archive below `to`.
pub(super) fn install(files: &Path, to: &Path, zsh_completions: &str) -> Result<()> {
    let mut install = std::process::Command::new(files.join("install.sh"));
    install.arg(to).env("ZSH_COMPLETIONS", zsh_completions);
    output(install).map(drop)
}
