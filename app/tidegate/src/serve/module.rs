//! The life of a subsystem within the process. `modules.rs` lists the subsystems; `serve.rs` and `serving.rs` call each
//! phase of life for all of them before the next phase.

use std::sync::Arc;
use std::time::Instant;

use ::xdp::WorkerQueues;
use admin::records::Writer;
use admin::{Command, Records, UpgradeStats};
use anyhow::Result;
use front::Clock;
use net::UdpWorker;
use net::process::InheritedSockets;
use net::tls::Certificates;
use replication::SharedAccounts;
use tracker::{SharedSecrets, Tracker};

use super::handoff::HandoffState;
use super::listeners::BoundListeners;
use super::transfer::Reception;
use super::upgrade::Upgrader;
use super::workers::Workers;
use crate::access::AccessState;
use config::Config;
pub(crate) use subsystem::Findings;
use swarm::Feed;

/// A subsystem that a build or a configuration may lack. Its phases come in the order of these methods; those that it
/// does not implement do nothing. An error of a phase that starts something ends the process.
pub(crate) trait Module {
    /// Adds what there is to say about serving `config` on this machine, for `tidegate config check`. The subsystem is
    /// new, and no other phase follows. `is_running` is true if a running tidegate has the ports of `config`.
    fn check(&self, _config: &Config, _is_running: bool, _findings: &mut Findings) {}

    /// Checks that a configuration can be applied by a reload, and creates what it needs. Reloads call it for a new
    /// subsystem, on a thread of their own.
    fn prepare(&self, _config: &Config) -> Result<()> {
        Ok(())
    }

    /// Makes this process a node of a cluster, before there is a tracker.
    fn join(&mut self, _config: &Config) -> Result<Option<Membership>> {
        Ok(None)
    }

    /// Opens what needs rights that the process is about to give up. The listeners are bound, and serve nothing yet.
    fn open(&mut self, _opening: &mut Opening<'_>) -> Result<()> {
        Ok(())
    }

    /// Reads the files of the subsystem, as the final user and before the sandbox.
    fn load(&mut self, _loading: &mut Loading<'_>) -> Result<()> {
        Ok(())
    }

    /// Starts what runs before clients are served. The management API serves already.
    fn start(&mut self, _running: &mut Running<'_>) -> Result<()> {
        Ok(())
    }

    /// Equips the UDP worker of this number before it starts. Returns its AF_XDP sockets if the subsystem has them.
    fn equip(&mut self, _number: usize, _worker: &mut UdpWorker) -> Option<WorkerQueues> {
        None
    }

    /// Starts what runs while clients are served.
    fn serve(&mut self, _running: &mut Running<'_>) -> Result<()> {
        Ok(())
    }

    /// Completes the upgrade that has started this process: the old process serves no more.
    fn take_over(&mut self, _upgrader: &mut Upgrader) {}

    /// Starts what needs all swarms. They are restored, which may take longer than the start waits.
    fn settle(&mut self, _running: &mut Running<'_>) -> Result<()> {
        Ok(())
    }

    fn tick(&mut self) {}

    fn configure(&mut self, _config: &Config) {}

    /// Reads again what a reload by signal refreshes beside the configuration.
    fn refresh(&mut self) {}

    /// Executes a command of the API. Returns it if it is for another subsystem.
    fn execute(&mut self, command: Command) -> Option<Command> {
        Some(command)
    }

    /// Leaves to the new process of an upgrade what only one of them can have.
    fn hand_over(&mut self) -> Result<()> {
        Ok(())
    }

    /// Stops, after all workers. Gives up at `deadline`.
    fn stop(&mut self, _deadline: Instant) {}
}

pub(crate) struct Membership {
    pub(crate) node: u8,
    pub(crate) session_key: [u8; 16],
    /// The keys that all nodes have.
    pub(crate) shared: SharedSecrets,
}

/// The process while it opens what needs rights.
pub(crate) struct Opening<'a> {
    /// The XDP program changes the engine if it cannot be attached.
    pub(crate) config: &'a mut Config,
    pub(crate) bound: &'a BoundListeners,
    pub(crate) inherited: &'a mut InheritedSockets,
    pub(crate) tracker: &'a Arc<Tracker>,
    pub(crate) node: Option<u8>,
    /// Set by the XDP program.
    pub(crate) engine: EngineStatus,
    /// Set by the site, for the cluster.
    pub(crate) accounts: Option<Arc<dyn SharedAccounts>>,
}

/// The engine of UDP, as users see it.
#[derive(Default)]
pub(crate) struct EngineStatus {
    /// Its name and where its program runs, if it has one.
    pub(crate) text: Option<String>,
    /// Why it is not the configured one, if so.
    pub(crate) fallback: Option<String>,
}

/// The process while it reads files, as the final user.
pub(crate) struct Loading<'a> {
    pub(crate) config: &'a Config,
    pub(crate) certificates: &'a Certificates,
    pub(crate) handoff: &'a mut HandoffState,
    pub(crate) writer: &'a mut Writer,
    /// True if an old process hands over.
    pub(crate) is_upgrade: bool,
    /// Filled by the subsystems.
    pub(crate) loaded: Loaded,
}

/// Facts about loaded subsystems that the rest of the process needs.
#[derive(Default)]
pub(crate) struct Loaded {
    /// The ports of other machines that the process connects to, beside those of the configuration.
    pub(crate) ports: Vec<u16>,
    /// Until when, unix ms, the store will have everything when swarms are restored; `None` if there are none.
    pub(crate) restored_ms: Option<u64>,
}

/// The process in its sandbox.
pub(crate) struct Running<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) config: &'a Config,
    pub(crate) access: &'a AccessState,
    pub(crate) workers: &'a mut Workers,
    pub(crate) upgrader: &'a mut Upgrader,
    pub(crate) notify: &'a Notify,
}

pub(crate) struct Shared {
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) clock: Clock,
    pub(crate) records: Arc<Records>,
    pub(crate) feed: Arc<Feed>,
    /// Statistics of the swarms that an old process sends.
    pub(crate) upgrade_stats: Arc<UpgradeStats>,
    /// The progress of swarms that an old process sends.
    pub(crate) reception: Arc<Reception>,
    /// Until when, unix ms, the store has everything when swarms are restored; `None` if it was empty.
    pub(crate) restored_ms: Option<u64>,
}

/// A report of a subsystem to the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// All swarms that there were are restored.
    SwarmsRestored,
    /// A folder has other torrents than before.
    TorrentsChanged,
}

pub(crate) type Notify = Arc<dyn Fn(Notice) + Send + Sync>;
