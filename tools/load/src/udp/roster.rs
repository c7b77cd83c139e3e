//! A load whose peers are known one by one: what the tracker has acknowledged of each, and when.
//!
//! So it can be compared with what a tracker knows after a crash or an upgrade. Peers have addresses of
//! their own: sockets are bound to 127.1.0.1, 127.1.0.2, …, which Linux answers without configuration, and
//! one to ::1. A peer waits for the answer to an announce before the next one.
//!
//! The tracker may be a cluster: each datagram then goes to a node of its own, drawn from those that
//! [`Routes`] has, as behind a router that balances by packet.

mod downloads;
mod peers;
mod routes;
mod scrapes;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::codec::udp::{self as codec, Reply, decode_reply};
use types::InfoHash;

use self::peers::{Peers, Sent};
use super::batch::Batch;
use super::datagram_io::DatagramIo;
use super::pending::{PendingRequest, PendingRequests, ResponseMatch};
use super::worker;
use crate::counters::{Counters, ResponseKind};
use crate::mix::RequestKind;
use crate::poller::Poller;
use crate::random::{Random, hash};
use crate::schedule::{LoopMode, Schedule};

pub use self::downloads::Download;
pub use self::peers::PeerState;
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
    start: Instant,
    lanes: Vec<Lane>,
    pending: PendingRequests<Sent>,
    /// Slots of each lane.
    window: u32,
    poller: Poller,
    /// For each node.
    batches: Vec<Batch>,
    routes: Arc<Routes>,
    random: Random,
}

struct Lane {
    /// One for each node, all with the same source address, and so with one connection id.
    sockets: Vec<UdpSocket>,
    number: u32,
    connection_id: Option<u64>,
    connected: Instant,
    was_refused: bool,
    free: Vec<u32>,
    /// The next peer that may have to start.
    next: u32,
}

/// Renew connection ids before the minute for which BEP 15 allows their use.
const RECONNECT_EVERY: Duration = Duration::from_secs(45);
/// Between two looks at lost requests and connection ids.
const MAINTAIN_EVERY: Duration = Duration::from_millis(100);
/// Time for the first connection ids.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Peers that a socket can have, by their ports.
const SOCKET_PEERS_MAX: u32 = 64_000;
/// Requests of an open loop that are sent to one socket at a time.
const BURST_MAX: u64 = 16;
const NO_PEER: Sent = Sent { number: u32::MAX, state: PeerState::Absent };

impl Roster {
    /// Returns a roster of absent peers.
    ///
    /// # Errors
    ///
    /// Fails if there are too few sockets for the peers.
    pub fn new(options: &RosterOptions) -> Result<Self> {
        let needed = options.peers.div_ceil(SOCKET_PEERS_MAX);
        ensure!(options.lanes() >= needed, "{} peers need {needed} sockets", options.peers);
        let window = options.outstanding.div_ceil(options.lanes()).max(1);
        let key = hash(options.seed, 2) as u32;
        Ok(Self {
            peers: Peers::new(options),
            start: Instant::now(),
            lanes: Vec::new(),
            pending: PendingRequests::new(window * options.lanes(), key),
            window,
            poller: Poller::new()?,
            batches: Vec::new(),
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
        self.routes = Arc::new(Routes::to_all(nodes.len()));
        self.batches.resize_with(nodes.len(), Batch::default);
        self.poller = Poller::new()?;
        self.lanes.clear();
        for number in 0..self.peers.options.lanes() {
            let source = self.peers.options.source(number);
            let mut sockets = Vec::new();
            for addresses in nodes {
                let node = addresses.iter().find(|it| it.is_ipv4() == source.is_ipv4());
                let node = node.with_context(|| format!("no tracker for {source}"))?;
                let socket = worker::connect(Some(source), *node)?;
                io.register(&socket)?;
                let place = number as usize * nodes.len() + sockets.len();
                self.poller.add(&socket, place)?;
                sockets.push(socket);
            }
            self.lanes.push(Lane {
                sockets,
                number,
                connection_id: None,
                connected: Instant::now(),
                was_refused: false,
                free: (number * self.window..(number + 1) * self.window).rev().collect(),
                next: 0,
            });
        }
        let began = Instant::now();
        let mut counters = Counters::default();
        while self.lanes.iter().any(|lane| lane.connection_id.is_none()) {
            ensure!(began.elapsed() < CONNECT_MAX, "no connection ids from {nodes:?}");
            self.expire(Duration::ZERO, &mut counters);
            self.renew_connection_ids(io, &mut counters);
            let until = Instant::now() + CONNECT_MAX / 20;
            while Instant::now() < until
                && self.lanes.iter().any(|lane| lane.connection_id.is_none())
            {
                self.receive(io, until, &mut counters, None)?;
            }
        }
        self.expire(Duration::ZERO, &mut counters);
        Ok(())
    }

    /// Announces until told to stop. Returns the counters.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses to wait for the sockets.
    pub fn run(&mut self, run: &RosterRun<'_>) -> Result<Counters> {
        let io = &mut DatagramIo::new(true, true);
        let mut counters = Counters::default();
        let mut schedule = match run.task {
            RosterTask::Announce(LoopMode::Open { rate }) => {
                Some((Schedule::new(rate), Instant::now(), 0))
            }
            _ => None,
        };
        self.lanes.iter_mut().for_each(|lane| lane.next = 0);
        let task = run.task;
        let is_over = |roster: &Self| {
            let is_full = task == RosterTask::Fill && roster.peers.present == roster.len();
            is_full || run.stop.load(Ordering::Relaxed)
        };
        let mut maintained = Instant::now();
        let mut is_first = true;
        while !is_over(self) {
            let mut until = Instant::now() + MAINTAIN_EVERY;
            if let Some(schedule) = &mut schedule {
                self.send_due(io, schedule, &mut counters);
                until = until.min(schedule.1 + Duration::from_nanos(schedule.0.next_ns()));
            }
            if is_first || maintained.elapsed() > MAINTAIN_EVERY {
                (is_first, maintained) = (false, Instant::now());
                self.expire(run.timeout, &mut counters);
                self.renew_connection_ids(io, &mut counters);
                if schedule.is_none() {
                    (0..self.lanes.len()).for_each(|lane| self.send(io, lane, task, &mut counters));
                }
            }
            self.receive(io, until, &mut counters, schedule.is_none().then_some(task))?;
        }
        self.drain(io, run.patience, &mut counters)?;
        Ok(counters)
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
        let at = |ms: u32| self.start + Duration::from_millis(ms.into());
        let known = self.peers.all.iter().zip(0..);
        known.filter(|(peer, _)| peer.heard_ms > 0 || peer.is_uncertain).map(
            move |(peer, number)| KnownPeer {
                number,
                torrent: peer.torrent,
                address: SocketAddr::from(self.peers.address(number)),
                state: peer.state,
                is_uncertain: peer.is_uncertain,
                may_be_younger: peer.may_be_younger,
                heard: at(peer.heard_ms),
                changed: at(peer.changed_ms),
            },
        )
    }

    /// Says what a tracker knows of a peer, such as after a crash that has lost it.
    pub fn correct(&mut self, number: u32, state: PeerState) {
        self.peers.correct(number, state);
    }

    /// Returns a torrent's info hash.
    pub fn info_hash(&self, torrent: u32) -> InfoHash {
        self.peers.info_hash(torrent)
    }
}

/// Sending and receiving.
impl Roster {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends as many announces on a lane as it has free slots.
    fn send(
        &mut self,
        io: &mut DatagramIo,
        lane: usize,
        task: RosterTask,
        counters: &mut Counters,
    ) {
        let due_ns = self.now_ns();
        while self.add(lane, task, due_ns) {}
        self.flush(io, lane, counters);
    }

    /// Sends the scheduled announces of an open loop.
    fn send_due(
        &mut self,
        io: &mut DatagramIo,
        (schedule, began, next): &mut (Schedule, Instant, usize),
        counters: &mut Counters,
    ) {
        let task = RosterTask::Announce(LoopMode::Open { rate: 0.0 });
        let offset_ns = began.saturating_duration_since(self.start).as_nanos() as u64;
        let mut full = 0;
        while full < self.lanes.len() {
            let due = schedule.due(began.elapsed().as_nanos() as u64).min(BURST_MAX);
            if due == 0 {
                return;
            }
            *next = (*next + 1) % self.lanes.len();
            let mut sent = 0;
            while sent < due && self.add(*next, task, offset_ns + schedule.next_ns()) {
                schedule.advance();
                sent += 1;
            }
            full = if sent == 0 { full + 1 } else { 0 };
            self.flush(io, *next, counters);
        }
    }

    /// Adds an announce to a node's batch. Returns false if the lane has no slot or no peer for it.
    fn add(&mut self, lane: usize, task: RosterTask, due_ns: u64) -> bool {
        let Self { peers, lanes, pending, batches, .. } = self;
        let node = self.routes.draw(&mut self.random);
        let Some(batch) = batches.get_mut(node) else { return false };
        let Some(lane) = lanes.get_mut(lane) else { return false };
        let (Some(connection_id), false) = (lane.connection_id, lane.free.is_empty()) else {
            return false;
        };
        let now_ms = (due_ns / 1_000_000) as u32;
        let number = match task {
            RosterTask::Fill => next_absent(lane, peers),
            RosterTask::Announce(_) => peers.any(lane.number, now_ms),
        };
        let Some(number) = number else { return false };
        let Some(slot) = lane.free.pop() else { return false };
        let (announce, peer) = peers.announce(number, now_ms);
        let id = pending.insert(slot, PendingRequest { kind: RequestKind::Announce, peer, due_ns });
        batch.add(|out| codec::announce(out, connection_id, id, &announce, b""));
        true
    }

    /// Sends the batches.
    fn flush(&mut self, io: &mut DatagramIo, lane: usize, counters: &mut Counters) {
        let Self { lanes, batches, .. } = self;
        let Some(lane) = lanes.get(lane) else { return };
        for (batch, socket) in batches.iter_mut().zip(&lane.sockets) {
            if batch.count == 0 {
                continue;
            }
            counters.sent += batch.count;
            if let Err(error) = io.send(socket, &batch.bytes, batch.len) {
                // Requests that could not be sent expire like those that were lost.
                counters.fail(&error.to_string());
            }
            batch.clear();
        }
    }

    fn renew_connection_ids(&mut self, io: &mut DatagramIo, counters: &mut Counters) {
        for number in 0..self.lanes.len() {
            let due_ns = self.now_ns();
            let Some(lane) = self.lanes.get_mut(number) else { return };
            let is_old = lane.connected.elapsed() > RECONNECT_EVERY;
            if lane.connection_id.is_some() && !is_old && !lane.was_refused {
                continue;
            }
            let Some(slot) = lane.free.pop() else { continue };
            // One request for all refusals until it is answered.
            (lane.was_refused, lane.connected) = (false, Instant::now());
            let request = PendingRequest { kind: RequestKind::Connect, peer: NO_PEER, due_ns };
            let id = self.pending.insert(slot, request);
            let node = self.routes.draw(&mut self.random);
            let Some(batch) = self.batches.get_mut(node) else { return };
            batch.add(|out| codec::connect(out, id));
            self.flush(io, number, counters);
        }
    }

    /// Waits for answers until `until` and reads them. If there is a `task`, sends the next announces on
    /// the same lanes.
    fn receive(
        &mut self,
        io: &mut DatagramIo,
        until: Instant,
        counters: &mut Counters,
        task: Option<RosterTask>,
    ) -> Result<()> {
        self.poller.wait(until, task.is_none())?;
        let ready = std::mem::take(&mut self.poller.ready);
        for place in ready.iter().map(|ready| ready.number) {
            let Self { lanes, peers, pending, start, window, batches, .. } = self;
            let (number, node) = (place / batches.len(), place % batches.len());
            let Some(lane) = lanes.get_mut(number) else { continue };
            let Lane { sockets, free, .. } = lane;
            let Some(socket) = sockets.get(node) else { continue };
            let mut connected = None;
            let mut was_refused = false;
            let received = io.receive(socket, |datagram, _, queued| {
                let Some((id, reply)) = decode_reply(datagram) else {
                    return counters.fail("an invalid response");
                };
                let (slot, request) = match pending.complete(id) {
                    ResponseMatch::Request(slot, request) if slot / *window == number as u32 => {
                        (slot, request)
                    }
                    ResponseMatch::Late => {
                        counters.late += 1;
                        return;
                    }
                    _ => return counters.fail("a response with an unknown transaction id"),
                };
                free.push(slot);
                let now_ns = start.elapsed().saturating_sub(queued).as_nanos() as u64;
                match (request.kind, reply) {
                    (RequestKind::Connect, Reply::Connect { connection_id }) => {
                        counters.count(ResponseKind::Connect);
                        connected = Some(connection_id);
                    }
                    (RequestKind::Announce, Reply::Announce { .. }) => {
                        counters.count(ResponseKind::Announce);
                        // At least 1: 0 is never.
                        peers.acknowledge(request.peer, ((now_ns / 1_000_000) as u32).max(1));
                    }
                    (_, Reply::Error(text)) => {
                        counters.refuse(text);
                        was_refused = true;
                        peers.give_up(request.peer, (now_ns / 1_000_000) as u32);
                    }
                    _ => counters.fail("a response of another kind than the request"),
                }
                let latency_ns = now_ns.saturating_sub(request.due_ns);
                counters.latencies.record(Duration::from_nanos(latency_ns));
            });
            if let Err(error) = received
                && error.kind() != ErrorKind::WouldBlock
            {
                counters.fail(&error.to_string());
            }
            if was_refused {
                (lane.was_refused, lane.next) = (true, 0);
            }
            if let Some(id) = connected {
                (lane.connection_id, lane.connected) = (Some(id), Instant::now());
            }
            if let Some(task) = task {
                self.send(io, number, task, counters);
            }
        }
        self.poller.ready = ready;
        Ok(())
    }

    /// Counts requests older than `timeout` as lost.
    fn expire(&mut self, timeout: Duration, counters: &mut Counters) {
        let now_ns = self.now_ns();
        let before_ns = now_ns.saturating_sub(timeout.as_nanos() as u64);
        let Self { lanes, pending, peers, window, .. } = self;
        pending.expire(before_ns, |slot, request| {
            counters.lost += 1;
            peers.give_up(request.peer, (now_ns / 1_000_000) as u32);
            if let Some(lane) = lanes.get_mut((slot / *window) as usize) {
                lane.free.push(slot);
                lane.next = 0;
            }
        });
    }

    /// Waits for the last answers, and gives up the others.
    fn drain(
        &mut self,
        io: &mut DatagramIo,
        patience: Duration,
        counters: &mut Counters,
    ) -> Result<()> {
        let until = Instant::now() + patience;
        let window = self.window as usize;
        while Instant::now() < until && self.lanes.iter().any(|lane| lane.free.len() < window) {
            self.receive(io, until.min(Instant::now() + MAINTAIN_EVERY), counters, None)?;
        }
        self.expire(Duration::ZERO, counters);
        Ok(())
    }
}

/// Returns the next peer of a lane that has to start. `None` if all have been sent; those of lost
/// requests begin anew.
fn next_absent(lane: &mut Lane, peers: &Peers) -> Option<u32> {
    let (lanes, count) = (peers.options.lanes(), peers.of_lane(lane.number));
    while lane.next < count {
        let number = lane.number + lanes * lane.next;
        lane.next += 1;
        let peer = peers.all.get(number as usize)?;
        if peer.state == PeerState::Absent && !peer.is_waiting {
            return Some(number);
        }
    }
    None
}
