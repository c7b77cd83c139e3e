//! A cluster under load: what steps act on, and what is watched meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::Api;
use bench::cluster::{PATIENCE, PEER_LIFETIME, TestCluster};
use harness::network::Link;
use harness::network::sites::{site_client, site_client_v6};
use load::udp::{Roster, RosterOptions, RosterTask, Routes, Sightings};
use load::{Counters, Latencies, LoopMode};

use super::agreement::{self, Agreement, Excuses};
use super::browsers::Browsers;
use super::steps::{Allowed, Step};
use crate::swarms;

/// Announces per second.
const RATE: f64 = 400.0;
/// Peers of the load, and torrents that the API lists one by one after every step.
const PEERS: u32 = 12_000;
const TORRENTS: u32 = 400;
/// Nodes know the order of two announces of a peer if more than a unit of ages, 16 s, is between them.
const REST_MS: u32 = 20_000;
/// Of a thousand announces, those that stop or complete.
const CHANGES_PERMILLE: u32 = 100;
/// Peers that come while NATS is away: more than three queues of 1 MiB hold.
const CROWD: u32 = 240_000;
const CROWD_CLIENT: u8 = 100;
/// Pause between two observed peers.
const OBSERVE_EVERY: Duration = Duration::from_millis(20);

/// A cluster under load.
pub(super) struct Stage {
    pub(super) cluster: TestCluster,
    pub(super) excuses: Excuses,
    /// True if every step takes its full time.
    pub(super) is_full: bool,
    /// The number of networks that were banned.
    bans: u8,
    roster: Option<Roster>,
    _browsers: Browsers,
    routes: Arc<Routes>,
    /// Number of times that a node was killed, left out or used again.
    interruptions: Arc<AtomicU32>,
    /// Time that a peer may be unknown elsewhere before it is counted as unseen.
    unseen_after: Duration,
}

/// Outcome of a step.
pub(super) struct Outcome {
    pub(super) counters: Counters,
    /// Until all other nodes knew a peer.
    pub(super) seen: Latencies,
    /// Peers that a node did not know in time.
    pub(super) unseen: u64,
    pub(super) agreement: Agreement,
    /// The step's own summary.
    pub(super) text: String,
    pub(super) took: Duration,
}

impl Stage {
    /// Connects a load to all nodes. This thread must be in the clients' namespace.
    pub(super) fn new(cluster: TestCluster, unseen_after: Duration, is_full: bool) -> Result<Self> {
        let mut roster = Roster::new(&RosterOptions {
            torrents: TORRENTS,
            peers: PEERS,
            sockets: 16,
            first_source: site_client(1),
            source_v6: site_client_v6(1),
            changes_permille: CHANGES_PERMILLE,
            rest_ms: REST_MS,
            torrent_peers_max: 900,
            want: 30,
            outstanding: 256,
            ..RosterOptions::default()
        })?;
        connect(&mut roster, &cluster)?;
        let routes = roster.routes();
        list_torrents(&cluster, &roster)?;
        swarms::fill(&mut roster)?;
        // From now on peers complete and stop.
        thread::sleep(Duration::from_millis(REST_MS.into()));
        let browsers = Browsers::start(cluster.numbers());
        Browsers::wait_until_known(&cluster)?;
        Ok(Self {
            cluster,
            excuses: Excuses::default(),
            is_full,
            bans: 0,
            roster: Some(roster),
            _browsers: browsers,
            routes,
            interruptions: Arc::default(),
            unseen_after,
        })
    }

    /// Has many more peers announce to all nodes at once. They do nothing afterwards.
    pub(super) fn crowd(&self) -> Result<Roster> {
        let mut crowd = Roster::new(&RosterOptions {
            seed: 2,
            torrents: 3 * TORRENTS,
            peers: CROWD,
            sockets: 4,
            has_v6: false,
            first_source: site_client(CROWD_CLIENT),
            torrent_peers_max: 600,
            outstanding: 256,
            ..RosterOptions::default()
        })?;
        connect(&mut crowd, &self.cluster)?;
        swarms::fill(&mut crowd)?;
        Ok(crowd)
    }

    /// Has requests go to a node, or no longer.
    pub(super) fn route(&self, node: u8, is_used: bool) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
        self.routes.set(usize::from(node) - 1, is_used);
    }

    /// Returns a network that no client is in and no step has banned.
    pub(super) fn next_ban(&mut self) -> String {
        self.bans += 1;
        format!("203.0.113.{}/32", self.bans)
    }

    /// Waits until peers that were heard before have expired: two lifetimes if steps take their full time, one otherwise.
    pub(super) fn hold_for_lifetimes(&self) {
        let lifetime_s = PEER_LIFETIME.as_secs() as u32;
        self.hold(2 * lifetime_s, lifetime_s + 10);
    }

    /// Waits, for the first of these times if steps take their full time.
    pub(super) fn hold(&self, full_s: u32, short_s: u32) {
        let seconds = if self.is_full { full_s } else { short_s };
        thread::sleep(Duration::from_secs(seconds.into()));
    }

    /// Kills a node. What it had not sent is excused.
    pub(super) fn kill(&mut self, node: u8) {
        self.excuses.kill();
        self.interruptions.fetch_add(1, Ordering::Relaxed);
        self.cluster.kill_node(node);
        self.route(node, false);
        self.excuses.kill();
    }

    /// Starts a node, and sends requests to it when it is ready.
    pub(super) fn start(&mut self, node: u8) -> Result<()> {
        self.cluster.start_node(node)?;
        self.route(node, true);
        Ok(())
    }

    /// Has everything run again after a step that failed.
    pub(super) fn repair(&mut self) -> Result<()> {
        self.cluster.sites.set_links(Link::default());
        let stopped: Vec<usize> = (0..3).filter(|it| !self.cluster.nats.is_running(*it)).collect();
        stopped.into_iter().try_for_each(|server| self.cluster.nats.restart(server))?;
        self.cluster.nats.wait_until_ready()?;
        for node in self.cluster.numbers() {
            self.cluster.set_variables(node, Vec::new());
            self.cluster.set_sections(node, "");
            if !self.cluster.running().contains(&node) {
                self.cluster.start_node(node)?;
            }
            self.route(node, true);
        }
        self.cluster.wait_until_settled()
    }

    /// Plays a step under load, and waits until all nodes agree.
    pub(super) fn play(&mut self, step: &Step) -> Result<Outcome> {
        let began = Instant::now();
        let mut roster = self.roster.take().context("the load has ended")?;
        let stop = AtomicBool::new(false);
        let observer = Observer {
            routes: Arc::clone(&self.routes),
            interruptions: Arc::clone(&self.interruptions),
            unseen_after: self.unseen_after,
        };
        let task = RosterTask::Announce(LoopMode::Open { rate: RATE });
        let played = thread::scope(|scope| {
            let observing = scope.spawn(|| observer.run(&stop));
            let played = swarms::announce_while(&mut roster, task, swarms::PATIENT, || {
                let text = (step.run)(self)?;
                self.cluster.wait_until_settled()?;
                Ok(text)
            });
            stop.store(true, Ordering::Relaxed);
            let observed = observing.join().ok().context("the observer panicked")??;
            Ok::<_, anyhow::Error>((played?, observed))
        });
        // A node doubts for 30 s that the log has lost its end, and tells then what was in it.
        let agreement = agreement::wait(&self.cluster, &roster, &mut self.excuses);
        self.roster = Some(roster);
        let ((counters, text), (seen, unseen)) = played?;
        let agreement = agreement?;
        self.cluster.wait_until_verified()?;
        Browsers::wait_until_known(&self.cluster)?;
        let took = began.elapsed();
        Ok(Outcome { counters, seen, unseen, agreement, text, took })
    }
}

impl Outcome {
    /// Fails if something happened that the step does not allow.
    pub(super) fn check(&self, allowed: Allowed) -> Result<()> {
        let Counters { sent, lost, errors, .. } = &self.counters;
        ensure!(*sent > 0, "nothing was announced");
        let refused: Vec<_> = errors.iter().filter(|(text, _)| !is_of_a_dead_node(text)).collect();
        ensure!(refused.is_empty(), "answers were refused or wrong: {refused:?}");
        ensure!(allowed.lost || *lost == 0, "{lost} of {sent} requests were not answered");
        ensure!(allowed.lost || errors.is_empty(), "requests could not be sent: {errors:?}");
        ensure!(
            allowed.unseen || self.unseen == 0,
            "{} peers were not seen elsewhere",
            self.unseen
        );
        Ok(())
    }
}

/// Connects a roster to all nodes.
fn connect(roster: &mut Roster, cluster: &TestCluster) -> Result<()> {
    let addresses: Vec<_> = cluster.numbers().map(TestCluster::udp).collect();
    let nodes: Vec<_> = addresses.iter().map(|it| it.as_slice()).collect();
    roster.connect(&nodes)
}

/// Returns true if an error has the system's text for a port where nothing listens.
fn is_of_a_dead_node(text: &str) -> bool {
    text.contains("refused (os error")
}

/// Measures how soon all nodes know a peer.
struct Observer {
    routes: Arc<Routes>,
    interruptions: Arc<AtomicU32>,
    unseen_after: Duration,
}

impl Observer {
    /// Announces peers at one node after the other until stopped, and measures when all others know them. Counts
    /// those that they do not know in time. What is under way when a node is killed does not count.
    fn run(&self, stop: &AtomicBool) -> Result<(Latencies, u64)> {
        let numbers = 1..=self.routes.len() as u8;
        let nodes: Vec<_> = numbers.map(|node| TestCluster::udp(node)[0]).collect();
        let mut sightings = Sightings::new(&nodes, 1)?;
        let (mut latencies, mut unseen, mut turn) = (Latencies::default(), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let before = self.interruptions.load(Ordering::Relaxed);
            let used: Vec<usize> =
                (0..nodes.len()).filter(|node| self.routes.is_used(*node)).collect();
            turn += 1;
            let at = used[turn % used.len()];
            let others: Vec<usize> = used.iter().copied().filter(|node| *node != at).collect();
            let seen = sightings.observe(at, &others, self.unseen_after);
            if self.interruptions.load(Ordering::Relaxed) != before {
                continue;
            }
            match seen? {
                Some(seen) => latencies.record(seen),
                None => unseen += 1,
            }
            thread::sleep(OBSERVE_EVERY);
        }
        Ok((latencies, unseen))
    }
}

/// Puts all torrents on the allow list, by the API of one node, and waits until all nodes have them there. So
/// each download counts durably, and the counts of all nodes are the same whatever happens to them.
fn list_torrents(cluster: &TestCluster, roster: &Roster) -> Result<()> {
    let hashes = (0..roster.torrents()).map(|torrent| format!("{}\n", roster.info_hash(torrent)));
    let first = cluster.numbers().next().context("a cluster has nodes")?;
    let mut api = Api::open(TestCluster::api(first))?;
    api.ask(200, "POST /api/v1/lists/allow", &hashes.collect::<String>())?;
    let total = format!("\"total\":{}", roster.torrents());
    for number in cluster.numbers() {
        let mut api = Api::open(TestCluster::api(number))?;
        harness::wait_for(PATIENCE, "the list to be at all nodes", || {
            let page = api.ask(200, "GET /api/v1/lists/allow?limit=1", "")?;
            Ok::<_, anyhow::Error>(page.contains(&total))
        })?;
    }
    Ok(())
}
