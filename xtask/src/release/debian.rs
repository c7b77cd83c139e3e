//! Debian packages of the static programs, by dpkg-deb.

use super::stage::{Texts, completions, scripts};
use super::{Architecture, PROGRAMS, Release, copy};
use crate::archive;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trials::command::{command, output, run};
use trials::workspace::root;

/// The revision of the package within a version.
const REVISION: &str = "1";
const DOCUMENTS: &str = "usr/share/doc/tidegate";
const UNITS: &str = "usr/lib/systemd/system";

/// Files of the workspace, and where the package installs them.
const FILES: &[(&str, &str)] = &[
    ("dist/tidegate.toml", "etc/tidegate/tidegate.toml"),
    ("dist/tidegate.socket", "usr/lib/systemd/system/tidegate.socket"),
    // For a link from /etc/systemd/system/tidegate.service.d.
    ("dist/tidegate-xdp.conf", "usr/share/tidegate/xdp.conf"),
    ("dist/cluster/cluster.conf", "usr/share/tidegate/cluster.conf"),
    ("dist/prometheus/alerts.yml", "usr/share/doc/tidegate/examples/alerts.yml"),
    ("dist/grafana/tidegate.json", "usr/share/doc/tidegate/examples/grafana.json"),
    ("dist/debian/copyright", "usr/share/doc/tidegate/copyright"),
    ("dist/debian/lintian-overrides", "usr/share/lintian/overrides/tidegate"),
];
const MAINTAINER_SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Packs `tidegate_VERSION-1_ARCHITECTURE.deb`.
pub(super) fn package(release: &Release, architecture: Architecture, texts: &Texts) -> Result<()> {
    let stage = release.stage("debian")?;
    for name in PROGRAMS {
        copy(&release.program(architecture, name), &stage.join("usr/bin").join(name))?;
    }
    for (from, to) in FILES {
        copy(&root().join(from), &stage.join(to))?;
    }
    for (program, shell) in scripts() {
        let script = completions(program, shell);
        let to = match shell {
            "bash" => format!("usr/share/bash-completion/completions/{program}"),
            "zsh" => format!("usr/share/zsh/vendor-completions/{script}"),
            _ => format!("usr/share/fish/vendor_completions.d/{script}"),
        };
        copy(&texts.completions(&script), &stage.join(to))?;
    }
    let unit = fs::read_to_string(root().join("dist/tidegate.service"))?;
    fs::write(stage.join(UNITS).join("tidegate.service"), with_user(&unit)?)?;
    documents(release, &stage, texts)?;
    control(release, architecture, &stage)?;
    set_rights(&stage)?;
    let name = format!("tidegate_{}-{REVISION}_{}.deb", release.version, architecture.debian);
    let mut pack = command(&["dpkg-deb", "--root-owner-group", "-Zxz", "--build"]);
    pack.arg(&stage).arg(release.out.join(name));
    pack.env("SOURCE_DATE_EPOCH", release.commit.epoch.to_string());
    run(pack).map(drop)
}

/// Returns the unit with the user that the package creates, instead of one of systemd's making: files keep their owner,
/// and `sudo -u tidegate` works.
pub(crate) fn with_user(unit: &str) -> Result<String> {
    const DYNAMIC: &str = "# systemd creates a user at each start. Ports below 1024 need the capability, or tidegate.socket.\n\
                           DynamicUser=yes\n";
    const STATIC: &str = "# Ports below 1024 need the capability, or tidegate.socket.\nUser=tidegate\nGroup=tidegate\n";
    const HEAD: &str = "[Unit]\n";
    ensure!(unit.contains(DYNAMIC), "dist/tidegate.service lacks the lines about its user");
    let (_, rest) = unit.split_once(HEAD).context("dist/tidegate.service lacks [Unit]")?;
    let head =
        "# Change this by `systemctl edit tidegate`. tidegate(1) describes signals and files.\n\n";
    Ok(format!("{head}{HEAD}{}", rest.replace(DYNAMIC, STATIC)))
}

/// Writes manual pages, licences and changelogs, compressed.
fn documents(release: &Release, stage: &Path, texts: &Texts) -> Result<()> {
    let mut files = texts.copy_pages(&stage.join("usr/share/man/man1"))?;
    let folder = stage.join(DOCUMENTS);
    let third_party = folder.join("THIRD-PARTY.txt");
    copy(&texts.licences(), &third_party)?;
    let changelog = folder.join("changelog");
    copy(&root().join("CHANGELOG.md"), &changelog)?;
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
    files.extend([third_party, changelog, packaging]);
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
        let is_executable = is_script || folder.ends_with("usr/bin");
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
    fn the_unit_gets_the_user_of_the_package() {
        let unit = fs::read_to_string(root().join("dist/tidegate.service")).unwrap();
        let unit = with_user(&unit).unwrap();
        assert!(
            unit.contains("\nUser=tidegate\nGroup=tidegate\n") && !unit.contains("DynamicUser"),
            "{unit}"
        );
        assert!(with_user("[Unit]\n").is_err());
    }

    #[test]
    fn shells_accept_the_scripts() {
        for script in MAINTAINER_SCRIPTS.map(|it| format!("dist/debian/{it}")) {
            run(command(&["sh", "-n", &script])).unwrap();
        }
        run(command(&["sh", "-n", "dist/freebsd/tidegate"])).unwrap();
    }
}
