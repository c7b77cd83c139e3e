//! Debian packages of the static programs, by dpkg-deb.

use super::{Architecture, Release, copy, stage};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trials::archive;
use trials::command::{command, output, run};
use trials::workspace::root;

/// The revision of the package within a version.
const REVISION: &str = "1";
const DOCUMENTS: &str = "usr/share/doc/tidegate";

/// Files of the workspace that only this package has, and where it installs them.
const FILES: &[(&str, &str)] = &[
    ("dist/debian/copyright", "usr/share/doc/tidegate/copyright"),
    ("dist/debian/lintian-overrides", "usr/share/lintian/overrides/tidegate"),
];
/// Folders of programs.
const EXECUTABLE: &[&str] = &["usr/bin", "usr/lib/tidegate"];
const MAINTAINER_SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Packs `tidegate_VERSION-1_ARCHITECTURE.deb` of the files of the archive.
pub(super) fn package(release: &Release, architecture: Architecture, files: &Path) -> Result<()> {
    let stage = release.stage("debian")?;
    stage::install(files, &stage, "/usr/share/zsh/vendor-completions")?;
    for (from, to) in FILES {
        copy(&root().join(from), &stage.join(to))?;
    }
    documents(release, &stage)?;
    control(release, architecture, &stage)?;
    set_rights(&stage)?;
    let name = format!("tidegate_{}-{REVISION}_{}.deb", release.version, architecture.debian);
    let mut pack = command(&["dpkg-deb", "--root-owner-group", "-Zxz", "--build"]);
    pack.arg(&stage).arg(release.out.join(name));
    pack.env("SOURCE_DATE_EPOCH", release.commit.epoch.to_string());
    run(pack)
}

/// Has manual pages and documents in Debian's form: compressed, with a changelog of the package. The licence is in
/// `copyright`.
fn documents(release: &Release, stage: &Path) -> Result<()> {
    fs::remove_dir_all(stage.join("usr/share/licenses"))?;
    let folder = stage.join(DOCUMENTS);
    let changelog = folder.join("changelog");
    fs::rename(folder.join("CHANGELOG.md"), &changelog)?;
    let mut date = command(&["date", "--utc", "--rfc-email", "--date"]);
    date.arg(format!("@{}", release.commit.epoch)).env("LC_ALL", "C");
    let control = fs::read_to_string(root().join("dist/debian/control"))?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let packaging = folder.join("changelog.Debian");
    fs::write(
        &packaging,
        format!(
            "tidegate ({0}-{REVISION}) stable; urgency=medium\n\n  * Version {0}: see changelog.gz.\n\n -- {1}  {2}",
            release.version,
            maintainer.context("dist/debian/control names no maintainer")?,
            output(date)?
        ),
    )?;
    let pages = fs::read_dir(stage.join("usr/share/man/man1"))?;
    let mut files: Vec<PathBuf> = pages.map(|page| Ok(page?.path())).collect::<Result<_>>()?;
    files.extend([changelog, packaging, folder.join("THIRD-PARTY.txt")]);
    archive::gzip(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Writes what dpkg reads: description, checksums, scripts.
fn control(release: &Release, architecture: Architecture, stage: &Path) -> Result<()> {
    let size = kibibytes(stage)?.to_string();
    let mut sums = command(&["sh", "-c", "find etc usr -type f | LC_ALL=C sort | xargs md5sum"]);
    sums.current_dir(stage);
    let sums = output(sums)?;
    let folder = stage.join("DEBIAN");
    fs::create_dir(&folder)?;
    let text = fs::read_to_string(root().join("dist/debian/control"))?;
    let text = text
        .replace("VERSION", &format!("{}-{REVISION}", release.version))
        .replace("ARCHITECTURE", architecture.debian)
        .replace("KIBIBYTES", &size);
    fs::write(folder.join("control"), text)?;
    fs::write(folder.join("md5sums"), sums)?;
    fs::write(folder.join("conffiles"), "/etc/tidegate/tidegate.toml\n")?;
    for script in MAINTAINER_SCRIPTS {
        copy(&root().join("dist/debian").join(script), &folder.join(script))?;
    }
    Ok(())
}

/// Returns the size of what is installed, as Debian counts it: a folder is 1 KiB.
fn kibibytes(folder: &Path) -> Result<u64> {
    let mut size = 1;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        size += match entry.file_type()?.is_dir() {
            true => kibibytes(&entry.path())?,
            false => entry.metadata()?.len().div_ceil(1024),
        };
    }
    Ok(size)
}

/// Sets the rights of all files, whatever the checkout's are.
fn set_rights(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_script =
            folder.ends_with("DEBIAN") && MAINTAINER_SCRIPTS.iter().any(|it| path.ends_with(it));
        let is_executable = is_script || EXECUTABLE.iter().any(|it| folder.ends_with(it));
        if entry.file_type()?.is_dir() {
            set_rights(&path)?;
        }
        let mode = if is_executable || path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_accept_the_scripts() {
        for script in MAINTAINER_SCRIPTS.map(|it| format!("dist/debian/{it}")) {
            run(command(&["sh", "-n", &script])).unwrap();
        }
        for script in ["dist/arch/PKGBUILD", "dist/arch/tidegate.install"] {
            run(command(&["bash", "-n", script])).unwrap();
        }
        for script in ["dist/install.sh", "dist/hand-over", "dist/freebsd/tidegate"] {
            run(command(&["sh", "-n", script])).unwrap();
        }
    }
}
