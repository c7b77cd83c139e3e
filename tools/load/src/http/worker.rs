//! One thread of the load: connections, each with a share of the peers.

use std::collections::VecDeque;
use std::net::{IpAddr, TcpStream};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use client::codec::http as codec;
use memchr::memmem::Finder;
use types::Event;

use super::HttpOptions;
use super::connection::{Connection, EndReason, OutstandingRequest};
use super::response::CompleteResponse;
use crate::checks::{AnnounceAnswer, Checker, PeerList};
use crate::counters::{Counters, ResponseKind};
use crate::poller::Poller;
use crate::population::Population;
use crate::random::{Random, hash};
use crate::runner::{SILENCE_MAX, Silence, Worker};
use crate::schedule::Schedule;
use crate::stream::Dialer;

/// Bytes per read. A response has a few thousand.
const BUFFER: usize = 64 * 1024;
/// A request sent later than this after its scheduled time is overdue.
const OVERDUE: Duration = Duration::from_millis(1);
/// With at least this many connections in a closed loop, wait for this long if few responses are
/// ready: the tracker has enough to do meanwhile, and each wakeup costs as much as a request.
const COALESCE: (usize, Duration) = (32, Duration::from_micros(50));
/// Fewer ready connections than all divided by this are few: the tracker still works on the others.
const SMALL_BATCH_DIVISOR: usize = 2;

/// See the module.
pub(super) struct Http {
    connections: Vec<Connection>,
    /// Idle connections, in an open loop.
    idle: VecDeque<usize>,
    /// Connections that failed, to be reopened at the next maintenance.
    broken: Vec<usize>,
    protocol: ProtocolState,
    dialer: Dialer,
    poller: Poller,
    buffer: Box<[u8]>,
    schedule: Option<Schedule>,
    start: Instant,
    timeout: Duration,
    is_first_step: bool,
    /// True if few responses arrived last time.
    was_small_batch: bool,
}

/// Writes requests, reads responses and detects a silent tracker.
struct ProtocolState {
    options: HttpOptions,
    population: Population,
    random: Random,
    checker: Checker,
    unchecked: u32,
    /// The end of every request.
    request_end: Vec<u8>,
    /// Peers of each connection.
    share: u32,
    /// The address that the tracker sees.
    source: IpAddr,
    /// When the last response was read.
    last_response: Instant,
    silence: Silence,
}

impl Http {
    /// Creates worker number `number`, whose connections are not yet open.
    pub(super) fn new(options: &HttpOptions, number: u32) -> Result<Self> {
        let workers = options.workers.clamp(1, options.connections.max(1));
        let all = options.connections;
        let connections = (all / workers + u32::from(number < all % workers)).max(1);
        let population = Population::new(&options.workload, number, workers);
        let seed = hash(options.workload.seed, number.into());
        let source = source(options)?;
        let mut request_end = Vec::new();
        codec::get_end(&mut request_end, &options.url.host, options.close);
        let protocol = ProtocolState {
            checker: Checker::new([source].into_iter(), options.workload.peers.into()),
            options: options.clone(),
            share: (population.len() / connections).max(1),
            population,
            random: Random::new(seed),
            unchecked: 0,
            request_end,
            source,
            last_response: Instant::now(),
            silence: Silence::default(),
        };
        Ok(Self {
            connections: (0..connections).map(|_| Connection::default()).collect(),
            idle: VecDeque::new(),
            broken: Vec::new(),
            protocol,
            dialer: Dialer::new(&options.url)?,
            poller: Poller::new().context("cannot wait for sockets")?,
            buffer: vec![0; BUFFER].into(),
            schedule: options.rate.map(|rate| Schedule::new(rate / f64::from(workers))),
            start: Instant::now(),
            timeout: options.timeout,
            is_first_step: true,
            was_small_batch: false,
        })
    }

    /// Starts a request on a connection, opening it if necessary.
    fn begin(&mut self, number: usize, due: Instant, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        self.protocol.write(number, connection, due);
        counters.sent += 1;
        counters.bytes_out += connection.request.len() as u64;
        if connection.stream.is_none() {
            match self.dialer.dial(&self.poller, number) {
                Ok(stream) => connection.stream = Some(stream),
                Err(error) => return self.end(number, format!("{error:#}"), counters),
            }
        }
        // The rest is written when the connection is writable.
        if let Err(ended) = connection.send() {
            self.end(number, ended, counters);
        }
    }

    /// Writes and reads as far as possible on a connection.
    fn advance(&mut self, number: usize, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        let had_request = connection.pending.is_some();
        let mut bytes_in = 0;
        let protocol = &mut self.protocol;
        let done = connection.send().and_then(|()| {
            connection.receive(&mut self.buffer, &mut bytes_in, |request, response| {
                protocol.read(&request, response, counters);
            })
        });
        counters.bytes_in += bytes_in;
        let is_answered = had_request && connection.pending.is_none();
        match done {
            Ok(()) if !is_answered => {}
            Ok(()) if protocol.options.close => self.end(number, EndReason::new(), counters),
            Ok(()) => {
                // Reading the response took so little time that another clock read is not worth its
                // cost.
                let now = protocol.last_response;
                self.is_free(number, now, counters);
            }
            Err(ended) => self.end(number, ended, counters),
        }
    }

    /// Closes a connection. An empty `why` means that it ended normally.
    fn end(&mut self, number: usize, why: EndReason, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        connection.stream = None;
        connection.response.clear();
        let is_lost = connection.pending.take().is_some();
        counters.lost += u64::from(is_lost);
        if why.is_empty() {
            return self.is_free(number, Instant::now(), counters);
        }
        self.protocol.silence.is_refused |= why.contains("refused");
        counters.fail(&why);
        self.broken.push(number);
    }

    /// Handles a connection that is free for the next request.
    fn is_free(&mut self, number: usize, now: Instant, counters: &mut Counters) {
        if self.schedule.is_none() {
            return self.begin(number, now, counters);
        }
        // One that the tracker closes while it is idle keeps its turn.
        let connection = self.connections.get_mut(number);
        if connection.is_some_and(|it| !std::mem::replace(&mut it.is_idle, true)) {
            self.idle.push_back(number);
        }
    }

    /// Sends the scheduled requests of an open loop.
    fn send_due(&mut self, counters: &mut Counters) {
        while let Some(schedule) = &mut self.schedule {
            let now = Instant::now();
            let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
            if schedule.due(now_ns) == 0 {
                return;
            }
            let Some(number) = self.idle.pop_front() else { return };
            self.connections.iter_mut().skip(number).take(1).for_each(|it| it.is_idle = false);
            let due = self.start + Duration::from_nanos(schedule.next_ns());
            schedule.advance();
            counters.overdue += u64::from(now > due + OVERDUE);
            self.begin(number, due, counters);
        }
    }

    /// Returns the next time at which there is work: now, if a request is scheduled and a
    /// connection is idle.
    fn wake(&self, until: Instant) -> Instant {
        let mut wake = until;
        if let Some(schedule) = self.schedule.filter(|_| !self.idle.is_empty()) {
            wake = wake.min(self.start + Duration::from_nanos(schedule.next_ns()));
        }
        wake
    }
}

impl Worker for Http {
    fn prepare(&mut self, _: &AtomicBool) -> Result<()> {
        // Report an unreachable tracker at once.
        let address = self.protocol.options.url.address;
        TcpStream::connect_timeout(&address, SILENCE_MAX)
            .with_context(|| format!("cannot connect to {address}"))?;
        Ok(())
    }

    fn start(&mut self, at: Instant) {
        self.start = at;
    }

    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()> {
        if std::mem::take(&mut self.is_first_step) {
            for number in 0..self.connections.len() {
                self.is_free(number, Instant::now(), counters);
            }
        }
        self.send_due(counters);
        let (wake, before) = (self.wake(until), Instant::now());
        if std::mem::take(&mut self.was_small_batch) {
            thread::sleep(COALESCE.1);
        }
        self.poller.wait(wake, self.schedule.is_some()).context("cannot wait for sockets")?;
        counters.waited += before.elapsed();
        let ready = std::mem::take(&mut self.poller.ready);
        self.was_small_batch = self.schedule.is_none()
            && self.connections.len() >= COALESCE.0
            && ready.len() < self.connections.len() / SMALL_BATCH_DIVISOR;
        for event in &ready {
            self.advance(event.number, counters);
        }
        self.poller.ready = ready;
        self.protocol.silence.check()
    }

    fn maintain(&mut self, counters: &mut Counters) {
        let now = Instant::now();
        for number in std::mem::take(&mut self.broken) {
            self.is_free(number, Instant::now(), counters);
        }
        for number in 0..self.connections.len() {
            let request = self.connections.get(number).and_then(|connection| connection.pending);
            if request.is_some_and(|request| now > request.due + self.timeout) {
                self.end(number, format!("no response within {:?}", self.timeout), counters);
            }
        }
    }
}

impl ProtocolState {
    /// Writes the next request for a connection.
    fn write(&mut self, number: usize, connection: &mut Connection, due: Instant) {
        let first = number as u32 * self.share;
        let place = first + self.random.below(self.share as usize) as u32;
        let place = place.min(self.population.len() - 1);
        let (announce, peer) = self.population.announce(place, &mut self.random);
        if announce.event == Event::Stopped {
            self.checker.expect_another_peer();
        }
        let target = self.options.url.target(self.population.number(place));
        let request = &mut connection.request;
        request.clear();
        request.extend_from_slice(b"GET ");
        codec::announce_target(request, target, &announce, 0);
        request.extend_from_slice(&self.request_end);
        connection.sent = 0;
        connection.pending = Some(OutstandingRequest { peer, due });
        self.silence.since.get_or_insert_with(|| due.max(self.last_response));
    }

    /// Handles a response.
    fn read(
        &mut self,
        request: &OutstandingRequest,
        response: &CompleteResponse<'_>,
        counters: &mut Counters,
    ) {
        self.last_response = Instant::now();
        if response.status != 200 {
            counters.count(ResponseKind::Error);
            counters.fail(&format!("HTTP status {}", response.status));
        } else if let Err(why) = self.read_body(request, response.body, counters) {
            return counters.fail(why);
        }
        counters.latencies.record(self.last_response.saturating_duration_since(request.due));
        self.silence = Silence::default();
    }

    fn read_body(
        &mut self,
        request: &OutstandingRequest,
        body: &[u8],
        counters: &mut Counters,
    ) -> Result<(), &'static str> {
        if KEYS.failure.find(body).is_some()
            && let Ok(codec::TrackerResponse::Failure(words)) = codec::parse_announce(body)
        {
            counters.refuse(words);
            return Ok(());
        }
        self.unchecked += 1;
        if self.unchecked < self.options.check_every {
            let peers = peers(body).ok_or("an invalid announce response")?;
            counters.peers += peers;
        } else {
            self.unchecked = 0;
            self.check(request, body, counters)?;
        }
        counters.count(ResponseKind::Announce);
        Ok(())
    }

    /// Validates an announce response.
    fn check(
        &mut self,
        request: &OutstandingRequest,
        body: &[u8],
        counters: &mut Counters,
    ) -> Result<(), &'static str> {
        let Ok(codec::TrackerResponse::Success(answer)) = codec::parse_announce(body) else {
            return Err("an invalid announce response");
        };
        counters.peers += answer.peers.len() as u64;
        let asker = (request.peer, self.source);
        // A count that the tracker omits cannot be wrong.
        let seeders = answer.seeders.unwrap_or(answer.peers.len() as u64);
        let leechers = answer.leechers.unwrap_or(0);
        let answer = AnnounceAnswer { seeders, leechers, peers: PeerList::List(&answer.peers) };
        let workload = self.population.workload();
        self.checker.check(workload, asker, &answer, &mut counters.checks);
        Ok(())
    }
}

/// Returns the number of peers in a response's compact lists without parsing all of it, or `None`
/// if it is not an announce response. Lists of dictionaries count as empty.
fn peers(body: &[u8]) -> Option<u64> {
    // Some trackers append a line break.
    let body = body.trim_ascii_end();
    if body.first() != Some(&b'd') || body.last() != Some(&b'e') {
        return None;
    }
    let len = |key: &Finder<'_>| {
        let rest = body.get(key.find(body)? + key.needle().len()..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).take(9);
        Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    };
    let (v4, v6) = (len(&KEYS.peers), len(&KEYS.peers6));
    let has_interval = KEYS.interval.find(body).is_some();
    (has_interval || v4.is_some()).then(|| v4.unwrap_or(0) / 6 + v6.unwrap_or(0) / 18)
}

struct Keys {
    failure: Finder<'static>,
    interval: Finder<'static>,
    peers: Finder<'static>,
    peers6: Finder<'static>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys {
    failure: Finder::new("14:failure reason"),
    interval: Finder::new("8:interval"),
    peers: Finder::new("5:peers"),
    peers6: Finder::new("6:peers6"),
});

/// Returns the address that the tracker sees, which the system chooses.
fn source(options: &HttpOptions) -> Result<IpAddr> {
    let address = options.url.address;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = std::net::UdpSocket::bind(any)?;
    // Connecting a UDP socket sends nothing; it only selects a route.
    socket.connect(address).with_context(|| format!("no route to {address}"))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrackerUrl;

    #[test]
    fn counts_compact_peers() {
        for (body, expected) in [
            ("d8:intervali9e5:peers12:aaaaaabbbbbbe", Some(2)),
            ("d8:intervali9e5:peers0:6:peers618:aaaaaabbbbbbccccccee", Some(1)),
            ("d8:intervali9ee", Some(0)),
            ("d8:intervali9e5:peerslee", Some(0)),
            ("d8:intervali9ee\r\n", Some(0)),
            ("de", None),
            ("", None),
            ("<html>", None),
        ] {
            assert_eq!(peers(body.as_bytes()), expected, "{body}");
        }
    }

    /// Otherwise two requests would use it at the same time.
    #[test]
    fn a_connection_that_ends_while_idle_is_idle_once() {
        let url = TrackerUrl::http("http://127.0.0.1:1/announce").unwrap();
        let options = HttpOptions { connections: 2, rate: Some(1.0), ..HttpOptions::of(url) };
        let (mut load, mut counters) = (Http::new(&options, 0).unwrap(), Counters::default());
        load.is_free(0, Instant::now(), &mut counters);
        load.is_free(1, Instant::now(), &mut counters);
        load.end(0, EndReason::new(), &mut counters);
        assert_eq!(load.idle, [0, 1]);
    }
}
