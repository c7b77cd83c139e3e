//! A load whose peers are known one by one: what the tracker has acknowledged of each, and when.
//!
//! So it can be compared with what a tracker knows after a crash or an upgrade. Peers have addresses of
//! their own: sockets are bound to 127.1.0.1, 127.1.0.2, …, which Linux answers without configuration, and
//! one to ::1. A peer waits for the answer to an announce before the next one.
//!
//! The tracker may be a cluster: each datagram then goes to a node of its own, drawn from those that
//! [`Routes`] has, as behind a router that balances by packet.

mod peers;
mod routes;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::codec::udp::Reply;
use client::{ScrapeStats, Session, SessionConfig, Url};
use types::InfoHash;

use self::peers::{Peers, Sent};
use super::datagram_io::DatagramIo;
use super::lanes::{LaneState, Lanes, Request, Traffic};
use super::pending::Asked;
use crate::counters::Counters;
use crate::random::{Random, hash};
use crate::schedule::{LoopMode, Schedule};

pub use self::peers::{Download, PeerState};
pub use self::routes::Routes;

/// Torrents and peers of a roster.
#[derive(Clone, Debug)]
pub struct RosterOptions {
    /// Equal seeds generate equal torrents and peers.
    pub seed: u64,
    /// Number of torrents; at least 1.
    pub torrents: u32,
    /// Number of peers; at least 1, and at most 64,000 for each socket.
    pub peers: u32,
    /// The most peers of a torrent, approximately.
    pub torrent_peers_max: u32,
    /// Sockets for IPv4, each with an address of its own.
    pub sockets: u32,
    /// True adds a socket for IPv6.
    pub has_v6: bool,
    /// The address of the first socket; the next ones have those behind it.
    pub first_source: Ipv4Addr,
    /// The address of the socket for IPv6.
    pub source_v6: Ipv6Addr,
    /// Requests outstanding at the same time, at most.
    pub outstanding: u32,
    /// Of a thousand announces of present peers, those that stop or complete.
    pub changes_permille: u32,
    /// Milliseconds between an announce of a peer and one that changes its state, at least. For one tracker
    /// this may be 0; nodes of a cluster learn in units of 16 s which of two announces is the later one.
    pub rest_ms: u32,
    /// Peers that each announce requests.
    pub want: u16,
}

impl Default for RosterOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            torrents: 10_000,
            peers: 50_000,
            torrent_peers_max: u32::MAX,
            sockets: 32,
            has_v6: true,
            first_source: Ipv4Addr::new(127, 1, 0, 1),
            source_v6: Ipv6Addr::LOCALHOST,
            outstanding: 512,
            changes_permille: 2,
            rest_ms: 0,
            want: 50,
        }
    }
}

/// The announces of a roster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RosterTask {
    /// All absent peers start, as fast as the tracker answers. It ends when all of them have.
    Fill,
    /// Random peers announce again, complete, stop and start.
    Announce(LoopMode),
}

/// A run of announces.
pub struct RosterRun<'a> {
    /// The announces.
    pub task: RosterTask,
    /// Ends it when set.
    pub stop: &'a AtomicBool,
    /// Time until a request counts as lost.
    pub timeout: Duration,
    /// Time to wait for the last answers at the end.
    pub patience: Duration,
}

/// The known state of a peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownPeer {
    /// Its number, for [`Roster::correct`].
    pub number: u32,
    /// Its torrent's number.
    pub torrent: u32,
    /// Its address and port.
    pub address: SocketAddr,
    /// Its state by its last acknowledged announce.
    pub state: PeerState,
    /// True if a later announce that changes the state may have been received, too.
    pub is_uncertain: bool,
    /// True if a later announce may have been received that was not acknowledged.
    pub may_be_younger: bool,
    /// When the tracker acknowledged its last announce.
    pub heard: Instant,
    /// When the tracker acknowledged the last announce that changed its state.
    pub changed: Instant,
}

/// See the module.
pub struct Roster {
    peers: Peers,
    lanes: Option<Lanes<Sent>>,
    routes: Arc<Routes>,
    random: Random,
}

/// Between two looks at lost requests and connection ids.
const MAINTAIN_EVERY: Duration = Duration::from_millis(100);
/// Time for the first connection ids.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time until a response to a scrape counts as missing. A request that is lost is sent again after 15 s.
const SCRAPE_MAX: Duration = Duration::from_secs(60);
/// Peers that a socket can have, by their ports.
const SOCKET_PEERS_MAX: u32 = 64_000;

impl Roster {
    /// Returns a roster of absent peers.
    ///
    /// # Errors
    ///
    /// Fails if there are too few sockets for the peers.
    pub fn new(options: &RosterOptions) -> Result<Self> {
        let needed = options.peers.div_ceil(SOCKET_PEERS_MAX);
        ensure!(options.lanes() >= needed, "{} peers need {needed} sockets", options.peers);
        Ok(Self {
            peers: Peers::new(options),
            lanes: None,
            routes: Arc::new(Routes::to_all(0)),
            random: Random::new(hash(options.seed, 3)),
        })
    }

    /// Connects to the nodes of a tracker, which may be another one than before, each with its addresses for IPv4 peers
    /// and IPv6 peers.
    ///
    /// # Errors
    ///
    /// Fails if the tracker does not answer.
    pub fn connect(&mut self, nodes: &[&[SocketAddr]]) -> Result<()> {
        // Not kept: its buffers cannot go to another thread.
        let io = &mut DatagramIo::new(true, true);
        let options = &self.peers.options;
        let mut ends = Vec::new();
        for source in (0..options.lanes()).map(|lane| options.source(lane)) {
            let of_family = |addresses: &&[SocketAddr]| {
                let node = addresses.iter().find(|it| it.is_ipv4() == source.is_ipv4());
                node.copied().with_context(|| format!("no tracker for {source}"))
            };
            ends.push((Some(source), nodes.iter().map(of_family).collect::<Result<_>>()?));
        }
        let window = options.outstanding.div_ceil(options.lanes()).max(1);
        let mut lanes = Lanes::open(io, &ends, (window, hash(options.seed, 2) as u32))?;
        lanes.start(self.peers.start);
        self.routes = Arc::new(Routes::to_all(nodes.len()));
        let never = AtomicBool::new(false);
        lanes.connect(io, &mut self.traffic(RosterTask::Fill), CONNECT_MAX, &never)?;
        self.lanes = Some(lanes);
        Ok(())
    }

    /// Announces until told to stop. Returns the counters.
    ///
    /// # Errors
    ///
    /// Fails if it is not connected, or if the system refuses to wait for the sockets.
    pub fn run(&mut self, run: &RosterRun<'_>) -> Result<Counters> {
        let mut lanes = self.lanes.take().context("the roster is not connected")?;
        let io = &mut DatagramIo::new(true, true);
        let traffic = &mut self.traffic(run.task);
        let counters = &mut Counters::default();
        let began_ns = lanes.now_ns();
        let mut schedule = match run.task {
            RosterTask::Announce(LoopMode::Open { rate }) => Some(Schedule::new(rate)),
            _ => None,
        };
        let is_full = |traffic: &RosterTraffic<'_>| {
            run.task == RosterTask::Fill
                && traffic.peers.present as usize == traffic.peers.all.len()
        };
        let mut maintained: Option<Instant> = None;
        while !run.stop.load(Ordering::Relaxed) && !is_full(traffic) {
            let mut until = Instant::now() + MAINTAIN_EVERY;
            if maintained.is_none_or(|at| at.elapsed() > MAINTAIN_EVERY) {
                maintained = Some(Instant::now());
                lanes.expire(run.timeout, traffic, counters);
                lanes.renew_connection_ids(io, traffic, counters);
                if schedule.is_none() {
                    lanes.fill_all(io, traffic, counters);
                }
            }
            if let Some(schedule) = &mut schedule {
                lanes.send_due(io, (schedule, began_ns), traffic, counters);
                until = until.min(lanes.moment(began_ns + schedule.next_ns()));
            }
            lanes.receive(io, until, schedule.is_none(), traffic, counters)?;
        }
        // Wait for the last answers, and give up the others.
        let end = Instant::now() + run.patience;
        while Instant::now() < end && lanes.is_waiting() {
            let until = end.min(Instant::now() + MAINTAIN_EVERY);
            lanes.receive(io, until, false, traffic, counters)?;
        }
        lanes.expire(Duration::ZERO, traffic, counters);
        self.lanes = Some(lanes);
        Ok(std::mem::take(counters))
    }

    fn traffic(&mut self, task: RosterTask) -> RosterTraffic<'_> {
        let next = vec![0; self.peers.options.lanes() as usize];
        let Self { peers, routes, random, .. } = self;
        RosterTraffic { peers, routes, random, task, next }
    }

    /// Returns the nodes that requests go to: all of those that it is connected to, unless changed.
    pub fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes)
    }

    /// Returns the number of peers, present or not.
    pub fn len(&self) -> u32 {
        self.peers.all.len() as u32
    }

    /// Returns the number of torrents.
    pub fn torrents(&self) -> u32 {
        self.peers.options.torrents.max(1)
    }

    /// Returns false: a roster has a peer at least.
    pub fn is_empty(&self) -> bool {
        self.peers.all.is_empty()
    }

    /// Returns the number of peers that are not absent.
    pub fn present(&self) -> u32 {
        self.peers.present
    }

    /// Returns all peers that have ever announced.
    pub fn peers(&self) -> impl Iterator<Item = KnownPeer> {
        let known = self.peers.all.iter().zip(0..);
        known.filter(|(peer, _)| peer.heard_ms > 0 || peer.is_uncertain).map(
            move |(peer, number)| KnownPeer {
                number,
                torrent: peer.torrent,
                address: SocketAddr::from(self.peers.address(number)),
                state: peer.state,
                is_uncertain: peer.is_uncertain,
                may_be_younger: peer.may_be_younger,
                heard: self.peers.moment(peer.heard_ms),
                changed: self.peers.moment(peer.changed_ms),
            },
        )
    }

    /// Returns all downloads that were completed, in the order of their ends.
    pub fn downloads(&self) -> &[Download] {
        &self.peers.downloads
    }

    /// Says what a tracker knows of a peer, such as after a crash that has lost it.
    pub fn correct(&mut self, number: u32, state: PeerState) {
        self.peers.correct(number, state);
    }

    /// Returns a torrent's info hash.
    pub fn info_hash(&self, torrent: u32) -> InfoHash {
        self.peers.info_hash(torrent)
    }

    /// Scrapes all torrents at a node.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer.
    pub fn scrape(&self, tracker: SocketAddr) -> Result<Vec<ScrapeStats>> {
        let url = Url::parse(&format!("udp://{tracker}"))?;
        let config = SessionConfig::with_web_roots(SCRAPE_MAX)?;
        let hashes: Vec<InfoHash> = (0..self.torrents()).map(|it| self.info_hash(it)).collect();
        let counts = Session::open(&url, tracker, &config)?.scrape(&hashes)?;
        counts.into_iter().collect::<Option<_>>().context("expected the counts of all torrents")
    }
}

/// The announces of a run.
struct RosterTraffic<'a> {
    peers: &'a mut Peers,
    routes: &'a Routes,
    random: &'a mut Random,
    task: RosterTask,
    /// The next peer of each lane that may have to start.
    next: Vec<u32>,
}

impl RosterTraffic<'_> {
    /// Returns the next peer of a lane that has to start. `None` if all have been sent; those of lost
    /// requests begin anew.
    fn next_absent(&mut self, lane: u32) -> Option<u32> {
        let (lanes, count) = (self.peers.options.lanes(), self.peers.of_lane(lane));
        let next = self.next.get_mut(lane as usize)?;
        while *next < count {
            let number = lane + lanes * *next;
            *next += 1;
            let peer = self.peers.all.get(number as usize)?;
            if peer.state == PeerState::Absent && !peer.is_waiting {
                return Some(number);
            }
        }
        None
    }
}

impl Traffic for RosterTraffic<'_> {
    type Peer = Sent;

    fn node(&mut self) -> usize {
        self.routes.draw(self.random)
    }

    fn next(&mut self, lane: u32, due_ns: u64) -> Option<Request<'_, Sent>> {
        let now_ms = milliseconds(due_ns);
        let number = match self.task {
            RosterTask::Fill => self.next_absent(lane),
            RosterTask::Announce(_) => self.peers.any(lane, now_ms),
        };
        let (announce, peer) = self.peers.announce(number?, now_ms);
        Some(Request::Announce { announce, url: b"", peer })
    }

    fn read(
        &mut self,
        _: &LaneState,
        asked: Asked<Sent>,
        reply: &Reply<'_>,
        now_ns: u64,
        counters: &mut Counters,
    ) -> Result<(), &'static str> {
        match (asked, reply) {
            (Asked::Announce(peer), Reply::Announce { .. }) => {
                counters.responses.announce += 1;
                // At least 1: 0 is never.
                self.peers.acknowledge(peer, milliseconds(now_ns).max(1));
                Ok(())
            }
            _ => Err("a response of another kind than the request"),
        }
    }

    fn give_up(&mut self, lane: u32, peer: Sent, now_ns: u64) {
        self.peers.give_up(peer, milliseconds(now_ns));
        self.next.iter_mut().skip(lane as usize).take(1).for_each(|next| *next = 0);
    }
}

fn milliseconds(ns: u64) -> u32 {
    (ns / 1_000_000) as u32
}
