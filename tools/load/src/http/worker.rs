//! One thread of the load: connections, each with a share of the peers.

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
use super::response::{self, CompleteResponse, TOO_MUCH};
use crate::checks::Checker;
use crate::counters::Counters;
use crate::poller::{Poller, Ready};
use crate::population::{Population, TorrentPeer};
use crate::random::{Random, hash};
use crate::runner::{SILENCE_MAX, Silence, Worker};
use crate::schedule::Pacer;
use crate::stream::{Dialer, Link};

/// Longer than any response.
const BUFFER: usize = 1 << 20;
/// With at least this many connections in a closed loop, wait for this long if few responses are
/// ready: the tracker has enough to do meanwhile, and each wakeup costs as much as a request.
const COALESCE: (usize, Duration) = (32, Duration::from_micros(50));
/// Fewer ready connections than all divided by this are few: the tracker still works on the others.
const SMALL_BATCH_DIVISOR: usize = 2;
const CLOSED: &str = "the tracker closed the connection without a response";

/// See the module.
pub(super) struct Http {
    connections: Vec<Connection>,
    /// Connections that failed, to be reopened at the next maintenance.
    broken: Vec<usize>,
    protocol: ProtocolState,
    dialer: Dialer,
    poller: Poller,
    buffer: Box<[u8]>,
    /// The body of a chunked response.
    body: Vec<u8>,
    /// In an open loop.
    pacer: Option<Pacer>,
    timeout: Duration,
    is_first_step: bool,
    /// True if few responses arrived last time.
    was_small_batch: bool,
}

/// A place for a connection. Its index decides which peers announce on it.
#[derive(Default)]
struct Connection {
    /// `None` if the connection is closed or not yet open.
    link: Option<Link>,
    pending: Option<OutstandingRequest>,
}

#[derive(Clone, Copy, Debug)]
struct OutstandingRequest {
    /// The announcing peer.
    peer: TorrentPeer,
    /// When it was scheduled.
    due: Instant,
}

/// Why a connection ended: a text, empty if it ended normally.
type EndReason = String;

/// Writes requests, reads responses and detects a silent tracker.
struct ProtocolState {
    options: HttpOptions,
    population: Population,
    random: Random,
    checker: Checker,
    unchecked: u32,
    request: Vec<u8>,
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
            request: Vec::new(),
            request_end,
            source,
            last_response: Instant::now(),
            silence: Silence::default(),
        };
        Ok(Self {
            connections: (0..connections).map(|_| Connection::default()).collect(),
            broken: Vec::new(),
            protocol,
            dialer: Dialer::new(&options.url)?,
            poller: Poller::new().context("cannot wait for sockets")?,
            buffer: vec![0; BUFFER].into(),
            body: Vec::new(),
            pacer: options.rate.map(|rate| Pacer::new(rate / f64::from(workers))),
            timeout: options.timeout,
            is_first_step: true,
            was_small_batch: false,
        })
    }

    /// Starts a request on a connection, opening it if necessary.
    fn begin(&mut self, number: usize, due: Instant, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        connection.pending = Some(self.protocol.write(number, due));
        let request = &self.protocol.request;
        counters.sent += 1;
        counters.bytes_out += request.len() as u64;
        let sent = match &mut connection.link {
            Some(link) => link.send(request).map_err(|error| error.to_string()),
            link => match self.dialer.dial(&self.poller, number) {
                Ok(new) => link.insert(new).send(request).map_err(|error| error.to_string()),
                Err(error) => Err(format!("{error:#}")),
            },
        };
        // The rest is written when the connection is writable.
        if let Err(why) = sent {
            self.fail(number, &why, counters);
        }
    }

    /// Writes and reads as far as possible on a connection.
    fn advance(&mut self, event: Ready, counters: &mut Counters) {
        let number = event.number;
        let Some(connection) = self.connections.get_mut(number) else { return };
        let had_request = connection.pending.is_some();
        let done = self.exchange(event, counters);
        let Some(connection) = self.connections.get_mut(number) else { return };
        let is_answered = had_request && connection.pending.is_none();
        let ends = done.is_err() || (is_answered && self.protocol.options.close);
        if ends {
            connection.link = None;
        }
        match done {
            // Reading the response took so little time that another clock read is not worth its
            // cost.
            _ if is_answered => self.on_free(number, self.protocol.last_response, counters),
            Err(why) if had_request && why.is_empty() => self.fail(number, CLOSED, counters),
            Err(why) if had_request => self.fail(number, &why, counters),
            // One that ends while it is free keeps its turn.
            Err(why) if !why.is_empty() => counters.fail(&why),
            _ => {}
        }
    }

    /// Returns an error if the connection has ended.
    fn exchange(&mut self, event: Ready, counters: &mut Counters) -> Result<(), EndReason> {
        let Self { connections, protocol, buffer, body, .. } = self;
        let Some(Connection { link: Some(link), pending }) = connections.get_mut(event.number)
        else {
            return Ok(());
        };
        if event.is_writable {
            link.flush().map_err(|error| error.to_string())?;
        }
        loop {
            let read = link.read(buffer, event.is_closed).map_err(|error| error.to_string())?;
            let Some(input) = read else { return Ok(()) };
            counters.bytes_in += input.fresh as u64;
            let bytes = buffer.get(..input.len).unwrap_or_default();
            let Some(request) = *pending else {
                return Err(if input.is_over { String::new() } else { TOO_MUCH.into() });
            };
            if let Some(whole) = response::read(bytes, input.is_over, body)? {
                *pending = None;
                protocol.read(&request, &whole, counters);
                let stays = whole.keep_alive && !input.is_over;
                return if stays { Ok(()) } else { Err(String::new()) };
            }
            if input.is_over {
                return Err(CLOSED.into());
            }
            link.keep(bytes);
            if input.is_all {
                return Ok(());
            }
        }
    }

    /// Ends a connection without a response to its request.
    fn fail(&mut self, number: usize, why: &str, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        *connection = Connection::default();
        counters.lost += 1;
        self.protocol.silence.is_refused |= why.contains("refused");
        counters.fail(why);
        self.broken.push(number);
    }

    /// Handles a connection that is free for the next request.
    fn on_free(&mut self, number: usize, now: Instant, counters: &mut Counters) {
        match &mut self.pacer {
            Some(pacer) => pacer.add(number),
            None => self.begin(number, now, counters),
        }
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
        self.pacer.iter_mut().for_each(|pacer| pacer.start = at);
    }

    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()> {
        if std::mem::take(&mut self.is_first_step) {
            for number in 0..self.connections.len() {
                self.on_free(number, Instant::now(), counters);
            }
        }
        while let Some((number, due)) = self.pacer.as_mut().and_then(|pacer| pacer.next(counters)) {
            self.begin(number, due, counters);
        }
        let wake = self.pacer.as_ref().map_or(until, |pacer| pacer.wake(until));
        let before = Instant::now();
        if std::mem::take(&mut self.was_small_batch) {
            thread::sleep(COALESCE.1);
        }
        self.poller.wait(wake, self.pacer.is_some()).context("cannot wait for sockets")?;
        counters.waited += before.elapsed();
        let ready = std::mem::take(&mut self.poller.ready);
        self.was_small_batch = self.pacer.is_none()
            && self.connections.len() >= COALESCE.0
            && ready.len() < self.connections.len() / SMALL_BATCH_DIVISOR;
        for event in &ready {
            self.advance(*event, counters);
        }
        self.poller.ready = ready;
        self.protocol.silence.check()
    }

    fn maintain(&mut self, counters: &mut Counters) {
        let now = Instant::now();
        for number in std::mem::take(&mut self.broken) {
            self.on_free(number, now, counters);
        }
        for number in 0..self.connections.len() {
            let request = self.connections.get(number).and_then(|connection| connection.pending);
            if request.is_some_and(|request| now > request.due + self.timeout) {
                self.fail(number, &format!("no response within {:?}", self.timeout), counters);
            }
        }
    }
}

impl ProtocolState {
    /// Writes the next request for a connection.
    fn write(&mut self, number: usize, due: Instant) -> OutstandingRequest {
        let first = number as u32 * self.share;
        let place = first + self.random.below(self.share as usize) as u32;
        let place = place.min(self.population.len() - 1);
        let (announce, peer) = self.population.announce(place, &mut self.random);
        if announce.event == Event::Stopped {
            self.checker.expect_another_peer();
        }
        let target = self.options.url.target(self.population.number(place));
        self.request.clear();
        self.request.extend_from_slice(b"GET ");
        codec::announce_target(&mut self.request, target, &announce, 0);
        self.request.extend_from_slice(&self.request_end);
        self.silence.since.get_or_insert_with(|| due.max(self.last_response));
        OutstandingRequest { peer, due }
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
            counters.responses.error += 1;
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
        self.unchecked += 1;
        let is_checked = self.unchecked >= self.options.check_every;
        if !is_checked && FAILURE.find(body).is_none() {
            // Some trackers append a line break.
            let body = body.trim_ascii_end();
            if !(body.starts_with(b"d") && body.ends_with(b"e")) {
                return Err(INVALID);
            }
            counters.responses.announce += 1;
            return Ok(());
        }
        let answer = match codec::parse_announce(body).map_err(|_| INVALID)? {
            codec::TrackerResponse::Failure(words) => {
                counters.refuse(words);
                return Ok(());
            }
            codec::TrackerResponse::Success(answer) => answer,
        };
        counters.responses.announce += 1;
        if is_checked {
            // The peers of one response stand for those of all that are not checked.
            counters.peers += answer.peers.len() as u64 * u64::from(self.unchecked);
            self.unchecked = 0;
            let asker = (request.peer, self.source);
            let workload = self.population.workload();
            self.checker.check(workload, asker, &answer, &mut counters.checks);
        }
        Ok(())
    }
}

const INVALID: &str = "an invalid announce response";

static FAILURE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("14:failure reason"));

/// Returns the address that the tracker sees, which the system chooses.
fn source(options: &HttpOptions) -> Result<IpAddr> {
    let address = options.url.address;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = std::net::UdpSocket::bind(any)?;
    // Connecting a UDP socket sends nothing; it only selects a route.
    socket.connect(address).with_context(|| format!("no route to {address}"))?;
    Ok(socket.local_addr()?.ip())
}
