//! Certificates of NATS servers, and what servers and nodes are configured with.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Files of the servers' certificate.
const AUTHORITY: &str = "authority.pem";
const CHAIN: &str = "nats.pem";
const KEY: &str = "nats.key";

/// Writes an authority and a certificate of it for all servers.
pub(super) fn write_certificates(folder: &Path, addresses: &[Ipv4Addr]) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["tests".to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?;
    fs::write(folder.join(AUTHORITY), authority.pem())?;
    let issuer = Issuer::from_params(&params, key);
    let names: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    fs::write(folder.join(CHAIN), certificate.pem())?;
    Ok(fs::write(folder.join(KEY), key.serialize_pem())?)
}

/// What servers and nodes are configured with.
pub(super) struct Security {
    folder: PathBuf,
    servers: String,
}

impl Security {
    /// Makes users for all nodes.
    pub(super) fn new(folder: &Path, _program: &Path, _nodes: u8) -> Result<Self> {
        let file = |name| folder.join(name);
        let servers = format!(
            "tls {{\n cert_file: {:?}\n key_file: {:?}\n}}\nallow_non_tls: true\n",
            file(CHAIN),
            file(KEY)
        );
        Ok(Self { folder: folder.to_owned(), servers })
    }

    /// The configuration of each server, but for its addresses.
    pub(super) fn server_configuration(&self) -> &str {
        &self.servers
    }

    /// Name and password of a user who may do everything.
    pub(super) fn operator(&self) -> Option<[&str; 2]> {
        None
    }

    /// Lines of a node's `[cluster]`.
    pub(super) fn node_lines(&self, _node: u8) -> String {
        format!("ca = {:?}\n", self.folder.join(AUTHORITY))
    }
}
