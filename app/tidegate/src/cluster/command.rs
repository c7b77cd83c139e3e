//! `tidegate cluster secret` and `nats-config`: what is needed to set up a cluster.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Subcommand, value_parser};

use super::nats_config;
use super::secret::SECRET_LEN;
use crate::cli::{self, UsageError};

#[derive(Subcommand)]
pub(crate) enum SetupCommand {
    /// Print a new secret for `cluster.secret`. All nodes need the same one.
    Secret {
        /// Write it to this new file instead, which only its owner can read.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print a configuration for nats-server, with a user for each node and no more rights than it needs.
    ///
    /// Addresses and certificates are to be filled in. `cluster` here is the tracker's, which may have one
    /// NATS server or several.
    NatsConfig {
        /// The cluster's name, as in `cluster.name`.
        #[arg(long)]
        name: String,
        /// How many nodes: they have the numbers 1, 2, 3, …
        #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..))]
        nodes: u8,
        /// How many NATS servers.
        #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..=9))]
        servers: u8,
        /// Make an nkey for each node: write its seed, for `cluster.nkey`, to node-N.nk in this directory.
        /// Seeds that are there already are used. Without it, the users' public keys are to be filled in.
        #[arg(long, value_name = "DIR")]
        keys: Option<PathBuf>,
        /// Leave out the rights to create and change streams, for `cluster.manage_streams = false`.
        #[arg(long)]
        fixed_streams: bool,
    },
}

impl SetupCommand {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<bool, UsageError> {
        match self {
            Self::Secret { out } => {
                let secret = new_secret()?;
                match out {
                    Some(path) => write_private(path, &secret)?,
                    None => drop(cli::print(&secret)?),
                }
            }
            Self::NatsConfig { name, nodes, servers, keys, fixed_streams } => {
                let keys = (1..=*nodes).map(|node| match keys {
                    Some(directory) => nats_config::public_key(directory, node).map(Some),
                    None => Ok(None),
                });
                let layout = nats_config::Layout {
                    name,
                    servers: *servers,
                    manages_streams: !fixed_streams,
                    keys: keys.collect::<Result<_, _>>()?,
                };
                cli::print(&nats_config::text(&layout)?)?;
            }
        }
        Ok(true)
    }
}

fn new_secret() -> Result<String, UsageError> {
    let mut secret = [0; SECRET_LEN];
    getrandom::fill(&mut secret)
        .map_err(|error| UsageError(format!("cannot get random numbers: {error}")))?;
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digits}\n"))
}

/// Writes a new file that only its owner can read.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), UsageError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| UsageError(format!("cannot write {}: {error}", path.display())))
}
