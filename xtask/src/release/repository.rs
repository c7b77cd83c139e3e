//! `cargo xtask repository`: a folder that any web server serves to apt, with the Debian packages of one or several
//! releases, signed by GPG.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use trials::artifacts::{ARCHITECTURES, SUMS};
use trials::command::{command, output, run};
use trials::workspace::root;

const USAGE: &str = "expected `repository FOLDER --key KEY [RELEASE]`";

/// Adds the packages of a release to a repository, and writes its lists again. Packages of earlier releases stay.
pub(crate) fn add(words: &[&str]) -> Result<()> {
    let (folder, key, release) = match words {
        [folder, "--key", key] => (folder, key, super::default_out()?),
        [folder, "--key", key, release] => (folder, key, root().join(release)),
        _ => bail!(USAGE),
    };
    let mut check = command(&["sha256sum", "--check", "--strict", "--quiet", SUMS]);
    check.current_dir(&release);
    run(check).context("the files are not those of a release")?;
    let folder = root().join(folder);
    let pool = folder.join("pool/main");
    fs::create_dir_all(&pool)?;
    for entry in fs::read_dir(&release)? {
        let package = entry?.path();
        if package.extension().is_some_and(|it| it == "deb") {
            fs::copy(&package, pool.join(package.file_name().context("a package has a name")?))?;
        }
    }
    let names: Vec<&str> = ARCHITECTURES.iter().map(|it| it.debian).collect();
    write_lists(&folder, key, &names.join(" "))?;
    Ok(())
}

/// Writes the lists of packages, their checksums, the signatures of these, and the public key.
fn write_lists(folder: &Path, key: &str, architectures: &str) -> Result<()> {
    let mut shell = command(&["sh", "-ec", SCRIPT]);
    shell.current_dir(folder).env("KEY", key).env("ARCHITECTURES", architectures);
    output(shell).map(drop).context("cannot sign the lists (Debian's packages are apt-utils, gpg)")
}

/// `Packages` is there twice because apt asks for the compressed file only if `Release` names both.
const SCRIPT: &str = r#"
mkdir -p dists/stable
for architecture in $ARCHITECTURES; do
    list=dists/stable/main/binary-$architecture
    mkdir -p $list
    apt-ftparchive --arch $architecture packages pool > $list/Packages
    gzip -9nkf $list/Packages
done
rm -f dists/stable/*elease*
release=APT::FTPArchive::Release
apt-ftparchive -o $release::Origin=tidegate -o $release::Label=tidegate -o $release::Suite=stable \
    -o $release::Codename=stable -o $release::Components=main -o $release::Architectures="$ARCHITECTURES" \
    release dists/stable > Release.new
mv Release.new dists/stable/Release
gpg --batch --yes --local-user "$KEY" --output dists/stable/InRelease --clearsign dists/stable/Release
gpg --batch --yes --local-user "$KEY" --output dists/stable/Release.gpg --armor --detach-sign dists/stable/Release
gpg --batch --yes --output tidegate.gpg --export "$KEY"
test -s tidegate.gpg
"#;
