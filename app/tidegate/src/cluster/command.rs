//! `tidegate cluster secret`, `nats-config` and `streams`: what is needed to set up a cluster.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Subcommand, value_parser};
use cluster::nats;

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
        /// Make an nkey for each node: write its seed, for `cluster.nkey`, to node-N.nk in this directory, and
        /// that of the operator, for `tidegate cluster streams`, to operator.nk. Seeds that are there already
        /// are used. Without it, the users' public keys are to be filled in.
        #[arg(long, value_name = "DIR")]
        keys: Option<PathBuf>,
    },
    /// Make the stream at the NATS servers, or change it to be as the configuration says.
    ///
    /// Run it once before the first node starts, and again after a change of `cluster.replicas`,
    /// `cluster.stream_mib` or the lifetime of peers. Nodes have no right to do this: they check the stream.
    Streams {
        /// The nkey of the operator, which `nats-config --keys` made: operator.nk. Without it, that of the
        /// configuration is used.
        #[arg(long, value_name = "FILE")]
        nkey: Option<PathBuf>,
        /// Make the stream smaller, too, if the configuration says so: messages of all nodes may be lost.
        #[arg(long)]
        shrink: bool,
    },
}

impl SetupCommand {
    /// Runs the command. `streams` reads the configuration in `config`.
    pub(crate) fn run(&self, config: Option<&Path>) -> Result<bool, UsageError> {
        match self {
            Self::Secret { out } => {
                let secret = new_secret()?;
                match out {
                    Some(path) => write_private(path, &secret)?,
                    None => drop(cli::print(&secret)?),
                }
            }
            Self::NatsConfig { name, nodes, servers, keys } => {
                let key = |user: &str| match keys {
                    Some(directory) => nats_config::public_key(directory, user).map(Some),
                    None => Ok(None),
                };
                let layout = nats_config::Layout {
                    name,
                    servers: *servers,
                    operator: key("operator")?,
                    keys: (1..=*nodes)
                        .map(|node| key(&format!("node-{node}")))
                        .collect::<Result<_, _>>()?,
                };
                cli::print(&nats_config::text(&layout)?)?;
            }
            Self::Streams { nkey, shrink } => {
                return make_streams(config, nkey.as_deref(), *shrink);
            }
        }
        Ok(true)
    }
}

/// Makes the stream. Returns false if that fails.
fn make_streams(
    config: Option<&Path>,
    nkey: Option<&Path>,
    may_shrink: bool,
) -> Result<bool, UsageError> {
    let (_, config) =
        crate::load(config).map_err(|problems| UsageError(problems.join("\ntidegate: ")))?;
    let Some(cluster) = &config.cluster else {
        return Err(UsageError("cluster.name is not set: name the configuration of a node".into()));
    };
    let nkey = nkey.or(cluster.nkey.as_deref());
    // Nothing that the streams have is in the secret.
    let made = super::options_of_user(&config, cluster, nkey, Vec::new())
        .and_then(|options| Ok(nats::make_streams(&options, may_shrink)?));
    match made {
        Ok(done) => cli::print(&format!("{done}\n")),
        Err(error) => {
            cli::print_error(format!("{error:#}"));
            Ok(false)
        }
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
