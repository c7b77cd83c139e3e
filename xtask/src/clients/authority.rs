//! The authority that issues the tracker's certificate.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{command, output};

/// The file with the authority's certificate, which clients must trust.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("authority.pem")
}

/// Makes an authority in a folder, and a certificate of it for the tracker's addresses. Returns the
/// tracker's configuration for a TLS listener on `port`.
pub(super) fn set_up(folder: &Path, port: u16, addresses: &[String]) -> Result<String> {
    let openssl = |words: &str, files: [(&str, PathBuf); 2]| {
        let words: Vec<&str> = ["openssl", "req", "-x509", "-noenc", "-days", "7"]
            .into_iter()
            .chain("-newkey ec -pkeyopt ec_paramgen_curve:P-256".split(' '))
            .chain(words.split(' '))
            .collect();
        let mut openssl = command(&words);
        for (option, file) in files {
            openssl.arg(option).arg(file);
        }
        openssl
    };
    let (key, chain) = (folder.join("tracker.key"), folder.join("tracker.pem"));
    let signing = folder.join("authority.key");
    let itself = [("-keyout", signing.clone()), ("-out", file(folder))];
    output(openssl("-subj /CN=authority", itself)).context("openssl; cargo xtask setup")?;
    let names: Vec<String> = addresses.iter().map(|address| format!("IP:{address}")).collect();
    let words = format!(
        "-subj /CN=tracker -addext basicConstraints=CA:FALSE -addext subjectAltName={}",
        names.join(",")
    );
    let mut tracker = openssl(&words, [("-keyout", key.clone()), ("-out", chain.clone())]);
    tracker.arg("-CA").arg(file(folder)).arg("-CAkey").arg(signing);
    output(tracker)?;
    Ok(format!(
        "[tls]\nlisten = [\"0.0.0.0:{port}\", \"[::]:{port}\"]\n\
         certificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
    ))
}
