//! The repository for apt: made of two releases, served by a web server, and used as the page of the book says.

use super::guest::Guest;
use super::{debian, find, pages};
use crate::artifacts::{Architecture, SUMS, version};
use crate::command::{command, output};
use anyhow::{Result, bail, ensure};
use harness::Directory;
use std::fs;
use std::path::Path;

const OLDER: &str = "0.0.1";
const KEY: &str = "packages@example.org";

/// Installs an older version from the repository, upgrades it when a release is added, and removes it. Changed lists are
/// refused.
pub(super) fn check(folder: &Path, architecture: Architecture) -> Result<()> {
    let guest = Guest::new("repository")?;
    let (older, keys) = (Directory::new()?, Directory::new()?);
    let name = format!("tidegate_{OLDER}-1_{}.deb", architecture.debian);
    let package = find(folder, &format!("_{}.deb", architecture.debian))?;
    debian::repack(&package, OLDER, &older.path(&name))?;
    let mut sums = command(&["sha256sum", &name]);
    sums.current_dir(older.root());
    fs::write(older.path(SUMS), output(sums)?)?;
    let words =
        ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", KEY, "default", "sign"];
    let mut generate = command(&words);
    generate.env("GNUPGHOME", keys.root());
    output(generate)?;
    let site = guest.path("srv/tidegate");
    let add = |release: &Path| {
        // This program is cargo's xtask.
        let mut add = command(&["/proc/self/exe", "repository"]);
        add.arg(&site).args(["--key", KEY]).arg(release).env("GNUPGHOME", keys.root());
        output(add)
    };
    add(older.root())?;
    fs::write(guest.path("etc/apt/apt.conf.d/90yes"), "APT::Get::Assume-Yes \"true\";\n")?;
    fs::write(guest.path("etc/apt/sources.list"), "")?;
    let guest = guest.boot()?;
    guest.run("ip link set lo up && busybox httpd -p 127.0.0.1:80 -h /srv/tidegate")?;
    // The first block of the page makes the repository, as above.
    let blocks = pages::blocks("repository.md")?;
    let [_, install, upgrade] = &blocks[..] else { bail!("the page has other blocks") };
    let local = |text: &str| text.replace("https://packages.example.org", "http://127.0.0.1");
    println!("{}", guest.run(&format!("set -x\n{}", local(&install.text)))?);
    debian::serves(&guest)?;
    add(folder)?;
    debian::upgrades(&guest, &upgrade.text)?;
    let shown = guest.run("dpkg-query --show tidegate && apt-cache madison tidegate")?;
    ensure!(
        shown.contains(&format!("tidegate\t{}", version()?)) && shown.contains(OLDER),
        "after the upgrade: {shown}"
    );
    guest.run("apt purge tidegate")?;
    guest.run("sed --in-place s/Label:.*/Label:other/ /srv/tidegate/dists/stable/InRelease")?;
    guest.run("! apt-get -o APT::Update::Error-Mode=any update")?;
    Ok(())
}
