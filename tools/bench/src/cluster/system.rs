//! Two nodes of a tracker at a backbone, whichever tracker it is: tidegate, or one of `bench/cluster.toml`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Duration;

use ::load::udp::Sightings;
use anyhow::{Result, bail, ensure};
use harness::network::sites::{Backbone, Sites, backbone_address, site_client};
use harness::{Directory, PATIENCE, Process, wait_for};

use super::definitions::{self, SystemDefinition};
use super::nodes::{Cluster, ClusterPlan, Node, wait_until_joined};
use super::usage::{BACKBONE, Traffic, process_times};
use crate::lab::{Lab, Program, TemplateVars};
use crate::program::ProgramArgs;

/// The nodes' hosts, and that of what they share.
pub(super) const NODES: [u8; 2] = [1, 2];
pub(super) const SHARED: u8 = 3;
/// The time between the starts of two programs.
const APART: Duration = Duration::from_millis(1100);
/// The name of tidegate with a NATS server.
const TIDEGATE: &str = "tidegate, NATS";

/// A system whose programs are installed.
pub(super) enum System {
    Tidegate(ProgramArgs),
    Rival { name: String, prepare: Vec<String>, node: Box<Program>, shared: Option<Box<Program>> },
}

/// Returns the systems that are here, and a sentence for each that is not. `only` selects some.
pub(super) fn systems(lab: &Lab, only: &[String]) -> Result<(Vec<System>, Vec<String>)> {
    let definitions = definitions::read(&lab.bench)?;
    let names: Vec<_> =
        std::iter::once(TIDEGATE).chain(definitions.iter().map(|it| &*it.name)).collect();
    if let Some(name) = only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("unknown system {name}: expected one of {}", names.join("; "));
    }
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    if is_wanted(TIDEGATE) {
        here.push(System::Tidegate(ProgramArgs::of(lab.tidegate()?.tracker.path)));
    }
    for definition in definitions.into_iter().filter(|it| is_wanted(&it.name)) {
        let name = definition.name.clone();
        match find(lab, definition) {
            Ok(system) => here.push(system),
            Err(error) => missing.push(format!("skipping {name}: {error:#}")),
        }
    }
    Ok((here, missing))
}

fn find(lab: &Lab, definition: SystemDefinition) -> Result<System> {
    let SystemDefinition { name, prepare, node, shared, .. } = definition;
    let shared = shared.as_ref().map(|it| lab.find(it)).transpose()?.map(Box::new);
    let node = Box::new(lab.find(&node)?);
    Ok(System::Rival { name, prepare, node, shared })
}

/// Two running nodes.
pub(super) struct Pair {
    running: Running,
    /// The processes of the nodes, and those of what they share.
    processes: [Vec<u32>; 2],
}

enum Running {
    Tidegate { nodes: Vec<Node>, cluster: Box<Cluster> },
    // The processes end before the network does.
    Rival { _processes: Vec<Process>, sites: Sites, _folder: Directory },
}

impl System {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Tidegate(_) => TIDEGATE,
            Self::Rival { name, .. } => name,
        }
    }

    /// Returns the versions of its programs.
    pub(super) fn version(&self) -> String {
        match self {
            Self::Tidegate(_) => {
                let nats = harness::nats::MODULE.rsplit('@').next().unwrap_or_default();
                format!("{} + {}", env!("CARGO_PKG_VERSION"), nats.trim_start_matches('v'))
            }
            Self::Rival { node, shared, .. } => {
                let shared = shared.iter().map(|it| it.version.as_str());
                let all: Vec<&str> = std::iter::once(node.version.as_str()).chain(shared).collect();
                all.join(" + ")
            }
        }
    }

    /// Starts two nodes, and waits until they answer.
    pub(super) fn start(&self, backbone: Backbone) -> Result<Pair> {
        let pair = match self {
            Self::Tidegate(program) => start_tidegate(program, backbone)?,
            Self::Rival { prepare, node, shared, .. } => {
                start_rival((prepare, node, shared.as_deref()), backbone)?
            }
        };
        wait_for(PATIENCE, "both nodes to answer", || {
            let mut sightings = pair.sightings(1)?;
            let torrents = [types::InfoHash([1; 20])];
            for node in 0..NODES.len() {
                sightings.missing(node, &torrents)?;
            }
            Ok(true)
        })?;
        Ok(pair)
    }
}

fn start_tidegate(program: &ProgramArgs, backbone: Backbone) -> Result<Pair> {
    let plan =
        ClusterPlan { hosts: SHARED, backbone, servers: &[SHARED], stream_mib: 4096, more: "" };
    let cluster = Box::new(Cluster::start(program, plan)?);
    let nodes = vec![cluster.node(NODES[0])?, cluster.node(NODES[1])?];
    wait_until_joined(&nodes.iter().collect::<Vec<_>>())?;
    let processes = [nodes.iter().map(Node::process).collect(), cluster.nats_processes()];
    Ok(Pair { running: Running::Tidegate { nodes, cluster }, processes })
}

fn start_rival(
    (prepare, node, shared): (&[String], &Program, Option<&Program>),
    backbone: Backbone,
) -> Result<Pair> {
    super::arrangement::check_rights()?;
    let (sites, folder) = (Sites::new(SHARED, backbone)?, Directory::new()?);
    let (mut all, mut processes) = (Vec::new(), [Vec::new(), Vec::new()]);
    let shared = shared.map(|program| (SHARED, program));
    for (host, program) in shared.into_iter().chain(NODES.map(|host| (host, node))) {
        let vars = vars(host, program, &folder)?;
        let configuration = folder.path(&format!("{host}.conf"));
        fs::write(&configuration, vars.fill(&program.definition.configuration)?)?;
        let namespace = sites.host(host);
        if let [program, arguments @ ..] = vars.fill_all(prepare)?.as_slice()
            && host != SHARED
        {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            namespace.run_command(program, &arguments)?;
        }
        let words = vars.fill_all(&program.definition.start)?;
        let [name, arguments @ ..] = words.as_slice() else { bail!("`start` has no words") };
        let mut command = Command::new(name);
        command.args(arguments).current_dir(folder.root());
        let log = format!("host{host}");
        let start = || Process::start_with_one_log(command, folder.root(), &log);
        // Nodes that draw their ids from the second of their start must not start in the same one.
        thread::sleep(APART);
        let process = namespace.run(start)?;
        processes[usize::from(host == SHARED)].push(process.id());
        all.push(process);
    }
    let running = Running::Rival { _processes: all, sites, _folder: folder };
    Ok(Pair { running, processes })
}

fn vars(host: u8, program: &Program, folder: &Directory) -> Result<TemplateVars> {
    let other = NODES.iter().find(|other| **other != host).copied().unwrap_or(SHARED);
    let address = Cluster::address(host);
    let folder_of = folder.path(&format!("host{host}"));
    fs::create_dir_all(&folder_of)?;
    Ok(TemplateVars::default()
        .with("number", host)
        .with("address", address)
        .with("host", address.ip())
        .with("port", address.port())
        .with("backbone", backbone_address(host))
        .with("other", backbone_address(other))
        .with("shared", backbone_address(SHARED))
        .with("interface", BACKBONE)
        .with_path("folder", &folder_of)
        .with_path("program", &program.path)
        .with_path("configuration", &folder.path(&format!("{host}.conf"))))
}

/// What a pair has used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairUsage {
    /// CPU time of the nodes, and of what they share, in seconds.
    pub(super) nodes_s: f64,
    pub(super) shared_s: f64,
    /// Bytes that were sent at the backbone.
    pub(super) bytes: f64,
}

impl Pair {
    pub(super) fn sites(&self) -> &Sites {
        match &self.running {
            Running::Tidegate { cluster, .. } => &cluster.sites,
            Running::Rival { sites, .. } => sites,
        }
    }

    /// Opens a client of both nodes. `client` numbers it.
    pub(super) fn sightings(&self, client: u8) -> Result<Sightings> {
        let addresses: Vec<SocketAddr> = NODES.map(Cluster::address).into();
        let source = IpAddr::from(site_client(client));
        let open = || Sightings::new(&addresses, source, client.into());
        Ok(self.sites().clients().run(open)?.with_own_connection_ids())
    }

    /// Fails if a process has ended.
    pub(super) fn check(&self) -> Result<()> {
        let is_gone = self.processes.iter().flatten().any(|it| !harness::is_alive(*it));
        ensure!(!is_gone, "a process has ended");
        if let Running::Tidegate { nodes, .. } = &self.running {
            ensure!(nodes.len() == NODES.len(), "a node is gone");
        }
        Ok(())
    }

    pub(super) fn usage(&self) -> Result<PairUsage> {
        let [nodes, shared] = &self.processes;
        let hosts = NODES.into_iter().chain([SHARED]);
        let sent: Result<Vec<f64>> =
            hosts.map(|host| Ok(Traffic::of(self.sites().host(host))?.sent)).collect();
        Ok(PairUsage {
            nodes_s: process_times(nodes)?,
            shared_s: process_times(shared)?,
            bytes: sent?.iter().sum(),
        })
    }
}
