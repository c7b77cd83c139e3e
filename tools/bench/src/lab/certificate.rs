//! A self-signed certificate for TLS runs: ECDSA on P-256, the most common kind.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Paths of the PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// Chain and key in one file, as hitch requires.
    pub(crate) both: PathBuf,
}

impl Certificate {
    /// Creates a certificate for `localhost` in three files of a folder.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let files = Self {
            chain: folder.join("chain.pem"),
            key: folder.join("key.pem"),
            both: folder.join("chain-and-key.pem"),
        };
        fs::write(&files.chain, &chain)?;
        fs::write(&files.key, &key)?;
        fs::write(&files.both, format!("{key}{chain}"))?;
        Ok(files)
    }
}
