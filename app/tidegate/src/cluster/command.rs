//! The commands of a cluster's operator, who has the folder that `tidegate cluster init` makes.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::{Args, Subcommand, value_parser};
use cluster::nats::{self, StreamChanges, StreamSettings};
use serde_json::json;
use types::to_hex;

use super::operator::{OperatorFolder, write_private};
use super::secret::Secret;
use super::server::Server;
use crate::admin::{ClusterApi, NodeArgs};
use crate::backup::{Backup, Restore};
use crate::cli;
use config::is_cluster_name;

const SIZE_MIB_MIN: u64 = 16;
/// The most servers that store each message: NATS allows no more.
const REPLICAS_MAX: usize = 5;
const LIFETIME_S_MAX: u32 = 7 * 86_400;

/// Where the operator's folder is.
#[derive(Args)]
pub(crate) struct FolderArgs {
    /// The folder that `tidegate cluster init` made.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(Subcommand)]
pub(crate) enum OperatorCommand {
    /// Make everything that a new cluster needs: keys, and a folder with configuration and certificates for each NATS server.
    Init {
        /// The cluster's name, of a-z 0-9 -.
        #[arg(long)]
        name: String,
        /// The hosts of the NATS servers, as nodes reach them: t1.example.org,t2.example.org:4333. Use one of this machine,
        /// 127.0.0.1, to try it out without TLS.
        #[arg(long, value_delimiter = ',', required = true)]
        servers: Vec<String>,
        /// The new folder for all of it [default: the name of the cluster].
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Make the join file of a node, which its configuration names as cluster.join.
    ///
    /// No server has to be changed for a new node. Repeated for a node, it gives the same user at the servers; after
    /// `tidegate cluster remove`, a new one.
    Invite {
        /// The number of the node. Each node has its own.
        #[arg(value_parser = value_parser!(u8).range(1..))]
        node: u8,
        /// Where the node is, of a-z 0-9 -, e.g. fra.
        #[arg(long)]
        zone: Option<String>,
        /// The new file [default: node-N.join in the operator's folder].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Make the credentials of a program that reads the accounts of a site over NATS, where all nodes publish them.
    ///
    /// It can receive them and answer, and nothing else. Repeated for a name, it gives the same user at the servers.
    Reader {
        /// The reader's name, of a-z 0-9 -.
        name: String,
        /// Remove the reader instead: the servers disconnect and refuse it.
        #[arg(long, conflicts_with = "out")]
        remove: bool,
        /// The new file [default: NAME.creds in the operator's folder].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Make the stream at the NATS servers, or change its settings, and print them.
    ///
    /// Keys: replicas (servers that store each message), size (e.g. 8GiB), lifetime (of peers, in seconds: one and a half
    /// times the longest interval of any node, three times load.interval_max_s if it has budgets). The stream is the home
    /// of its settings: nodes look whether they suffice, and change nothing.
    Set {
        /// New values, e.g. `size 16GiB replicas 3`.
        #[arg(value_name = "KEY VALUE", num_args = 0..)]
        changes: Vec<String>,
        /// Make the stream smaller, too: messages of all nodes may be lost.
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Remove a node for good: its user at the NATS servers, and what it may still send.
    ///
    /// The servers disconnect it and refuse it from now on, and the other nodes drop its messages. It serves the clients
    /// that reach it until it is stopped, from its own memory. Then change the secret, if somebody else may have it.
    Remove {
        #[arg(value_parser = value_parser!(u8).range(1..))]
        node: u8,
        #[command(flatten)]
        folder: FolderArgs,
        #[command(flatten)]
        api: NodeArgs,
    },
    /// Change the secret that all nodes share, while they serve.
    ///
    /// All nodes that run accept the new one before any issues by it, so no client is refused. The old one is accepted for
    /// the lifetime of peers and six minutes more: a node that is away for longer needs a new join file.
    RotateSecret {
        #[command(flatten)]
        folder: FolderArgs,
        #[command(flatten)]
        api: NodeArgs,
    },
    /// The name that `tidegate backup` had in 1.0.
    #[command(hide = true)]
    Backup(Backup),
    /// The name that `tidegate restore` had in 1.0.
    #[command(hide = true)]
    Restore(Restore),
}

impl OperatorCommand {
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        let text = match self {
            Self::Init { name, servers, dir } => init(name, servers, dir.as_deref()),
            Self::Invite { node, zone, out, folder } => {
                invite(&folder.dir, *node, zone.as_deref(), out.as_deref())
            }
            Self::Reader { name, remove: true, folder, .. } => remove_reader(&folder.dir, name),
            Self::Reader { name, out, folder, .. } => reader(&folder.dir, name, out.as_deref()),
            Self::Set { changes, shrink, folder } => set(&folder.dir, changes, *shrink),
            Self::Remove { node, folder, api } => api
                .cluster_api(config)
                .map_err(Error::from)
                .and_then(|api| remove(&folder.dir, *node, &api)),
            Self::Backup(backup) => return backup.run(config),
            Self::Restore(restore) => return restore.run(config),
            Self::RotateSecret { folder, api } => api
                .cluster_api(config)
                .map_err(Error::from)
                .and_then(|api| rotate_secret(&folder.dir, &api)),
        };
        match text {
            Ok(text) => cli::exit(cli::print(&text)),
            Err(error) => {
                cli::print_error(format!("{error:#}"));
                ExitCode::FAILURE
            }
        }
    }
}

fn init(name: &str, servers: &[String], dir: Option<&Path>) -> Result<String> {
    ensure!(
        is_cluster_name(name),
        "--name: expected at most 32 characters of a-z 0-9 -, found `{name}`"
    );
    let servers: Vec<Server> = servers
        .iter()
        .map(|text| text.parse().map_err(|why| anyhow!("--servers: {why}")))
        .collect::<Result<_>>()?;
    let folder = OperatorFolder::create(dir.unwrap_or_else(|| Path::new(name)), name, &servers)?;
    let mut text = format!("made the folder {}:\n", folder.path().display());
    text += "  cluster.toml     the operator's keys: they stay here, and no machine needs them\n";
    for (number, server) in (1..).zip(&servers) {
        text += &format!("  server-{number}         for the NATS server {}\n", server.host);
    }
    text += "next: `tidegate cluster invite 1` and so on, in this folder\n";
    Ok(text)
}

fn invite(dir: &Path, node: u8, zone: Option<&str>, out: Option<&Path>) -> Result<String> {
    if let Some(zone) = zone {
        ensure!(
            zone.is_empty() || is_cluster_name(zone),
            "--zone: expected at most 32 characters of a-z 0-9 -, found `{zone}`"
        );
    }
    let mut folder = OperatorFolder::open(dir)?;
    let was_removed = folder.was_removed(node);
    let join = folder.invite(node, zone)?.text()?;
    folder.write()?;
    let file = write_file(&folder, out, &format!("node-{node}.join"), &join)?;
    let mut text = format!(
        "made {}: copy it to the machine of node {node}, and name it there: cluster.join\n",
        file.display()
    );
    if was_removed {
        text += &format!(
            "node {node} was removed before: the others ignore it until `tidegate cluster heed {node}`\n"
        );
    }
    Ok(text)
}

fn reader(dir: &Path, name: &str, out: Option<&Path>) -> Result<String> {
    ensure!(
        !name.is_empty() && is_cluster_name(name),
        "expected a name of at most 32 characters of a-z 0-9 -, found `{name}`"
    );
    let mut folder = OperatorFolder::open(dir)?;
    let credentials = folder.reader(name)?;
    folder.write()?;
    let file = write_file(&folder, out, &format!("{name}.creds"), &credentials)?;
    let subject = folder.readers_subject();
    Ok(format!("made {}: with it, a program can read the subject {subject}\n", file.display()))
}

fn remove_reader(dir: &Path, name: &str) -> Result<String> {
    let mut folder = OperatorFolder::open(dir)?;
    let token = folder.remove_reader(name)?;
    let servers = nats::update_account(&folder.system_options()?, &token)
        .context("the reader is not removed: repeat the command")?;
    folder.write()?;
    let servers = servers.join(", ");
    Ok(format!(
        "removed the reader {name}: the NATS servers {servers} have disconnected it and refuse it\n"
    ))
}

/// Writes a file with secrets to `out`, which is new, or else to `name` in the folder. Returns its path.
fn write_file(
    folder: &OperatorFolder,
    out: Option<&Path>,
    name: &str,
    text: &str,
) -> Result<PathBuf> {
    if let Some(file) = out {
        write_new(file, text)?;
        return Ok(file.to_owned());
    }
    let file = folder.path().join(name);
    write_private(&file, text)?;
    Ok(file)
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn set(dir: &Path, changes: &[String], may_shrink: bool) -> Result<String> {
    let changes = parse_changes(changes)?;
    let mut folder = OperatorFolder::open(dir)?;
    let made = nats::make_stream(&folder.options()?, folder.settings(), changes, may_shrink)?;
    folder.set_settings(made.settings);
    folder.write()?;
    Ok(format!("{}\n{}", made.done, settings_text(made.settings)))
}

fn remove(dir: &Path, node: u8, api: &ClusterApi) -> Result<String> {
    let mut folder = OperatorFolder::open(dir)?;
    let token = folder.remove(node)?;
    // First: a token that is made later must refuse the user, too.
    folder.write()?;
    let options = folder.system_options()?;
    let servers = nats::update_account(&options, &token)
        .context("the user of the node is not removed at the NATS servers: repeat the command")?;
    api.ignore(node).with_context(|| {
        format!(
            "the NATS servers refuse node {node} from now on. The other nodes do not ignore it yet: run `tidegate cluster \
             ignore {node}`"
        )
    })?;
    let mut text = format!(
        "removed node {node}: the NATS servers {} have disconnected it and refuse it, and the other nodes ignore it\n",
        servers.join(", ")
    );
    let away = options.servers.len() - servers.len();
    if away > 0 {
        text += &format!(
            "{away} NATS servers are away: they take it from the others when they are back\n"
        );
    }
    Ok(text)
}

fn rotate_secret(dir: &Path, api: &ClusterApi) -> Result<String> {
    let mut folder = OperatorFolder::open(dir)?;
    // An interrupted change is continued.
    if api.secret_number()? >= folder.secret().number.into() {
        folder.next_secret()?;
    }
    let Secret { number, bytes, .. } = folder.secret();
    let digits = to_hex(&bytes);
    api.change_secret(&json!({ "number": number, "secret": digits, "issue": false }))?;
    // Not before: nodes that are invited from now on have it. Not later: nodes may issue by it.
    folder.write()?;
    let away = api.wait_for_secrets()?;
    api.change_secret(&json!({ "number": number, "secret": digits, "issue": true }))?;
    let mut text = format!(
        "the secret has the number {number} now. The old one is accepted until all present peers have expired\n"
    );
    if !away.is_empty() {
        text += &format!(
            "nodes that are away: {}. One that is not back by then needs a new join file: `tidegate cluster invite`\n",
            away.join(", ")
        );
    }
    Ok(text)
}

fn settings_text(settings: StreamSettings) -> String {
    let StreamSettings { replicas, bytes, lifetime_s } = settings;
    let mib = bytes >> 20;
    let size =
        if mib.is_multiple_of(1024) { format!("{}GiB", mib >> 10) } else { format!("{mib}MiB") };
    format!("replicas  {replicas}\nsize      {size}\nlifetime  {lifetime_s}\n")
}

fn parse_changes(words: &[String]) -> Result<StreamChanges> {
    let mut changes = StreamChanges::default();
    for pair in words.chunks(2) {
        let [key, value] = pair else {
            return Err(anyhow!("expected KEY VALUE, found `{}` alone", pair.join(" ")));
        };
        match key.as_str() {
            "replicas" => {
                let replicas = value.parse().ok().filter(|it| (1..=REPLICAS_MAX).contains(it));
                changes.replicas = Some(replicas.with_context(|| {
                    format!("replicas: expected 1 to {REPLICAS_MAX}, found `{value}`")
                })?);
            }
            "size" => {
                let mib = parse_mib(value).filter(|mib| *mib >= SIZE_MIB_MIN);
                let mib = mib.with_context(|| {
                    format!("size: expected at least {SIZE_MIB_MIN}MiB, e.g. 8GiB, found `{value}`")
                })?;
                changes.bytes = Some(mib << 20);
            }
            "lifetime" => {
                let seconds = value.parse().ok().filter(|it| (1..=LIFETIME_S_MAX).contains(it));
                changes.lifetime_s = Some(seconds.with_context(|| {
                    format!("lifetime: expected 1 to {LIFETIME_S_MAX} seconds, found `{value}`")
                })?);
            }
            _ => return Err(anyhow!("expected replicas, size or lifetime, found `{key}`")),
        }
    }
    Ok(changes)
}

fn parse_mib(text: &str) -> Option<u64> {
    let (digits, shift) = match (text.strip_suffix("MiB"), text.strip_suffix("GiB")) {
        (Some(digits), _) => (digits, 0),
        (_, Some(digits)) => (digits, 10),
        _ => return None,
    };
    let size: u32 = digits.parse().ok()?;
    Some(u64::from(size) << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Result<StreamChanges, String> {
        let words: Vec<String> = text.split_whitespace().map(String::from).collect();
        parse_changes(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_keys_and_values() {
        let all =
            StreamChanges { replicas: Some(3), bytes: Some(16 << 30), lifetime_s: Some(3600) };
        assert_eq!(changes("replicas 3 size 16GiB lifetime 3600"), Ok(all));
        assert_eq!(changes("size 16MiB").unwrap().bytes, Some(16 << 20));
        assert_eq!(changes(""), Ok(StreamChanges::default()));
        for (bad, why) in [
            ("replicas", "expected KEY VALUE, found `replicas` alone"),
            ("replica 3", "expected replicas, size or lifetime, found `replica`"),
            ("replicas 6", "replicas: expected 1 to 5"),
            ("size 8", "size: expected at least 16MiB"),
            ("size 8MiB", "size: expected at least 16MiB"),
            ("size -8GiB", "size: expected at least 16MiB"),
            ("lifetime 0", "lifetime: expected 1 to "),
        ] {
            let text = changes(bad).unwrap_err();
            assert!(text.starts_with(why), "{bad}: {text}");
        }
    }
}
