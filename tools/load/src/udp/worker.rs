//! One thread of the load: sockets, each with a connection id and a share of the peers.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use client::codec::udp::{Reply, decode_reply};

use super::UdpOptions;
use super::batch::Batch;
use super::datagram_io::DatagramIo;
use super::pending::{PENDING_MAX, PendingRequest, PendingRequests, ResponseMatch};
use super::requests::{Requests, Sender};
use crate::checks::{AnnounceAnswer, Checker, PeerList};
use crate::counters::{Counters, ResponseKind};
use crate::mix::{RequestKind, SCRAPE_TORRENTS};
use crate::poller::Poller;
use crate::population::Population;
use crate::random::{Random, hash};
use crate::runner::{SILENCE_MAX, Silence, Worker};
use crate::schedule::{LoopMode, Schedule};

/// Renew connection ids before the minute for which BEP 15 allows their use.
const RECONNECT_EVERY: Duration = Duration::from_secs(45);
/// Interval between connect requests before the start.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Maximum outstanding requests per socket in an open loop.
const OPEN_WINDOW: u32 = 4096;
/// A request sent later than this after its scheduled time is overdue.
const OVERDUE_NS: u64 = 1_000_000;
/// With at least this many outstanding requests in a closed loop, wait for this long if few
/// responses are ready: the tracker has enough to do meanwhile, and larger batches cost less per
/// response.
const COALESCE: (usize, Duration) = (256, Duration::from_micros(50));
/// Fewer responses than the outstanding requests divided by this are few.
const SMALL_BATCH_DIVISOR: usize = 8;

/// See the module.
pub(super) struct Udp {
    lanes: Vec<Lane>,
    protocol: ProtocolState,
    io: DatagramIo,
    poller: Poller,
    /// The schedule of an open loop.
    schedule: Option<Schedule>,
    /// The next lane to send in an open loop.
    next_lane: usize,
    timeout: Duration,
    /// Maximum number of outstanding requests.
    slots: usize,
    /// True if the lanes have not yet started.
    is_first_step: bool,
    /// True if few responses of many outstanding ones arrived last time.
    was_small_batch: bool,
}

/// A socket with its connection id and its share of the peers.
struct Lane {
    socket: UdpSocket,
    state: State,
}

struct State {
    number: u32,
    source: IpAddr,
    connection_id: Option<u64>,
    connected: Instant,
    /// True if the tracker has refused a request, perhaps because of the connection id.
    was_refused: bool,
    /// The first of its peers and their number.
    peers: (u32, u32),
    /// Free request slots.
    free: Vec<u32>,
}

/// Writes requests, reads responses and detects a silent tracker.
struct ProtocolState {
    requests: Requests,
    pending: PendingRequests,
    /// Slots per lane.
    window: u32,
    checker: Checker,
    check_every: u32,
    unchecked: u32,
    scrape_len: usize,
    is_v6: bool,
    start: Instant,
    silence: Silence,
}

impl Udp {
    /// Creates worker number `number` with its sockets.
    pub(super) fn new(options: &UdpOptions, number: u32) -> Result<Self> {
        let sockets = options.sockets.max(1);
        let workers = options.workers.max(1);
        let (window, schedule) = match options.loop_mode {
            LoopMode::Closed { outstanding } => {
                (outstanding.div_ceil(workers).div_ceil(sockets), None)
            }
            LoopMode::Open { rate } => {
                (OPEN_WINDOW, Some(Schedule::new(rate / f64::from(workers))))
            }
        };
        let window = window.clamp(1, PENDING_MAX / sockets);
        let population = Population::new(&options.workload, number, workers);
        let poller = Poller::new().context("cannot wait for sockets")?;
        // In an open loop, kernel timestamps keep latencies independent of this thread's
        // scheduling. In a closed loop they are not worth their cost.
        let io = DatagramIo::new(options.offload, schedule.is_some());
        let mut lanes = Vec::new();
        for lane in 0..sockets {
            let source = source(options, number * sockets + lane);
            let socket = connect(source, options.url.address)?;
            io.register(&socket).context("cannot enable receive timestamps")?;
            let source = socket.local_addr().context("cannot get a socket's address")?.ip();
            let share = |lane: u32| {
                (u64::from(population.len()) * u64::from(lane) / u64::from(sockets)) as u32
            };
            let first = share(lane).min(population.len() - 1);
            poller.add(&socket, lane as usize).context("cannot wait for a socket")?;
            lanes.push(Lane {
                socket,
                state: State {
                    number: lane,
                    source,
                    connection_id: None,
                    connected: Instant::now(),
                    was_refused: false,
                    peers: (first, share(lane + 1).saturating_sub(first).max(1)),
                    free: (lane * window..(lane + 1) * window).rev().collect(),
                },
            });
        }
        let seed = hash(options.workload.seed, number.into());
        let sources = (0..workers * sockets).filter_map(|number| source(options, number));
        let sources = sources.chain(lanes.iter().map(|lane| lane.state.source));
        let protocol = ProtocolState {
            checker: Checker::new(sources, options.workload.peers.into()),
            requests: Requests::new(options, population, Random::new(seed)),
            pending: PendingRequests::new(window * sockets, hash(seed, 1) as u32),
            window,
            check_every: options.check_every.max(1),
            unchecked: 0,
            scrape_len: 12 * SCRAPE_TORRENTS,
            is_v6: options.url.address.is_ipv6(),
            start: Instant::now(),
            silence: Silence::default(),
        };
        Ok(Self {
            lanes,
            protocol,
            io,
            poller,
            schedule,
            next_lane: number as usize,
            timeout: options.timeout,
            slots: (window * sockets) as usize,
            is_first_step: true,
            was_small_batch: false,
        })
    }

    /// Waits for responses until `until` and handles them. In a closed loop, sends the next
    /// requests on the same sockets.
    fn receive(
        &mut self,
        until: Instant,
        is_closed_loop: bool,
        counters: &mut Counters,
    ) -> Result<()> {
        let Self { lanes, protocol, io, poller, schedule, .. } = self;
        let before = Instant::now();
        if std::mem::take(&mut self.was_small_batch) {
            thread::sleep(COALESCE.1);
        }
        poller.wait(until, schedule.is_some()).context("cannot wait for sockets")?;
        counters.waited += before.elapsed();
        let mut count = 0;
        for ready in &poller.ready {
            let Some(Lane { socket, state }) = lanes.get_mut(ready.number) else { continue };
            let mut now = None;
            let received = io.receive(socket, |datagram, is_truncated, queued| {
                count += 1;
                let now: Instant = *now.get_or_insert_with(Instant::now);
                let came = now.checked_sub(queued).unwrap_or(now);
                protocol.receive(state, (datagram, is_truncated), came, counters);
            });
            match received {
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    protocol.record_error(&error, counters)
                }
                _ => {}
            }
            if is_closed_loop {
                let now_ns = protocol.now_ns();
                protocol.send_requests((socket, state), io, u32::MAX, counters, || now_ns);
            }
        }
        self.was_small_batch = is_closed_loop
            && count > 0
            && self.slots >= COALESCE.0
            && count < self.slots / SMALL_BATCH_DIVISOR;
        Ok(())
    }

    /// Sends the scheduled requests of an open loop.
    fn send_due(&mut self, counters: &mut Counters) {
        let Self { lanes, protocol, io, schedule: Some(schedule), .. } = self else { return };
        let mut full = 0;
        while full < lanes.len() {
            let now_ns = protocol.now_ns();
            let due = schedule.due(now_ns);
            if due == 0 {
                return;
            }
            self.next_lane = (self.next_lane + 1) % lanes.len();
            let Some(Lane { socket, state }) = lanes.get_mut(self.next_lane) else { return };
            full = if state.free.is_empty() { full + 1 } else { 0 };
            let mut overdue = 0;
            protocol.send_requests((socket, state), io, due.min(64) as u32, counters, || {
                let due_ns = schedule.next_ns();
                overdue += u64::from(now_ns > due_ns + OVERDUE_NS);
                schedule.advance();
                due_ns
            });
            counters.overdue += overdue;
        }
    }

    /// Requests connection ids for lanes without one and where `when` returns true.
    fn connect_where(&mut self, counters: &mut Counters, when: impl Fn(&State) -> bool) {
        let Self { lanes, protocol, io, .. } = self;
        for Lane { socket, state } in lanes {
            if state.connection_id.is_none() || when(state) {
                protocol.connect((socket, state), io, counters);
            }
        }
    }

    /// Expires requests older than `timeout` and returns their number.
    fn expire(&mut self, timeout: Duration) -> u64 {
        let Self { lanes, protocol, .. } = self;
        let before_ns = protocol.now_ns().saturating_sub(timeout.as_nanos() as u64);
        let (window, mut lost) = (protocol.window, 0);
        protocol.pending.expire(before_ns, |slot, _| {
            lost += 1;
            if let Some(lane) = lanes.get_mut((slot / window) as usize) {
                lane.state.free.push(slot);
            }
        });
        lost
    }
}

impl Worker for Udp {
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        let mut counters = Counters::default();
        while self.is_unconnected() {
            if begun.elapsed() > SILENCE_MAX || stop.load(Ordering::Relaxed) {
                let mut errors: Vec<_> = counters.errors.into_iter().collect();
                errors.sort_by_key(|(_, times)| *times);
                let why = errors.pop().map_or_else(String::new, |(text, _)| format!(": {text}"));
                bail!("no connection id within {SILENCE_MAX:?}{why}");
            }
            self.expire(Duration::ZERO);
            self.connect_where(&mut counters, |_| false);
            let until = Instant::now() + RETRY_EVERY;
            while Instant::now() < until && !stop.load(Ordering::Relaxed) && self.is_unconnected() {
                self.receive((Instant::now() + RETRY_EVERY / 10).min(until), false, &mut counters)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, at: Instant) {
        self.protocol.start = at;
        self.protocol.silence.since = None;
    }

    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()> {
        let is_closed_loop = self.schedule.is_none();
        let mut until = until;
        if let Some(schedule) = &self.schedule {
            let next = self.protocol.start + Duration::from_nanos(schedule.next_ns());
            if next <= Instant::now() {
                self.send_due(counters);
            }
            let next = self.schedule.map_or(0, |schedule| schedule.next_ns());
            until = until.min(self.protocol.start + Duration::from_nanos(next));
        } else if std::mem::take(&mut self.is_first_step) {
            self.fill_all_lanes(counters);
        }
        self.receive(until, is_closed_loop, counters)?;
        self.protocol.silence.check()
    }

    fn maintain(&mut self, counters: &mut Counters) {
        counters.lost += self.expire(self.timeout);
        self.connect_where(counters, |state| {
            state.was_refused || state.connected.elapsed() > RECONNECT_EVERY
        });
        if self.schedule.is_none() {
            self.fill_all_lanes(counters);
        }
    }
}

impl Udp {
    fn is_unconnected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.state.connection_id.is_none())
    }

    /// Sends as many requests on all lanes as their free slots allow.
    fn fill_all_lanes(&mut self, counters: &mut Counters) {
        let Self { lanes, protocol, io, .. } = self;
        let now_ns = protocol.now_ns();
        for Lane { socket, state } in lanes {
            protocol.send_requests((socket, state), io, u32::MAX, counters, || now_ns);
        }
    }
}

impl ProtocolState {
    fn now_ns(&self) -> u64 {
        // Fits for half a millennium.
        Instant::now().saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Sends requests on a lane, as many as it has free slots but at most `most`. `due` returns
    /// each one's scheduled time.
    fn send_requests(
        &mut self,
        (socket, state): (&UdpSocket, &mut State),
        io: &mut DatagramIo,
        most: u32,
        counters: &mut Counters,
        mut due: impl FnMut() -> u64,
    ) {
        let Some(connection_id) = state.connection_id else { return };
        let sender = Sender { connection_id, peers: state.peers };
        let kept = state.free.len().saturating_sub(most as usize);
        for slot in state.free.drain(kept..).rev() {
            if self.requests.add(&mut self.pending, slot, due(), sender) {
                self.checker.expect_another_peer();
            }
        }
        self.send(socket, io, counters);
    }

    /// Requests a connection id.
    fn connect(
        &mut self,
        (socket, state): (&UdpSocket, &mut State),
        io: &mut DatagramIo,
        counters: &mut Counters,
    ) {
        let Some(slot) = state.free.pop() else { return };
        let now_ns = self.now_ns();
        self.requests.add_connect(&mut self.pending, slot, now_ns);
        // One connect request for all refusals until it is answered.
        (state.was_refused, state.connected) = (false, Instant::now());
        self.send(socket, io, counters);
    }

    fn send(&mut self, socket: &UdpSocket, io: &mut DatagramIo, counters: &mut Counters) {
        let mut failed = None;
        for batch in &mut self.requests.batches {
            let Batch { bytes, len, count } = batch;
            if *count == 0 {
                continue;
            }
            counters.bytes_out += bytes.len() as u64;
            counters.sent += *count;
            // Requests that could not be sent expire like lost ones.
            failed = io.send(socket, bytes, *len).err().or(failed);
            batch.clear();
            self.silence.since.get_or_insert_with(Instant::now);
        }
        if let Some(error) = failed {
            self.record_error(&error, counters);
        }
    }

    fn record_error(&mut self, error: &io::Error, counters: &mut Counters) {
        self.silence.is_refused |= error.kind() == ErrorKind::ConnectionRefused;
        counters.fail(&error.to_string());
    }

    /// Handles a response.
    fn receive(
        &mut self,
        lane: &mut State,
        (datagram, is_truncated): (&[u8], bool),
        now: Instant,
        counters: &mut Counters,
    ) {
        counters.bytes_in += datagram.len() as u64;
        if is_truncated {
            counters.fail("a response longer than any announce response");
        }
        let Some((transaction_id, reply)) = decode_reply(datagram) else {
            return counters.fail("an invalid response");
        };
        match self.pending.complete(transaction_id) {
            ResponseMatch::Request(slot, request) if slot / self.window == lane.number => {
                lane.free.push(slot);
                if self.read(lane, &request, &reply, now, counters) {
                    let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
                    let latency_ns = now_ns.saturating_sub(request.due_ns);
                    counters.latencies.record(Duration::from_nanos(latency_ns));
                    self.silence = Silence::default();
                }
            }
            ResponseMatch::Request(..) | ResponseMatch::Unknown => {
                counters.fail("a response with an unknown transaction id");
            }
            ResponseMatch::Late => {
                counters.late += 1;
                // A tracker with a long queue answers late, but it does answer.
                self.silence = Silence::default();
            }
        }
    }

    /// Counts a response. Returns whether it matches the request.
    fn read(
        &mut self,
        lane: &mut State,
        request: &PendingRequest,
        reply: &Reply<'_>,
        now: Instant,
        counters: &mut Counters,
    ) -> bool {
        match (request.kind, reply) {
            (_, Reply::Error(words)) => {
                lane.was_refused = true;
                counters.refuse(words);
            }
            (RequestKind::Connect, Reply::Connect { connection_id }) => {
                counters.count(ResponseKind::Connect);
                (lane.connection_id, lane.connected) = (Some(*connection_id), now);
            }
            (RequestKind::Announce, Reply::Announce { leechers, seeders, peers, .. }) => {
                counters.count(ResponseKind::Announce);
                counters.peers += (peers.len() / if self.is_v6 { 18 } else { 6 }) as u64;
                self.unchecked += 1;
                if self.unchecked >= self.check_every {
                    self.unchecked = 0;
                    let (seeders, leechers) = ((*seeders).into(), (*leechers).into());
                    let peers = if self.is_v6 { PeerList::V6(peers) } else { PeerList::V4(peers) };
                    let answer = AnnounceAnswer { seeders, leechers, peers };
                    let asker = (request.peer, lane.source);
                    let workload = self.requests.population.workload();
                    self.checker.check(workload, asker, &answer, &mut counters.checks);
                }
            }
            (RequestKind::Scrape, Reply::Scrape(counts)) if counts.len() == self.scrape_len => {
                counters.count(ResponseKind::Scrape);
            }
            (RequestKind::Scrape, Reply::Scrape(_)) => {
                counters.fail("a scrape response with a wrong number of torrents");
                return false;
            }
            _ => {
                counters.fail("a response of another kind than the request");
                return false;
            }
        }
        true
    }
}

/// Returns the source address of a socket, the configured ones in turn.
fn source(options: &UdpOptions, socket: u32) -> Option<IpAddr> {
    options.sources.get(socket as usize % options.sources.len().max(1)).copied()
}

/// Returns a non-blocking socket connected to the tracker.
pub(super) fn connect(source: Option<IpAddr>, target: SocketAddr) -> Result<UdpSocket> {
    let socket = plain_socket(source, target)?;
    socket.set_nonblocking(true)?;
    make_room(&socket);
    Ok(socket)
}

/// Returns a socket connected to the tracker.
pub(super) fn plain_socket(source: Option<IpAddr>, target: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let source = source.unwrap_or(any);
    let socket = UdpSocket::bind((source, 0))
        .with_context(|| format!("cannot bind a socket to {source}"))?;
    socket.connect(target).with_context(|| format!("cannot reach {target} from {source}"))?;
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
