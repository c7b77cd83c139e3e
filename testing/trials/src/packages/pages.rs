//! The pages of the book about installation: their commands run as they stand there.
//!
//! The walk-throughs of other pages have a stand-in for systemd, and a program that the package has not installed
//! (`app/tidegate/tests/end_to_end/walkthroughs.rs`). Here both are real. What a page leaves to the reader, such as a
//! version or another terminal, is replaced; what cannot run here is named with the reason.

use super::guest::Guest;
use super::podman::Podman;
use super::{debian, find};
use crate::artifacts::{Architecture, SUMS, version};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use harness::Directory;
use std::fs;
use std::path::Path;

/// A page, and what of it is not executed word for word.
#[derive(Debug)]
struct Page {
    /// Its path below `docs/install`.
    name: &'static str,
    /// Texts of its commands, and what is executed instead.
    replaced: &'static [(&'static str, &'static str)],
}

/// A version that is newer than every other.
const NEWER: &str = "999.0.0";

const DEBIAN: Page =
    Page { name: "debian.md", replaced: &[("./tidegate_NEWVERSION", "/newer/tidegate_999.0.0")] };

/// The reader starts the program in one terminal, and stops it before it becomes a service.
const BINARY: Page = Page {
    name: "binary.md",
    replaced: &[
        (
            "./tidegate  ",
            "./tidegate & foreground=$!; until ./tidegate admin health; do sleep 0.2; done; echo ",
        ),
        (
            "sudo ./install.sh                                      # the files",
            "kill $foreground; wait $foreground\nsudo ./install.sh #",
        ),
    ],
};

const INDEX: Page = Page { name: "index.md", replaced: &[] };

/// Readers need longer for the next command than the tracker for its start. A registry is a folder here. Some machines
/// allow fewer open files and processes than the compose file and Podman ask for, even to root.
const CONTAINER: Page = Page {
    name: "container.md",
    replaced: &[
        ("docker exec tidegate tidegate check", "serves tidegate; docker exec tidegate tidegate check"),
        (
            "docker compose --file tidegate-VERSION-compose.yaml up --detach",
            "docker stop tidegate
            limit=$(ulimit -Hn)
            [ $limit = unlimited ] || [ $limit -ge 1048576 ] || sed --in-place \"s/nofile: .*/{ nofile: $limit, nproc: 1024 }/\" *.yaml
            docker compose --file tidegate-VERSION-compose.yaml up --detach
            composed=$(podman ps --quiet --filter name=_tidegate_1)
            serves $composed
            docker exec $composed tidegate check udp://127.0.0.1:6969/announce http://127.0.0.1:6969/announce
            docker compose --file tidegate-VERSION-compose.yaml down
            docker start tidegate; serves tidegate",
        ),
        (
            "docker run …",
            "docker run --detach --name tidegate --network host --volume tidegate:/var/lib/tidegate tidegate:VERSION; serves tidegate; echo",
        ),
        ("docker://registry.example.org/tidegate:VERSION", "dir:copied"),
    ],
};

/// All pages of the folder. Not executed are those of Helm, which needs Kubernetes: [`super::chart`] renders the chart
/// with the values of the page; of other systems and of package managers that Debian lacks or that need their own
/// servers: [`super::foreign`] does with the packages what the pages for RPM and Arch Linux say; of the source, because a
/// release is built from it before all this; and of signatures, which is a walk-through. [`super::repository`] executes
/// the page about the repository, [`super::ansible`] the role of its page, [`super::compose`] the file of the page
/// about monitoring, two of whose images are in registries only.
#[cfg(test)]
const PAGES: &[&str] = &[
    DEBIAN.name,
    BINARY.name,
    INDEX.name,
    CONTAINER.name,
    "ansible.md",
    "arch.md",
    "compose.md",
    "helm.md",
    "homebrew.md",
    "nix.md",
    "other.md",
    "repository.md",
    "rpm.md",
    "source.md",
    "verify.md",
];

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
}

/// Returns the fenced blocks of a page. None is indented.
pub(super) fn blocks(name: &str) -> Result<Vec<Block>> {
    let path = root().join("docs/install").join(name);
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut lines = (1..).zip(page.lines());
    let mut blocks = Vec::new();
    while let Some((line, text)) = lines.next() {
        let Some(language) = text.strip_prefix("```") else { continue };
        let inside = lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```");
        let text = inside.fold(String::new(), |text, line| text + line + "\n");
        blocks.push(Block { line, language: language.to_owned(), text });
    }
    Ok(blocks)
}

impl Page {
    /// Returns the commands as one script, which prints each of them. Fails if the page lacks what is replaced.
    fn script(&self) -> Result<String> {
        let mut script = String::from("set -x\n");
        for Block { line, language, text } in blocks(self.name)? {
            if language == "sh" {
                script += &format!(": docs/install/{} line {line}\n{text}", self.name);
            }
        }
        for (from, to) in self.replaced {
            ensure!(script.contains(from), "docs/install/{} lacks `{from}`", self.name);
            script = script.replace(from, to);
        }
        Ok(script.replace("VERSION", &version()?))
    }
}

/// Executes the pages about Debian packages and the static program, each in a fresh system.
pub(super) fn check_systems(folder: &Path, architecture: Architecture) -> Result<()> {
    let guest = fresh("page-debian", folder, architecture, "_amd64.deb")?;
    let directory = Directory::new()?;
    let newer = directory.path(&format!("tidegate_{NEWER}-1_{}.deb", architecture.debian));
    debian::repack(&find(folder, &format!("_{}.deb", architecture.debian))?, NEWER, &newer)?;
    // The reader says yes.
    let yes = guest.path("etc/apt/apt.conf.d/90yes");
    fs::write(yes, "APT::Get::Assume-Yes \"true\";\n")?;
    fs::create_dir(guest.path("newer"))?;
    fs::copy(&newer, guest.path("newer").join(newer.file_name().context("no name")?))?;
    let running = guest.boot()?;
    let script = DEBIAN.script()?;
    let (installation, removal) = script.split_once("sudo apt remove").context("no removal")?;
    println!("{}", running.run(&format!("cd /packages\n{installation}"))?);
    let shown = running.run("dpkg-query --show tidegate; systemctl is-active tidegate")?;
    ensure!(shown.contains(NEWER) && shown.contains("\nactive"), "after the upgrade: {shown}");
    running.run(&format!("set -x\nsudo apt remove{removal}"))?;
    drop(running);

    let guest = fresh("page-binary", folder, architecture, "-x86_64-linux.tar.gz")?;
    let running = guest.boot()?;
    println!("{}", running.run(&format!("cd /packages\n{}", BINARY.script()?))?);
    running.wait("systemctl is-active tidegate && tidegate admin health")?;
    println!("{}", running.run(&format!("cd /packages\n{}", INDEX.script()?))?);
    Ok(())
}

/// Makes a system that has one file of the release, and the checksums.
fn fresh(name: &str, folder: &Path, architecture: Architecture, end: &str) -> Result<Guest> {
    let Architecture { debian, machine, .. } = architecture;
    let end = end.replace("amd64", debian).replace("x86_64", machine);
    let guest = Guest::new(name)?;
    guest.add(&find(folder, &end)?)?;
    guest.add(&folder.join(SUMS))?;
    Ok(guest)
}

/// Executes the page about containers by Podman.
pub(super) fn check_container(folder: &Path) -> Result<()> {
    let work = Directory::new()?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        std::os::unix::fs::symlink(entry.path(), work.path(&entry.file_name().to_string_lossy()))?;
    }
    let script = format!("{}docker rm --force --time=20 tidegate\n", CONTAINER.script()?);
    println!("{}", Podman::new()?.run(work.root(), &script.replace("VERSION", &version()?))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_known() {
        let entries = fs::read_dir(root().join("docs/install")).unwrap();
        for entry in entries {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(PAGES.contains(&name.as_str()), "docs/install/{name} is not executed");
        }
    }

    #[test]
    fn pages_have_what_is_replaced() {
        for page in [DEBIAN, BINARY, INDEX, CONTAINER] {
            let script = page.script().unwrap();
            assert!(script.contains("tidegate check udp://127.0.0.1:6969/announce"), "{script}");
            assert!(!script.contains('…') && !script.contains("VERSION"), "{script}");
            for block in blocks(page.name).unwrap() {
                assert!(["sh", "toml", "yaml"].contains(&block.language.as_str()), "{block:?}");
            }
        }
    }
}
