//! Archives whose bytes depend on their files only: sorted, owned by root, with one time.

use crate::command::{command, output, run};
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Arguments of tar that all packers pass: owner and rights, and everything in the folder.
pub const OWNED_BY_ROOT: &[&str] = &["--owner=0", "--group=0", "--mode=u=rwX,go=rX", "."];

/// Packs the file or folder `name` of `folder` into `archive`.
///
/// # Errors
///
/// Fails if tar does.
pub fn tar_gz(folder: &Path, name: &str, archive: &Path, epoch: u64) -> Result<()> {
    let mut tar = tar(folder, archive, epoch);
    tar.args([
        "--use-compress-program=gzip -9n",
        "--owner=0",
        "--group=0",
        "--mode=u=rwX,go=rX",
        name,
    ]);
    run(tar)
}

/// Packs what is in `folder`, without compression, with the owners and rights that `more` says.
///
/// # Errors
///
/// Fails if tar does.
pub fn tar_plain(folder: &Path, archive: &Path, epoch: u64, more: &[&str]) -> Result<()> {
    let mut tar = tar(folder, archive, epoch);
    tar.args(more);
    run(tar)
}

fn tar(folder: &Path, archive: &Path, epoch: u64) -> std::process::Command {
    let mut tar = command(&["tar", "--create", "--format=ustar", "--sort=name", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{epoch}")).arg("--file").arg(archive).arg("--directory").arg(folder);
    tar
}

/// Unpacks an archive into an empty folder.
///
/// # Errors
///
/// Fails if tar does.
pub fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    recreate(folder)?;
    let mut tar = command(&["tar", "--extract", "--file"]);
    tar.arg(archive).arg("--directory").arg(folder);
    output(tar).map(drop)
}

/// Makes a folder empty.
///
/// # Errors
///
/// Fails if the folder cannot be replaced.
pub fn recreate(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context(folder.display().to_string());
        }
        _ => {}
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Compresses files in place, as Debian wants its documents: `FILE.gz` without name and time.
///
/// # Errors
///
/// Fails if gzip does.
pub fn gzip(files: &[&Path]) -> Result<()> {
    let mut gzip = command(&["gzip", "-9n", "--force"]);
    gzip.args(files);
    output(gzip).map(drop)
}

/// Returns the SHA-256 of a file in hexadecimal digits.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn sha256(file: &Path) -> Result<String> {
    let mut sum = command(&["sha256sum"]);
    sum.arg(file);
    let printed = output(sum)?;
    Ok(printed.split_whitespace().next().context("sha256sum prints nothing")?.to_owned())
}
