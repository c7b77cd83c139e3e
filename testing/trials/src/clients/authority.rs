//! Certificates of the tracker and of other servers, by an authority that clients must trust.

use crate::command::{command, output};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// An authority. Its files, and those of its certificates, are in a folder.
pub(crate) struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes one.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let authority = Self { folder: folder.to_owned() };
        authority.request("authority", &[])?;
        Ok(authority)
    }

    /// Returns the path of the certificate of the authority in `folder`, which clients must trust.
    pub(crate) fn file(folder: &Path) -> PathBuf {
        folder.join("authority.pem")
    }

    /// Makes `NAME.pem` and `NAME.key` for these names, such as `IP:127.0.0.1`.
    pub(crate) fn issue(&self, name: &str, alternative_names: &str) -> Result<()> {
        let names = format!("subjectAltName={alternative_names}");
        let plain = "basicConstraints=critical,CA:FALSE";
        let signed = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        self.request(name, &[&signed[..], &["-addext", &names, "-addext", plain]].concat())
    }

    fn request(&self, name: &str, more: &[&str]) -> Result<()> {
        let (key, pem, subject) =
            (format!("{name}.key"), format!("{name}.pem"), format!("/CN={name}"));
        let words = ["openssl", "req", "-x509", "-newkey", "ec", "-noenc", "-days", "30"];
        let own = ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", &subject];
        let files = ["-keyout", &key, "-out", &pem];
        let mut openssl = command(&[&words, &own[..], &files, more].concat());
        openssl.current_dir(&self.folder);
        output(openssl).context("openssl; cargo xtask setup").map(drop)
    }
}
