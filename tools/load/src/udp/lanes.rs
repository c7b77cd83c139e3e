//! The sockets of a load: each lane has a source address, a connection id and a share of the outstanding requests.
//!
//! Requests of equal length leave as one batch; responses are received in batches. What is requested, and what a
//! response means, is up to the [`Traffic`].

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use client::codec::udp::{self as codec, Reply, decode_reply};
use types::{Announce, InfoHash};

use super::datagram_io::DatagramIo;
use super::pending::{Asked, PendingRequests, ResponseMatch};
use crate::counters::Counters;
use crate::poller::Poller;
use crate::runner::Silence;
use crate::schedule::{OVERDUE, Schedule};

/// Renew connection ids before the minute for which BEP 15 allows their use.
const RECONNECT_EVERY: Duration = Duration::from_secs(45);
/// Interval between connect requests before the start.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Scheduled requests that are sent on one lane at a time.
const BURST_MAX: u64 = 64;

/// The requests of a load, and what becomes of them.
pub(super) trait Traffic {
    /// The peer of an outstanding announce.
    type Peer: Copy;

    /// Returns the node of the tracker that the next request goes to.
    fn node(&mut self) -> usize;

    /// Returns the next request on a lane, or `None` if there is none now.
    fn next(&mut self, lane: u32, due_ns: u64) -> Option<Request<'_, Self::Peer>>;

    /// Reads the response to an announce or scrape. Returns an error if it is no response to that.
    fn read(
        &mut self,
        lane: &LaneState,
        asked: Asked<Self::Peer>,
        reply: &Reply<'_>,
        now_ns: u64,
        counters: &mut Counters,
    ) -> Result<(), &'static str>;

    /// Handles an announce that was refused or not answered in time.
    fn give_up(&mut self, lane: u32, peer: Self::Peer, now_ns: u64);
}

/// A request to send.
pub(super) enum Request<'a, P> {
    Connect,
    Announce {
        announce: Announce,
        /// Path and query of the tracker's URL (BEP 41).
        url: &'a [u8],
        peer: P,
    },
    Scrape(&'a [InfoHash]),
}

/// All lanes of a thread.
pub(super) struct Lanes<P> {
    lanes: Vec<Lane>,
    outstanding: Outstanding<P>,
    poller: Poller,
    /// For each node: connects, announces and scrapes.
    batches: Vec<[Batch; 3]>,
    /// The next lane to send in an open loop.
    next: usize,
}

struct Lane {
    /// One for each node, all with the same source address, and so with one connection id.
    sockets: Vec<UdpSocket>,
    state: LaneState,
}

pub(super) struct LaneState {
    number: u32,
    /// The address that the tracker sees.
    pub(super) source: IpAddr,
    connection_id: Option<u64>,
    connected: Instant,
    /// True if the tracker has refused a request, perhaps because of the connection id.
    was_refused: bool,
    /// Free request slots.
    free: Vec<u32>,
}

/// Outstanding requests of all lanes, and how long the tracker has been silent.
struct Outstanding<P> {
    pending: PendingRequests<P>,
    /// Slots per lane.
    window: u32,
    start: Instant,
    silence: Silence,
}

/// Consecutive datagrams of equal length.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Length of each datagram.
    len: usize,
    count: u64,
}

impl Batch {
    /// Adds a datagram that `write` appends.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.len = self.bytes.len() - before;
        self.count += 1;
    }
}

impl<P: Copy> Lanes<P> {
    /// Opens a lane for each of `ends`: its source address, or `None` for the system's choice, and the addresses of
    /// all nodes. Each lane has at most `window` outstanding requests, whose ids `key` masks.
    pub(super) fn open(
        io: &DatagramIo,
        ends: &[(Option<IpAddr>, Vec<SocketAddr>)],
        (window, key): (u32, u32),
    ) -> Result<Self> {
        let poller = Poller::new().context("cannot wait for sockets")?;
        let nodes = ends.first().map_or(0, |(_, nodes)| nodes.len());
        let mut lanes = Vec::new();
        for (number, (source, addresses)) in (0..).zip(ends) {
            let mut sockets = Vec::new();
            for address in addresses {
                let socket = connect(*source, *address)?;
                io.register(&socket).context("cannot enable receive timestamps")?;
                let place = number as usize * nodes + sockets.len();
                poller.add(&socket, place).context("cannot wait for a socket")?;
                sockets.push(socket);
            }
            let bound = sockets.first().context("no tracker")?.local_addr();
            let state = LaneState {
                number,
                source: bound.context("cannot get a socket's address")?.ip(),
                connection_id: None,
                connected: Instant::now(),
                was_refused: false,
                free: (number * window..(number + 1) * window).rev().collect(),
            };
            lanes.push(Lane { sockets, state });
        }
        let outstanding = Outstanding {
            pending: PendingRequests::new(window * lanes.len() as u32, key),
            window,
            start: Instant::now(),
            silence: Silence::default(),
        };
        let batches = (0..nodes).map(|_| Default::default()).collect();
        Ok(Self { lanes, outstanding, poller, batches, next: 0 })
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = IpAddr> {
        self.lanes.iter().map(|lane| lane.state.source)
    }

    /// Sets the moment from which times are counted.
    pub(super) fn start(&mut self, at: Instant) {
        self.outstanding.start = at;
        self.outstanding.silence.since = None;
    }

    /// Returns the nanoseconds since the start.
    pub(super) fn now_ns(&self) -> u64 {
        self.outstanding.ns_at(Instant::now())
    }

    /// Returns the moment this many nanoseconds after the start.
    pub(super) fn moment(&self, ns: u64) -> Instant {
        self.outstanding.start + Duration::from_nanos(ns)
    }

    /// Fails if the tracker has been silent for too long.
    pub(super) fn check_silence(&self) -> Result<()> {
        self.outstanding.silence.check()
    }

    /// Returns whether requests are outstanding.
    pub(super) fn is_waiting(&self) -> bool {
        let window = self.outstanding.window as usize;
        self.lanes.iter().any(|lane| lane.state.free.len() < window)
    }

    /// Gets a connection id for each lane. Returns early if `stop` is set.
    pub(super) fn connect<T: Traffic<Peer = P>>(
        &mut self,
        io: &mut DatagramIo,
        traffic: &mut T,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<()> {
        let is_unconnected =
            |lanes: &[Lane]| lanes.iter().any(|it| it.state.connection_id.is_none());
        let end = Instant::now() + patience;
        let mut counters = Counters::default();
        while is_unconnected(&self.lanes) {
            if Instant::now() > end || stop.load(Ordering::Relaxed) {
                let worst = counters.errors.into_iter().max_by_key(|(_, times)| *times);
                let why = worst.map_or_else(String::new, |(text, _)| format!(": {text}"));
                bail!("no connection id within {patience:?}{why}");
            }
            self.expire(Duration::ZERO, traffic, &mut counters);
            self.renew_connection_ids(io, traffic, &mut counters);
            let retry = Instant::now() + RETRY_EVERY;
            while Instant::now() < retry
                && !stop.load(Ordering::Relaxed)
                && is_unconnected(&self.lanes)
            {
                let until = (Instant::now() + RETRY_EVERY / 10).min(retry);
                self.receive(io, until, false, traffic, &mut counters)?;
            }
        }
        self.expire(Duration::ZERO, traffic, &mut counters);
        Ok(())
    }

    /// Requests connection ids for lanes that have none, an old one, or perhaps a wrong one.
    pub(super) fn renew_connection_ids<T: Traffic<Peer = P>>(
        &mut self,
        io: &mut DatagramIo,
        traffic: &mut T,
        counters: &mut Counters,
    ) {
        for number in 0..self.lanes.len() {
            let due_ns = self.now_ns();
            let Some(Lane { state, .. }) = self.lanes.get_mut(number) else { return };
            let is_old = state.connected.elapsed() > RECONNECT_EVERY;
            if state.connection_id.is_some() && !is_old && !state.was_refused {
                continue;
            }
            let Some(slot) = state.free.pop() else { continue };
            // One request for all refusals until it is answered.
            (state.was_refused, state.connected) = (false, Instant::now());
            let id = self.outstanding.pending.insert(slot, Asked::Connect, due_ns);
            let Some([batch, ..]) = self.batches.get_mut(traffic.node()) else { return };
            batch.add(|out| codec::connect(out, id));
            self.flush(io, number, counters);
        }
    }

    /// Sends as many requests on all lanes as these have free slots.
    pub(super) fn fill_all<T: Traffic<Peer = P>>(
        &mut self,
        io: &mut DatagramIo,
        traffic: &mut T,
        counters: &mut Counters,
    ) {
        (0..self.lanes.len()).for_each(|lane| self.fill(io, lane, traffic, counters));
    }

    fn fill<T: Traffic<Peer = P>>(
        &mut self,
        io: &mut DatagramIo,
        lane: usize,
        traffic: &mut T,
        counters: &mut Counters,
    ) {
        let due_ns = self.now_ns();
        while self.add(lane, due_ns, traffic) {}
        self.flush(io, lane, counters);
    }

    /// Sends the scheduled requests of an open loop that began at `began_ns`.
    pub(super) fn send_due<T: Traffic<Peer = P>>(
        &mut self,
        io: &mut DatagramIo,
        (schedule, began_ns): (&mut Schedule, u64),
        traffic: &mut T,
        counters: &mut Counters,
    ) {
        let mut full = 0;
        while full < self.lanes.len() {
            let now_ns = self.now_ns();
            let due = schedule.due(now_ns.saturating_sub(began_ns)).min(BURST_MAX);
            if due == 0 {
                return;
            }
            self.next = (self.next + 1) % self.lanes.len();
            let mut sent = 0;
            while sent < due {
                let due_ns = began_ns + schedule.next_ns();
                if !self.add(self.next, due_ns, traffic) {
                    break;
                }
                counters.overdue += u64::from(now_ns > due_ns + OVERDUE.as_nanos() as u64);
                schedule.advance();
                sent += 1;
            }
            full = if sent == 0 { full + 1 } else { 0 };
            self.flush(io, self.next, counters);
        }
    }

    /// Adds the next request of a lane to a batch. Returns false if the lane has no connection id, no slot or no request.
    fn add<T: Traffic<Peer = P>>(&mut self, lane: usize, due_ns: u64, traffic: &mut T) -> bool {
        let Some(Lane { state, .. }) = self.lanes.get_mut(lane) else { return false };
        let Some(connection_id) = state.connection_id else { return false };
        let Some(slot) = state.free.last().copied() else { return false };
        let Some(batches) = self.batches.get_mut(traffic.node()) else { return false };
        let [connects, announces, scrapes] = batches;
        let pending = &mut self.outstanding.pending;
        match traffic.next(state.number, due_ns) {
            None => return false,
            Some(Request::Connect) => {
                let id = pending.insert(slot, Asked::Connect, due_ns);
                connects.add(|out| codec::connect(out, id));
            }
            Some(Request::Announce { announce, url, peer }) => {
                let id = pending.insert(slot, Asked::Announce(peer), due_ns);
                announces.add(|out| codec::announce(out, connection_id, id, &announce, url));
            }
            Some(Request::Scrape(hashes)) => {
                let id = pending.insert(slot, Asked::Scrape, due_ns);
                scrapes.add(|out| codec::scrape(out, connection_id, id, hashes));
            }
        }
        state.free.pop();
        true
    }

    /// Sends the batches on a lane.
    fn flush(&mut self, io: &mut DatagramIo, lane: usize, counters: &mut Counters) {
        let Some(lane) = self.lanes.get(lane) else { return };
        for (batches, socket) in self.batches.iter_mut().zip(&lane.sockets) {
            for batch in batches.iter_mut().filter(|batch| batch.count > 0) {
                counters.bytes_out += batch.bytes.len() as u64;
                counters.sent += batch.count;
                self.outstanding.silence.since.get_or_insert_with(Instant::now);
                // Requests that could not be sent expire like lost ones.
                if let Err(error) = io.send(socket, &batch.bytes, batch.len) {
                    self.outstanding.record_error(&error, counters);
                }
                batch.bytes.clear();
                batch.count = 0;
            }
        }
    }

    /// Waits for responses until `until` and handles them. In a closed loop, sends the next requests on the same lanes.
    /// Returns the number of responses.
    pub(super) fn receive<T: Traffic<Peer = P>>(
        &mut self,
        io: &mut DatagramIo,
        until: Instant,
        is_closed_loop: bool,
        traffic: &mut T,
        counters: &mut Counters,
    ) -> Result<usize> {
        let before = Instant::now();
        self.poller.wait(until, !is_closed_loop).context("cannot wait for sockets")?;
        counters.waited += before.elapsed();
        let ready = std::mem::take(&mut self.poller.ready);
        let mut count = 0;
        for place in ready.iter().map(|ready| ready.number) {
            let Self { lanes, outstanding, batches, .. } = self;
            let (number, node) = (place / batches.len(), place % batches.len());
            let Some(Lane { sockets, state }) = lanes.get_mut(number) else { continue };
            let Some(socket) = sockets.get(node) else { continue };
            let mut now = None;
            let received = io.receive(socket, |datagram, is_truncated, queued| {
                count += 1;
                if is_truncated {
                    counters.fail("a response longer than any announce response");
                }
                let now: Instant = *now.get_or_insert_with(Instant::now);
                let now_ns = outstanding.ns_at(now.checked_sub(queued).unwrap_or(now));
                outstanding.receive(state, datagram, now_ns, traffic, counters);
            });
            if let Err(error) = received
                && error.kind() != ErrorKind::WouldBlock
            {
                outstanding.record_error(&error, counters);
            }
            if is_closed_loop {
                self.fill(io, number, traffic, counters);
            }
        }
        self.poller.ready = ready;
        Ok(count)
    }

    /// Counts requests older than `timeout` as lost.
    pub(super) fn expire<T: Traffic<Peer = P>>(
        &mut self,
        timeout: Duration,
        traffic: &mut T,
        counters: &mut Counters,
    ) {
        let now_ns = self.now_ns();
        let before_ns = now_ns.saturating_sub(timeout.as_nanos() as u64);
        let Self { lanes, outstanding, .. } = self;
        let window = outstanding.window;
        outstanding.pending.expire(before_ns, |slot, asked| {
            counters.lost += 1;
            let lane = slot / window;
            if let Asked::Announce(peer) = asked {
                traffic.give_up(lane, peer, now_ns);
            }
            if let Some(lane) = lanes.get_mut(lane as usize) {
                lane.state.free.push(slot);
            }
        });
    }
}

impl<P: Copy> Outstanding<P> {
    fn ns_at(&self, moment: Instant) -> u64 {
        // Fits for half a millennium.
        moment.saturating_duration_since(self.start).as_nanos() as u64
    }

    fn record_error(&mut self, error: &io::Error, counters: &mut Counters) {
        self.silence.is_refused |= error.kind() == ErrorKind::ConnectionRefused;
        counters.fail(&error.to_string());
    }

    /// Handles a datagram that arrived at `now_ns`.
    fn receive<T: Traffic<Peer = P>>(
        &mut self,
        lane: &mut LaneState,
        datagram: &[u8],
        now_ns: u64,
        traffic: &mut T,
        counters: &mut Counters,
    ) {
        counters.bytes_in += datagram.len() as u64;
        let Some((transaction_id, reply)) = decode_reply(datagram) else {
            return counters.fail("an invalid response");
        };
        let (slot, request) = match self.pending.complete(transaction_id) {
            ResponseMatch::Request(slot, request) if slot / self.window == lane.number => {
                (slot, request)
            }
            ResponseMatch::Late => {
                counters.late += 1;
                // A tracker with a long queue answers late, but it does answer.
                self.silence = Silence::default();
                return;
            }
            _ => return counters.fail("a response with an unknown transaction id"),
        };
        lane.free.push(slot);
        let read = match (request.asked, &reply) {
            (asked, Reply::Error(words)) => {
                lane.was_refused = true;
                counters.refuse(words);
                if let Asked::Announce(peer) = asked {
                    traffic.give_up(lane.number, peer, now_ns);
                }
                Ok(())
            }
            (Asked::Connect, Reply::Connect { connection_id }) => {
                counters.responses.connect += 1;
                (lane.connection_id, lane.connected) = (Some(*connection_id), Instant::now());
                Ok(())
            }
            (asked, reply) => traffic.read(lane, asked, reply, now_ns, counters),
        };
        if let Err(why) = read {
            return counters.fail(why);
        }
        let latency_ns = now_ns.saturating_sub(request.due_ns);
        counters.latencies.record(Duration::from_nanos(latency_ns));
        self.silence = Silence::default();
    }
}

/// Returns a non-blocking socket connected to the tracker.
pub(super) fn connect(source: Option<IpAddr>, target: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let source = source.unwrap_or(any);
    let socket = UdpSocket::bind((source, 0))
        .with_context(|| format!("cannot bind a socket to {source}"))?;
    socket.connect(target).with_context(|| format!("cannot reach {target} from {source}"))?;
    socket.set_nonblocking(true)?;
    make_room(&socket);
    Ok(socket)
}

/// Enlarges the receive buffer, because responses arrive in bursts. Best effort: with less room
/// some are lost.
fn make_room(socket: &UdpSocket) {
    use nix::sys::socket::{setsockopt, sockopt};
    const BYTES: usize = 8 << 20;
    let _ = setsockopt(socket, sockopt::RcvBuf, &BYTES);
    let _ = setsockopt(socket, sockopt::RcvBufForce, &BYTES);
}
