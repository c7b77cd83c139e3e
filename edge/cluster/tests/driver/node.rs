//! A node without a tracker: a store, and the driver.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::PATIENCE;
use harness::nats::Nats;
use primitives::Random;
use replication::{Feed, Now};
use swarm::{Action, Options, PeerCaps, StoreAnnounce};
use tidegate_cluster::nats::{
    self, Made, NatsOptions, Overview, Setup, Status, Stop, StreamChanges, StreamSettings,
};
use tidegate_cluster::{AccountBatch, DropReason, Figures, Host, PeerTimes, Rows, Store};
use tokio::sync::watch;
use types::{Families, InfoHash, PeerId, PeerKey, Role, Tick};

use crate::rows::{Map, TestRows};

/// The name of the cluster in all tests.
pub(crate) const NAME: &str = "test";
/// Identifier of the secret.
pub(crate) const SECRET: [u8; 4] = [0xa1, 0xb2, 0xc3, 0xd4];
const LIFETIME_S: u32 = 2700;
const SETTINGS: StreamSettings =
    StreamSettings { replicas: 1, bytes: 64 << 20, lifetime_s: LIFETIME_S };

/// The memory of a tracker that does nothing else.
pub(crate) struct TestHost {
    store: Store,
    epoch_ms: u64,
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

impl TestHost {
    fn new(node: u8) -> Self {
        let store = Store::new(&Options {
            shards: 2,
            hash_key: [node; 16],
            peer_lifetime_s: LIFETIME_S,
            web_lifetime_s: LIFETIME_S,
            keep_peer_ids: false,
            memory_budget: None,
        });
        store.set_node(node);
        // A multiple of the unit of age, as in all nodes, and some time ago.
        let epoch_ms = (unix_ms() / 16_000 - 1000) * 16_000;
        Self { store, epoch_ms }
    }
}

impl Host for TestHost {
    fn store(&self) -> &Store {
        &self.store
    }

    fn now(&self) -> Now {
        let unix_ms = unix_ms();
        Now { tick: Tick(((unix_ms - self.epoch_ms) / 1000) as u32), unix_ms }
    }

    fn peer_times(&self) -> PeerTimes {
        PeerTimes { lifetime_s: LIFETIME_S, interval_s: 1800 }
    }

    fn figures(&self) -> Figures {
        Figures { peers: [self.peers(), 0, 0], ..Figures::default() }
    }

    fn take_sessions(&self, _: Now, _: &mut Vec<u8>) -> bool {
        false
    }

    fn import_sessions(&self, _: Now, _: u32, _: &[u8]) {}

    fn take_accounts(&self) -> Option<Vec<u8>> {
        None
    }

    fn import_accounts(&self, _: &[u8]) {}

    fn accounts_lost(&self) {}

    fn next_batch(&self) -> Option<AccountBatch> {
        None
    }

    fn confirm_batch(&self, _: &str) {}
}

impl TestHost {
    fn peers(&self) -> u64 {
        let totals = self.store.totals();
        [totals.v4, totals.v6].iter().map(|it| it.seeders + it.leechers).sum()
    }
}

/// State that a peer announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Leecher,
    Seeder,
    Stopped,
}

/// A node. It ends when it is dropped.
pub(crate) struct TestNode {
    pub(crate) host: Arc<TestHost>,
    pub(crate) rows: Arc<TestRows>,
    pub(crate) status: Arc<Status>,
    stop: watch::Sender<Stop>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// Returns what a node connects with.
pub(crate) fn options(node: u8, servers: Vec<String>) -> NatsOptions {
    NatsOptions {
        name: NAME.into(),
        node,
        servers,
        requires_tls: false,
        user: None,
        ca: None,
        secret_ids: vec![SECRET].into(),
        access: "open".into(),
        accepts_any_access: false,
        flush: Duration::from_millis(20),
        peer_lifetime_s: LIFETIME_S,
    }
}

/// Makes the stream with this many replicas, or undoes what others have set. All tests share the disk.
pub(crate) fn make_stream(nats: &Nats, replicas: usize) {
    let recorded = StreamSettings { replicas, ..SETTINGS };
    let options = options(1, nats.urls("nats"));
    nats::make_stream(&options, recorded, StreamChanges::default(), false).unwrap();
}

/// Changes the stream as the operator's command does.
pub(crate) fn change_stream(
    nats: &Nats,
    changes: StreamChanges,
    may_shrink: bool,
) -> std::io::Result<Made> {
    nats::make_stream(&options(1, nats.urls("nats")), SETTINGS, changes, may_shrink)
}

impl TestNode {
    /// Starts a node with these servers.
    pub(crate) fn start(node: u8, nats: &Nats) -> Self {
        Self::start_with(options(node, nats.urls("nats")))
    }

    pub(crate) fn start_with(options: NatsOptions) -> Self {
        let rows = TestRows::new(options.node, Map::new());
        Self::start_with_rows(options, rows)
    }

    pub(crate) fn start_with_rows(options: NatsOptions, rows: TestRows) -> Self {
        let rows = Arc::new(rows);
        let host = Arc::new(TestHost::new(options.node));
        let feed = Arc::<Feed>::default();
        let reservation = feed.reserve(host.store());
        let (status, orders) = Status::new();
        let status = Arc::new(status);
        let setup = Setup {
            node: tidegate_cluster::Options {
                node: options.node,
                boot: unix_ms() << 8 | u64::from(options.node),
                version: "0.0.0".into(),
                zone: String::new(),
                policy: 0,
                queue_bytes: 4 << 20,
                peer_lifetime_s: LIFETIME_S,
                warm_wait_ms: 3000,
                restored_ms: None,
            },
            options,
            host: Arc::clone(&host) as Arc<dyn Host>,
            feed,
            reservation,
            letters: None,
            rows: Some(Arc::clone(&rows) as Arc<dyn Rows>),
            status: Arc::clone(&status),
            orders,
            lower_priority: || {},
        };
        let (stop, receiver) = watch::channel(Stop::No);
        let thread = Some(thread::spawn(move || nats::run(setup, receiver)));
        Self { host, rows, status, stop, thread }
    }

    /// Waits until it knows what the others know.
    pub(crate) fn wait_until_warm(self) -> Self {
        self.wait("warm", |node| node.status.is_warm());
        self
    }

    /// Announces a peer at this node.
    pub(crate) fn announce(&self, torrent: u8, peer: u32, says: Says) {
        let action = match says {
            Says::Stopped => Action::Stop,
            Says::Leecher | Says::Seeder => Action::Update { completed: false },
        };
        let announce = StoreAnnounce {
            slot: 0,
            info_hash: InfoHash([torrent; 20]),
            peer: PeerKey::new((0x0a00_0000 + peer).to_be_bytes().into(), 6881),
            peer_id: PeerId([0; 20]),
            role: if says == Says::Leecher { Role::Leecher } else { Role::Seeder },
            action,
            min_interval_s: 0,
            caps: PeerCaps::default(),
            want: 0,
            families: Families::Own,
        };
        let (host, mut random) = (&self.host, Random::new(1));
        host.store.announce(host.now().tick, &mut random, &[announce], &mut |_, _| {});
    }

    pub(crate) fn peers(&self) -> u64 {
        self.host.peers()
    }

    pub(crate) fn overview(&self) -> Overview {
        self.status.overview()
    }

    /// Returns how many messages were dropped for a reason.
    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        let counts = DropReason::ALL.into_iter().zip(self.overview().node.dropped);
        counts.filter(|(it, _)| it.name() == reason).map(|(_, count)| count).sum()
    }

    /// Waits until `is_so`.
    pub(crate) fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let result = harness::wait_for(PATIENCE, what, || Ok(is_so(self)));
        result.unwrap_or_else(|error| panic!("{error:#}: {:#?}", self.overview()));
    }

    /// Ends the node as a shutdown does.
    pub(crate) fn end(mut self) {
        self.stop.send_replace(Stop::Now);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop.send_replace(Stop::Now);
        if let Some(thread) = self.thread.take()
            && !thread::panicking()
        {
            thread.join().unwrap().unwrap();
        }
    }
}
