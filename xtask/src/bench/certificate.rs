//! A certificate for trackers with TLS: ECDSA on P-256, the most common kind.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{command, output};

/// The files of the certificate, in PEM.
pub(super) struct Certificate {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    /// Certificate and key in one file, as hitch requires.
    pub(super) both: PathBuf,
}

impl Certificate {
    /// Returns the certificate in a folder, and creates it if it does not exist yet.
    pub(super) fn within(folder: &Path) -> Result<Self> {
        let file = |name| folder.join(name);
        let made =
            Self { chain: file("tls.pem"), key: file("tls.key"), both: file("tls.both.pem") };
        if !made.both.is_file() {
            made.make().context("cannot create a certificate: run `cargo xtask setup`")?;
        }
        Ok(made)
    }

    fn make(&self) -> Result<()> {
        let words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 \
                     -subj /CN=localhost -addext subjectAltName=DNS:localhost";
        let mut openssl = command(&words.split_whitespace().collect::<Vec<_>>());
        openssl.arg("-keyout").arg(&self.key).arg("-out").arg(&self.chain);
        output(openssl)?;
        fs::write(&self.both, [fs::read(&self.key)?, fs::read(&self.chain)?].concat())?;
        Ok(())
    }
}
