//! The cluster: what its thread asks of the tracker, and when it starts and stops.

mod host;
mod secrets;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use admin::records::{KINDS, Writer};
use admin::{Command, Records};
use anyhow::{Context, Result};
use cluster::nats::{self, NatsOptions, Order, SecretIds, Setup, Status, Stop};
use cluster::{Identity, Letters};
use net::process::lower_priority;
use replication::SharedAccounts;
use swarm::Reservation;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};
use tracker::Access;

use super::module::{Findings, Loading, Membership, Module, Opening, Running, Shared};
use super::time::unix_ms;
use super::workers::{ends_by, give_way};
use crate::cluster::secret::Secrets;
use crate::cluster::{Join, nats_options};
use config::{ClusterConfig, Config};
use host::{RecordRows, StatusSource, TrackerHost, WorkerLetters};
use secrets::LiveSecrets;

#[derive(Default)]
pub(super) struct ClusterModule(Option<Node>);

impl Module for ClusterModule {
    fn check(&self, config: &Config, is_running: bool, findings: &mut Findings) {
        let Some(cluster) = &config.cluster else { return };
        let checked = Join::read(&cluster.join).and_then(|join| {
            let ids = SecretIds::from(Secrets::from(join.secret()).ids());
            Ok(nats::check(&nats_options(config, cluster, &join, ids), is_running, findings)?)
        });
        findings.problems.extend(checked.err().map(|error| format!("{error:#}")));
    }

    fn join(&mut self, config: &Config) -> Result<Option<Membership>> {
        self.0 = config.cluster.as_ref().map(|cluster| Node::open(config, cluster)).transpose()?;
        let Some(Node { join, .. }) = &self.0 else { return Ok(None) };
        let shared = join.secret().keys();
        Ok(Some(Membership { node: join.node, session_key: join.session_key(), shared }))
    }

    /// Makes the tracker this node, before there are peers.
    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        let Some(node) = &mut self.0 else { return Ok(()) };
        node.accounts = opening.accounts.take();
        let tracker = opening.tracker;
        tracker.store().set_node(node.join.node);
        tracker.downloads().replicate();
        node.secrets.attach(tracker);
        Ok(())
    }

    fn load(&mut self, loading: &mut Loading<'_>) -> Result<()> {
        let Some(node) = &self.0 else { return Ok(()) };
        node.check_readable()?;
        node.replicate(loading.writer)?;
        loading.loaded.ports.extend(node.join.ports());
        Ok(())
    }

    /// Fetches records, and shows what there is to see. The thread starts when swarms are restored.
    fn start(&mut self, running: &mut Running<'_>) -> Result<()> {
        let Some(node) = &mut self.0 else { return Ok(()) };
        let Shared { tracker, feed, records, .. } = running.shared;
        node.reservation = Some(feed.reserve(tracker.store()));
        node.fetch_records(records);
        let source = node.status_source(running);
        running.workers.metric_sources().subsystems.add("cluster", move || source.read());
        Ok(())
    }

    fn settle(&mut self, running: &mut Running<'_>) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), |node| node.start(running))
    }

    fn tick(&mut self) {
        self.0.iter().for_each(|node| node.secrets.expire());
    }

    fn execute(&mut self, command: Command) -> Option<Command> {
        let Some(node) = &self.0 else { return Some(command) };
        match command {
            Command::NodeIgnored { node: other, is_ignored } => node.ignore(other, is_ignored),
            Command::ChangeSecret { step, reply } => drop(reply.send(node.secrets.changed(&step))),
            Command::SecretsRecorded(recorded) => node.secrets.take_recorded(&recorded),
            other => return Some(other),
        }
        None
    }

    /// Tells the other nodes that another process serves instead.
    fn hand_over(&mut self) -> Result<()> {
        if let Some(thread) = self.thread() {
            thread.stop.send_replace(Stop::HandedOver);
        }
        Ok(())
    }

    fn stop(&mut self, deadline: Instant) {
        let Some(thread) = self.thread() else { return };
        thread.stop.send_replace(Stop::Now);
        if !ends_by(&thread.thread, deadline) {
            warn!("stopping without the thread of the cluster: it does not end");
        }
    }
}

impl ClusterModule {
    fn thread(&self) -> Option<&NodeThread> {
        self.0.as_ref()?.thread.as_ref()
    }
}

struct Node {
    config: ClusterConfig,
    join: Join,
    secrets: Arc<LiveSecrets>,
    options: NatsOptions,
    boot: u64,
    policy: u64,
    status: Arc<Status>,
    is_ignored: Arc<AtomicBool>,
    /// Accounts that the nodes exchange, if there is a site. Taken by the thread.
    accounts: Option<Arc<dyn SharedAccounts>>,
    /// Taken by the thread.
    orders: Option<mpsc::UnboundedReceiver<Order>>,
    /// The changes since before the first announce. Taken by the thread.
    reservation: Option<Reservation>,
    thread: Option<NodeThread>,
}

/// The thread of a node. [`Workers::stop`](super::workers::Workers::stop) does not stop it, because it publishes what
/// the workers change last.
struct NodeThread {
    stop: watch::Sender<Stop>,
    thread: JoinHandle<()>,
}

impl Node {
    fn open(config: &Config, cluster: &ClusterConfig) -> Result<Self> {
        let join = Join::read(&cluster.join)?;
        let secrets = Arc::new(LiveSecrets::new(join.secret()));
        let options = nats_options(config, cluster, &join, secrets.ids());
        let mut random = [0];
        getrandom::fill(&mut random).context("cannot get random numbers from the system")?;
        let (status, orders) = Status::new();
        Ok(Self {
            config: cluster.clone(),
            join,
            secrets,
            options,
            boot: unix_ms() << 8 | u64::from(random[0]),
            policy: policy_digest(config),
            status: Arc::new(status),
            is_ignored: Arc::default(),
            accounts: None,
            orders: Some(orders),
            reservation: None,
            thread: None,
        })
    }

    /// Checks that the present user can read the join file: the client of NATS reads it with each connection.
    fn check_readable(&self) -> Result<()> {
        if self.join.has_authority() {
            let path = self.config.join.display();
            File::open(&self.config.join).with_context(|| {
                format!("cluster.join: the tracker's user cannot read {path}: chown it")
            })?;
        }
        Ok(())
    }

    fn status_source(&self, running: &Running<'_>) -> StatusSource {
        let Shared { tracker, records, .. } = running.shared;
        StatusSource {
            identity: Identity {
                cluster: self.join.cluster.clone(),
                node: self.join.node,
                boot: self.boot,
                version: env!("CARGO_PKG_VERSION"),
                zone: self.join.zone().to_owned(),
                started: Instant::now(),
            },
            status: Arc::clone(&self.status),
            tracker: Arc::clone(tracker),
            letters: running.workers.letters(),
            records: Arc::clone(records),
            is_ignored: Arc::clone(&self.is_ignored),
            secrets: Arc::clone(&self.secrets),
        }
    }

    /// Fetches the records that differ from those of another node. Takes a few seconds at most.
    fn fetch_records(&self, records: &Arc<Records>) {
        match nats::fetch_rows(&self.options, &self.status, &RecordRows(Arc::clone(records))) {
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

    /// Replicates the records, and ignores the nodes that they say. Call before their thread starts.
    fn replicate(&self, writer: &mut Writer) -> Result<()> {
        writer.replicate(self.join.node, unix_ms).context("state.dir")?;
        let ignored = admin::ignored_nodes(writer).context("state.dir")?;
        ignored.into_iter().for_each(|node| self.ignore(node, true));
        Ok(())
    }

    /// Drops what `node` sends from now on, or no longer. A node always heeds itself, but shows that the others do not.
    fn ignore(&self, node: u8, is_ignored: bool) {
        if node == self.join.node {
            self.is_ignored.store(is_ignored, Ordering::Relaxed);
        } else if self.status.is_ignored(node) != is_ignored {
            // Changes of this node's own records come twice.
            self.status.order(Order { node, is_ignored });
        }
    }

    /// Starts the thread, unless it runs.
    fn start(&mut self, running: &Running<'_>) -> Result<()> {
        let (Some(reservation), Some(orders)) = (self.reservation.take(), self.orders.take())
        else {
            return Ok(());
        };
        let Running { shared, workers, .. } = running;
        let node = cluster::Options {
            node: self.join.node,
            boot: self.boot,
            version: env!("CARGO_PKG_VERSION").into(),
            zone: self.join.zone().to_owned(),
            kinds: &KINDS,
            policy: self.policy,
            queue_bytes: self.config.queue_bytes,
            peer_lifetime_s: self.options.peer_lifetime_s,
            warm_wait_ms: u64::try_from(self.config.warm_wait.as_millis()).unwrap_or(u64::MAX),
            restored_ms: shared.restored_ms,
        };
        let registry = Arc::clone(&workers.metric_sources().registry);
        let letters = WorkerLetters::new(workers.letters());
        let tracker = Arc::clone(&shared.tracker);
        let accounts = self.accounts.take();
        let host = TrackerHost::new(tracker, shared.clock, registry, accounts);
        let setup = Setup {
            options: self.options.clone(),
            node,
            host: Arc::new(host),
            feed: Arc::clone(&shared.feed),
            reservation,
            letters: letters.map(|letters| Arc::new(letters) as Arc<dyn Letters>),
            rows: Arc::new(RecordRows(Arc::clone(&shared.records))),
            status: Arc::clone(&self.status),
            orders,
            lower_priority: give_way,
        };
        let (stop, receiver) = watch::channel(Stop::No);
        let thread =
            workers.spawn("cluster", lower_priority, move || Ok(nats::run(setup, receiver)?))?;
        self.thread = Some(NodeThread { stop, thread });
        info!(name = self.join.cluster, node = self.join.node, "node of a cluster");
        Ok(())
    }
}

/// Returns a digest of what should be the same on all nodes.
fn policy_digest(config: &Config) -> u64 {
    let mut text = format!("{:?}", config.policy);
    for policy in &config.listener_policies {
        let is_private = policy.access == Access::Private;
        text += &format!("|{:?} {:?} {is_private}", policy.mode, policy.private_addresses);
        for list in policy.lists() {
            let path = match list.source {
                config::ListSource::File(path) => path,
                config::ListSource::Url(url) => &url.copy,
            };
            let content = std::fs::read(path).unwrap_or_default();
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content);
            text += &format!(" {digest:?}");
        }
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
