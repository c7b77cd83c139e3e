//! Self-signed certificates for TLS runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair};

/// Paths of the PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// Chain and key in one file, as hitch requires.
    pub(crate) both: PathBuf,
}

impl Certificate {
    /// Creates a certificate for `localhost` in three files of a folder: ECDSA on P-256, the most common kind.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let signing_key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let parameters = CertificateParams::new(["localhost".to_owned()])?;
        let chain = parameters.self_signed(&signing_key)?.pem();
        let key = signing_key.serialize_pem();
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
