//! Certificates and users of NATS servers, as `tidegate cluster nats-config` prints them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::arrangement::NAME;

/// A user who may do everything: what the steps do to streams and subjects.
const OPERATOR: [&str; 2] = ["operator", "operator"];
/// Where the users begin.
const USERS: &str = "users: [\n";

/// What servers and nodes are configured with.
pub(super) struct Security {
    folder: PathBuf,
    servers: String,
}

impl Security {
    /// Makes certificates for servers at these addresses, and a user for each node.
    pub(super) fn new(
        folder: &Path,
        program: &Path,
        (nodes, addresses): (u8, &[Ipv4Addr]),
    ) -> Result<Self> {
        write_certificates(folder, addresses)?;
        let mut command = Command::new(program);
        command.args(["cluster", "nats-config", "--name", NAME, "--nodes", &nodes.to_string()]);
        command.args(["--servers", &addresses.len().to_string(), "--keys"]).arg(folder);
        let output = command.output().context("tidegate cluster nats-config")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tidegate cluster nats-config: {message}");
        let mut text = String::from_utf8(output.stdout)?;
        text = text.replace("PATH/", &format!("{}/", folder.display()));
        // An option names it, for each server another.
        let is_kept = |line: &&str| !line.trim_start().starts_with("store_dir:");
        text = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
        for (number, address) in (1..).zip(addresses) {
            text = text.replace(&format!("HOST_{number}:"), &format!("{address}:"));
        }
        ensure!(text.contains(USERS), "no users in {text}");
        let [user, password] = OPERATOR;
        let operator = format!("{USERS}    {{ user: {user}, password: {password} }}\n");
        // The operator speaks no TLS.
        let servers = format!("allow_non_tls: true\n{}", text.replacen(USERS, &operator, 1));
        Ok(Self { folder: folder.to_owned(), servers })
    }

    /// The configuration of each server. Addresses, names and folders are for options to replace.
    pub(super) fn server_configuration(&self) -> &str {
        &self.servers
    }

    /// Name and password of a user who may do everything.
    pub(super) fn operator(&self) -> Option<[&str; 2]> {
        Some(OPERATOR)
    }

    /// Lines of a node's `[cluster]`.
    pub(super) fn node_lines(&self, node: u8) -> String {
        let file = |name: &str| self.folder.join(name);
        format!("ca = {:?}\nnkey = {:?}\n", file("ca.pem"), file(&format!("node-{node}.nk")))
    }
}

/// Writes an authority and a certificate of it for all servers, under the names that are printed.
fn write_certificates(folder: &Path, addresses: &[Ipv4Addr]) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["tests".to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?;
    fs::write(folder.join("ca.pem"), authority.pem())?;
    let issuer = Issuer::from_params(&params, key);
    let names: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    fs::write(folder.join("server.pem"), certificate.pem())?;
    Ok(fs::write(folder.join("server-key.pem"), key.serialize_pem())?)
}
