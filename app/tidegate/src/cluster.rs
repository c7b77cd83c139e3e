//! The cluster, as the operator's files and commands say it: secrets, and what the driver of
//! `edge/cluster` connects with.

mod command;
mod nats_config;
pub(crate) mod secret;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use cluster::nats::NatsOptions;

use crate::admin::NodeCommand;
use crate::cli;
use crate::config::{ClusterConfig, Config};
use crate::permissions::check_secret;
use command::SetupCommand;
use secret::ClusterSecrets;

/// Set up a cluster, look at it and manage it.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    #[command(flatten)]
    Setup(SetupCommand),
    #[command(flatten)]
    Node(NodeCommand),
}

impl ClusterCommand {
    /// Runs the command. The configuration in `config` tells where the API is, unless the command does.
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        match self {
            Self::Setup(command) => cli::exit(command.run(config)),
            Self::Node(command) => command.run(config),
        }
    }
}

/// Bytes of an nkey's seed: base32 of a prefix, 32 bytes and a checksum.
const SEED_LEN: usize = 58;
/// What the seed of a user begins with.
const SEED_PREFIX: &str = "SU";

/// Returns what the driver connects with. Reads the nkey.
pub(crate) fn nats_options(
    config: &Config,
    cluster: &ClusterConfig,
    secrets: &ClusterSecrets,
) -> Result<NatsOptions> {
    options_of_user(config, cluster, cluster.nkey.as_deref(), secrets.ids())
}

/// Returns what a user with this nkey connects with.
fn options_of_user(
    config: &Config,
    cluster: &ClusterConfig,
    nkey: Option<&Path>,
    secret_ids: Vec<[u8; 4]>,
) -> Result<NatsOptions> {
    let certificate = cluster.certificate.as_ref();
    Ok(NatsOptions {
        name: cluster.name.clone(),
        node: cluster.node,
        servers: cluster.servers.iter().map(|server| server.url.clone()).collect(),
        requires_tls: cluster.servers.iter().all(|server| server.is_tls),
        nkey: nkey.map(read_seed).transpose()?,
        certificate: certificate.map(|files| (files.chain.clone(), files.key.clone())),
        ca: cluster.ca.clone(),
        secret_ids,
        access: config.access_kinds.clone(),
        accepts_any_access: config.private_and_open,
        flush: cluster.flush,
        peer_lifetime_s: config.policy.peer_lifetime_s,
        stream_bytes: cluster.stream_bytes,
        replicas: cluster.replicas.into(),
    })
}

/// Reads the seed of an nkey, which may stand among comments and empty lines.
fn read_seed(path: &Path) -> Result<String> {
    let name = path.display();
    check_secret(path).context("cluster.nkey")?;
    let text =
        fs::read_to_string(path).with_context(|| format!("cluster.nkey: cannot read {name}"))?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with(SEED_PREFIX));
    let is_seed = |seed: &&str| {
        let is_base32 = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
        seed.len() == SEED_LEN && seed.bytes().all(is_base32)
    };
    let seed = seed.filter(is_seed);
    ensure!(
        seed.is_some(),
        "cluster.nkey: {name}: expected a line with a user's seed, {SEED_LEN} characters that begin with \
         {SEED_PREFIX}: `tidegate cluster nats-config` makes one for each node"
    );
    Ok(seed.unwrap_or_default().to_owned())
}
