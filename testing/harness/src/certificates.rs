//! Certificates for tests, made by openssl in a folder.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::output;

/// The arguments for a new key on an elliptic curve, as most certificates have today.
pub const ECDSA: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// Runs openssl with these arguments.
///
/// # Errors
///
/// If it is missing or fails.
pub fn openssl(folder: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(words).current_dir(folder);
    output(command).context("openssl; cargo xtask setup").map(drop)
}

/// Makes `ca.pem` and `ca.key`, an authority that clients must trust.
///
/// # Errors
///
/// As [`openssl`].
pub fn make_authority(folder: &Path) -> Result<()> {
    let file = ["-noenc", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"];
    openssl(folder, &[&["req", "-x509"], ECDSA, &file].concat())
}

/// Makes `NAME.pem` and `NAME.key` by the authority, valid for `days`. `hosts` are such as `DNS:name,IP:address`, and
/// `key` the arguments for a new key.
///
/// # Errors
///
/// As [`openssl`].
pub fn issue(folder: &Path, name: &str, hosts: &str, key: &[&str], days: &str) -> Result<()> {
    let (chain_file, key_file) = (format!("{name}.pem"), format!("{name}.key"));
    let hosts = format!("subjectAltName={hosts}");
    let issuer = ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", days];
    let subject = ["-subj", "/CN=host", "-addext", &hosts];
    let plain = ["-addext", "basicConstraints=critical,CA:FALSE"];
    let files = ["-noenc", "-keyout", &key_file, "-out", &chain_file];
    openssl(folder, &[&issuer, key, &subject, &plain, &files].concat())
}
