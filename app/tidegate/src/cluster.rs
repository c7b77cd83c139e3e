//! The cluster, as the operator's files and commands say it: join files, secrets, and what the driver of
//! `edge/cluster` connects with.

mod authority;
mod command;
mod join;
mod nats_config;
mod operator;
pub(crate) mod secret;
mod server;
mod token;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use cluster::nats::{NatsOptions, SecretIds};

use crate::admin::NodeCommand;
use command::OperatorCommand;
use config::{ClusterConfig, Config};

pub(crate) use join::Join;

/// Set up a cluster, look at it and manage it.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    #[command(flatten)]
    Operator(OperatorCommand),
    #[command(flatten)]
    Node(NodeCommand),
}

impl ClusterCommand {
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        match self {
            Self::Operator(command) => command.run(config),
            Self::Node(command) => command.run(config),
        }
    }
}

pub(crate) fn nats_options(
    config: &Config,
    cluster: &ClusterConfig,
    join: &Join,
    secret_ids: SecretIds,
) -> NatsOptions {
    NatsOptions {
        name: join.cluster.clone(),
        node: join.node,
        servers: join.servers.clone(),
        requires_tls: join.has_authority(),
        user: join.user(),
        ca: join.has_authority().then(|| cluster.join.clone()),
        secret_ids,
        access: config.access_kinds.clone(),
        accepts_any_access: config.private_and_open,
        flush: cluster.flush,
        peer_lifetime_s: config.load.rules.longest_lifetime_s(),
    }
}

/// Returns the version that a file of this program has in the line of `key`, if there is one.
fn version(text: &str, key: &str) -> Option<u32> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='))?;
    value.trim().parse().ok()
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("cannot get random numbers from the system")?;
    Ok(bytes)
}
