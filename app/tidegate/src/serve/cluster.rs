//! The cluster: what its thread asks of the tracker, and when it starts and stops.

mod host;
mod letters;
mod records;
mod secrets;
mod stats;

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admin::records::Writer;
use admin::{ClusterStats, Records};
use anyhow::{Context, Result};
use cluster::Letters;
use cluster::nats::{self, NatsOptions, Order, Setup, Status, Stop};
use front::Clock;
use front::webtorrent::RemoteLetters;
use net::process::lower_priority;
use replication::{Feed, Reservation};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};
use tracker::{Access, Tracker};

use super::time::unix_ms;
use super::workers::Workers;
use crate::cluster::{Join, nats_options};
use config::{ClusterConfig, Config};
use host::TrackerHost;
use letters::WorkerLetters;
use records::ClusterRecords;
use secrets::LiveSecrets;
use stats::Own;

/// A node that is configured, and has not started.
pub(super) struct OpenCluster {
    config: ClusterConfig,
    join: Join,
    secrets: Arc<LiveSecrets>,
    options: NatsOptions,
    /// The boot's number.
    boot: u64,
    policy: u64,
    status: Arc<Status>,
    /// Whether the other nodes ignore this one.
    is_ignored: Arc<AtomicBool>,
    orders: mpsc::UnboundedReceiver<Order>,
}

/// What a node gets of the rest of the process.
pub(super) struct ClusterInputs {
    pub(super) tracker: Arc<Tracker>,
    pub(super) clock: Clock,
    pub(super) feed: Arc<Feed>,
    /// From before the first announce.
    pub(super) reservation: Reservation,
    pub(super) records: Arc<Records>,
    /// Until when, unix ms, the store has everything; `None` if it was empty.
    pub(super) restored_ms: Option<u64>,
}

impl ClusterInputs {
    /// Returns what a node gets. Call before the first announce.
    pub(super) fn new(
        tracker: &Arc<Tracker>,
        clock: Clock,
        feed: &Arc<Feed>,
        records: &Arc<Records>,
        restored_ms: Option<u64>,
    ) -> Self {
        Self {
            tracker: Arc::clone(tracker),
            clock,
            reservation: feed.reserve(tracker.store()),
            feed: Arc::clone(feed),
            records: Arc::clone(records),
            restored_ms,
        }
    }
}

impl OpenCluster {
    /// Opens the node, if there is a cluster. Reads its join file.
    pub(super) fn open(config: &Config) -> Result<Option<Self>> {
        let Some(cluster) = &config.cluster else { return Ok(None) };
        let join = Join::read(&cluster.join)?;
        let secrets = Arc::new(LiveSecrets::new(join.secret()));
        let options = nats_options(config, cluster, &join, secrets.ids());
        let mut random = [0];
        getrandom::fill(&mut random).context("cannot get random numbers from the system")?;
        let (status, orders) = Status::new();
        Ok(Some(Self {
            config: cluster.clone(),
            join,
            secrets,
            options,
            boot: unix_ms() << 8 | u64::from(random[0]),
            policy: policy_digest(config),
            status: Arc::new(status),
            is_ignored: Arc::default(),
            orders,
        }))
    }

    /// Returns the join file.
    pub(super) fn join(&self) -> &Join {
        &self.join
    }

    /// Checks that the present user can read the join file: the client of NATS reads it with each connection.
    pub(super) fn check_readable(&self) -> Result<()> {
        if self.join.has_authority() {
            let path = self.config.join.display();
            File::open(&self.config.join).with_context(|| {
                format!("cluster.join: the tracker's user cannot read {path}: chown it")
            })?;
        }
        Ok(())
    }

    fn zone(&self) -> &str {
        if self.config.zone.is_empty() { self.join.zone() } else { &self.config.zone }
    }

    /// Returns what reads its statistics.
    fn stats(
        &self,
        tracker: &Arc<Tracker>,
        letters: Arc<OnceLock<RemoteLetters>>,
        records: &Arc<Records>,
    ) -> Box<dyn Fn() -> ClusterStats + Send + Sync> {
        let (status, tracker) = (Arc::clone(&self.status), Arc::clone(tracker));
        let records = Arc::clone(records);
        let own = Own {
            name: self.join.cluster.clone(),
            node: self.join.node,
            boot: self.boot,
            zone: self.zone().to_owned(),
            started: Instant::now(),
            is_ignored: Arc::clone(&self.is_ignored),
            secrets: Arc::clone(&self.secrets),
        };
        Box::new(move || {
            let letters = letters.get().map(RemoteLetters::counts).unwrap_or_default();
            let stats = stats::stats(&own, status.overview(), &tracker, letters);
            stats::with_records(stats, records.replication())
        })
    }

    /// Fetches the records that differ from those of another node. Takes a few seconds at most.
    fn fetch_records(&self, records: &Arc<Records>) {
        match nats::fetch_rows(&self.options, &self.status, &ClusterRecords(Arc::clone(records))) {
            Ok(Some(node)) => info!(node, "fetched the records that another node has"),
            Ok(None) => {}
            Err(error) => warn!(%error, "starting without all records of other nodes"),
        }
        // Before it reads what the others have sent under them.
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let read = runtime.map(|runtime| runtime.block_on(records.cluster_secrets()));
        match read {
            Ok(Ok(recorded)) => recorded.iter().for_each(|it| self.secrets.take_recorded(it)),
            Ok(Err(error)) => warn!(%error, "starting with the secret of the join file"),
            Err(error) => warn!(%error, "starting with the secret of the join file"),
        }
    }

    /// Fetches records, and shows what there is to see. The thread starts later.
    pub(super) fn prepare(self, workers: &Workers, inputs: ClusterInputs) -> ClusterState {
        self.fetch_records(&inputs.records);
        let stats = self.stats(&inputs.tracker, workers.letters(), &inputs.records);
        // Set once.
        let _ = workers.metric_sources().cluster.set(stats);
        ClusterState::Waiting(Box::new((self, inputs)))
    }

    /// Lets the records replicate, and ignores the nodes that they say. Call before their thread starts.
    pub(super) fn replicate(&self, writer: &mut Writer) -> Result<()> {
        writer.replicate(self.join.node, unix_ms).context("state.dir")?;
        let ignored = admin::ignored_nodes(writer).context("state.dir")?;
        ignored.into_iter().for_each(|node| self.ignore(node, true));
        Ok(())
    }

    fn ignore(&self, node: u8, is_ignored: bool) {
        ignore((self.join.node, &self.is_ignored), &self.status, node, is_ignored);
    }

    /// Lets `tracker` be this node. Call before there are peers.
    pub(super) fn attach(&self, tracker: &Arc<Tracker>) {
        tracker.store().set_node(self.join.node);
        tracker.downloads().replicate();
        self.secrets.attach(tracker);
    }

    /// Starts the thread.
    pub(super) fn start(self, workers: &mut Workers, inputs: ClusterInputs) -> Result<Cluster> {
        let zone = self.zone().to_owned();
        let Self { config, join, secrets, options, boot, policy, status, is_ignored, orders } =
            self;
        let peer_lifetime_s = options.peer_lifetime_s;
        let node = cluster::Options {
            node: join.node,
            boot,
            version: env!("CARGO_PKG_VERSION").into(),
            zone,
            policy,
            queue_bytes: config.queue_bytes,
            peer_lifetime_s,
            warm_wait_ms: u64::try_from(config.warm_wait.as_millis()).unwrap_or(u64::MAX),
            restored_ms: inputs.restored_ms,
        };
        let registry = Arc::clone(&workers.metric_sources().registry);
        let letters = WorkerLetters::new(workers.letters());
        let host = TrackerHost::new(inputs.tracker, inputs.clock, registry);
        let setup = Setup {
            options,
            node,
            host: Arc::new(host),
            feed: inputs.feed,
            reservation: inputs.reservation,
            letters: letters.map(|letters| Arc::new(letters) as Arc<dyn Letters>),
            rows: Some(Arc::new(ClusterRecords(inputs.records))),
            status: Arc::clone(&status),
            orders,
            lower_priority: || {
                // A failure has been logged at startup.
                let _ = lower_priority();
            },
        };
        let (stop, receiver) = watch::channel(Stop::No);
        let thread = workers.start_cluster(move || Ok(nats::run(setup, receiver)?))?;
        info!(name = join.cluster, node = join.node, "node of a cluster");
        Ok(Cluster { node: join.node, secrets, status, is_ignored, stop, thread })
    }
}

/// The cluster's part in the process.
#[derive(Default)]
pub(super) enum ClusterState {
    /// There is no cluster.
    #[default]
    None,
    /// Its thread starts when swarms are restored.
    Waiting(Box<(OpenCluster, ClusterInputs)>),
    Running(Cluster),
}

impl ClusterState {
    /// Starts the thread, unless it runs or there is no cluster.
    pub(super) fn start(&mut self, workers: &mut Workers) -> Result<()> {
        *self = match std::mem::take(self) {
            Self::Waiting(waiting) => {
                let (cluster, inputs) = *waiting;
                Self::Running(cluster.start(workers, inputs)?)
            }
            other => other,
        };
        Ok(())
    }

    /// Returns the number of this node, if it is one.
    pub(super) fn node(&self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Waiting(waiting) => Some(waiting.0.join.node),
            Self::Running(cluster) => Some(cluster.node),
        }
    }

    /// Returns the secrets of this node, if it is one.
    pub(super) fn secrets(&self) -> Option<&LiveSecrets> {
        match self {
            Self::None => None,
            Self::Waiting(waiting) => Some(&waiting.0.secrets),
            Self::Running(cluster) => Some(&cluster.secrets),
        }
    }

    /// Drops what another node sends from now on, or no longer.
    pub(super) fn ignore(&self, node: u8, is_ignored: bool) {
        match self {
            Self::None => {}
            Self::Waiting(waiting) => waiting.0.ignore(node, is_ignored),
            Self::Running(cluster) => {
                ignore((cluster.node, &cluster.is_ignored), &cluster.status, node, is_ignored);
            }
        }
    }

    /// Tells the other nodes that another process serves instead.
    pub(super) fn hand_over(&self) {
        if let Self::Running(cluster) = self {
            cluster.stop.send_replace(Stop::HandedOver);
        }
    }

    /// Publishes the last changes, once all workers have stopped. Gives up at `deadline`.
    pub(super) fn close(&self, deadline: Instant) {
        if let Self::Running(cluster) = self {
            cluster.close(deadline);
        }
    }
}

/// A node whose thread runs.
pub(super) struct Cluster {
    node: u8,
    secrets: Arc<LiveSecrets>,
    status: Arc<Status>,
    is_ignored: Arc<AtomicBool>,
    stop: watch::Sender<Stop>,
    thread: JoinHandle<()>,
}

/// Drops what `node` sends. A node always heeds itself, but shows that the others do not.
fn ignore(own: (u8, &AtomicBool), status: &Status, node: u8, is_ignored: bool) {
    if node == own.0 {
        own.1.store(is_ignored, Ordering::Relaxed);
    } else if status.is_ignored(node) != is_ignored {
        // Changes of this node's own records come twice.
        status.order(Order { node, is_ignored });
    }
}

impl Cluster {
    fn close(&self, deadline: Instant) {
        self.stop.send_replace(Stop::Now);
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                warn!("stopping without the thread of the cluster: it does not end");
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns a digest of what should be the same on all nodes.
fn policy_digest(config: &Config) -> u64 {
    use std::fmt::Write;
    let mut text = format!("{:?}", config.policy);
    for policy in &config.listener_policies {
        let is_private = policy.access == Access::Private;
        // Writing to a string cannot fail. Files have other names and the same content.
        let _ = write!(text, "|{:?} {:?} {is_private}", policy.mode, policy.private_addresses);
        for path in policy.files() {
            let content = std::fs::read(path).unwrap_or_default();
            let _ = write!(
                text,
                " {:?}",
                aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content)
            );
        }
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
