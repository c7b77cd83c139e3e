//! One thread of the load: connections, each with a share of the peers.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use memchr::memmem::Finder;
use types::{Event, InfoHash};
use wire::http::client;

use super::connection::{Connection, Ended, Flight};
use super::response::Whole;
use super::{Options, PATIENCE};
use crate::checks::{Answer, Checker, Peers};
use crate::conduct::Worker;
use crate::found::{Found, Kind};
use crate::mix::Asked;
use crate::pace::Schedule;
use crate::pests::Pests;
use crate::population::{Member, Population};
use crate::random::{Random, hash};
use crate::stream::Dialer;
use crate::waiter::Waiter;

/// Bytes read at once. An answer has a few thousand.
const BUFFER: usize = 64 * 1024;
/// A request that leaves later than that after it was due is overdue.
const OVERDUE: Duration = Duration::from_millis(1);
/// With so many connections in a closed loop, answers that come few at a time are let gather for a moment:
/// the tracker has enough to do meanwhile, and each waking costs as much as a request.
const GATHER: (usize, Duration) = (32, Duration::from_micros(50));
/// Few are less than that part of the connections: the rest is still with the tracker.
const FEW: usize = 2;
/// How long a tracker whose machine says that nobody listens may be silent.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);
/// How long an open loop waits at the most before it looks at hostile connections again.
const PEST_TICK: Duration = Duration::from_millis(10);

/// See the module.
pub(super) struct Http {
    connections: Vec<Connection>,
    /// Connections without a request, in an open loop.
    idle: VecDeque<usize>,
    /// Those that ended in trouble, to be opened again in a while.
    broken: Vec<usize>,
    desk: Desk,
    dialer: Dialer,
    waiter: Waiter,
    pests: Option<Pests>,
    buffer: Box<[u8]>,
    schedule: Option<Schedule>,
    start: Instant,
    timeout: Duration,
    is_fresh: bool,
    /// Few answers came last time.
    was_little: bool,
}

/// Where requests are written and answers are read.
struct Desk {
    options: Options,
    population: Population,
    random: Random,
    checker: Checker,
    unchecked: u32,
    hashes: Vec<InfoHash>,
    /// What ends every request.
    request_end: Vec<u8>,
    /// Peers of each connection.
    share: u32,
    /// The answers' own address, where it is known.
    sources: Vec<IpAddr>,
    /// When the latest answer was read.
    heard: Instant,
    silent_since: Option<Instant>,
    is_refused: bool,
}

impl Http {
    /// Worker number `number`, whose connections are still to be opened.
    pub(super) fn new(options: &Options, number: u32) -> Result<Self> {
        let workers = options.workers.clamp(1, options.connections.max(1));
        let count = |all: u32| all / workers + u32::from(number < all % workers);
        let connections = count(options.connections).max(1);
        let population = Population::new(&options.habits, number, workers);
        let seed = hash(options.habits.seed, number.into());
        let dialer = || -> Result<Dialer> {
            Ok(Dialer::new(&options.url, options.resume)?.from(&options.sources))
        };
        let pests = match options.hostile {
            Some((kind, pests)) => Some(Pests::new(
                kind,
                (connections as usize, count(pests) as usize),
                dialer()?,
                &options.url.host,
                hash(seed, 2),
            )),
            None => None,
        };
        let sources = sources(options)?;
        let mut request_end = Vec::new();
        client::get_end(&mut request_end, &options.url.host, options.close);
        let desk = Desk {
            checker: Checker::new(sources.iter().copied(), options.habits.peers.into()),
            options: options.clone(),
            share: (population.len() / connections).max(1),
            population,
            random: Random::new(seed),
            unchecked: 0,
            hashes: Vec::new(),
            request_end,
            sources,
            heard: Instant::now(),
            silent_since: None,
            is_refused: false,
        };
        Ok(Self {
            connections: (0..connections).map(|_| Connection::default()).collect(),
            idle: VecDeque::new(),
            broken: Vec::new(),
            desk,
            dialer: dialer()?,
            waiter: Waiter::new().context("cannot wait for sockets")?,
            pests,
            buffer: vec![0; BUFFER].into(),
            schedule: options.rate.map(|rate| Schedule::new(rate / f64::from(workers))),
            start: Instant::now(),
            timeout: options.timeout,
            is_fresh: true,
            was_little: false,
        })
    }

    /// Begins a request on a connection, which is opened if need be.
    fn begin(&mut self, number: usize, due: Instant, found: &mut Found) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        self.desk.write(number, connection, due);
        found.sent += 1;
        found.bytes_out += connection.request.len() as u64;
        if connection.stream.is_none() {
            match self.dialer.dial(&self.waiter.poll, number) {
                Ok(stream) => connection.stream = Some(stream),
                Err(error) => return self.end(number, format!("{error:#}"), found),
            }
        }
        // What is not taken now leaves when the connection is ready.
        if let Err(ended) = connection.say() {
            self.end(number, ended, found);
        }
    }

    /// Does what can be done on a connection.
    fn go_on(&mut self, number: usize, found: &mut Found) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        let had_flight = connection.flight.is_some();
        let mut bytes_in = 0;
        let desk = &mut self.desk;
        let done = connection.say().and_then(|()| {
            connection.hear(&mut self.buffer, &mut bytes_in, |flight, whole| {
                desk.read(number, &flight, whole, found);
            })
        });
        found.bytes_in += bytes_in;
        let is_answered = had_flight && connection.flight.is_none();
        match done {
            Ok(()) if !is_answered => {}
            Ok(()) if desk.options.close => self.end(number, Ended::new(), found),
            Ok(()) => {
                // What took the answer in takes no time worth another look at the clock.
                let now = desk.heard;
                self.is_free(number, now, found);
            }
            Err(ended) => self.end(number, ended, found),
        }
    }

    /// A connection has ended: with trouble, or, if `why` says nothing, because it had served.
    fn end(&mut self, number: usize, why: Ended, found: &mut Found) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        connection.stream = None;
        connection.response.clear();
        let is_lost = connection.flight.take().is_some();
        found.lost += u64::from(is_lost);
        if why.is_empty() {
            return self.is_free(number, Instant::now(), found);
        }
        self.desk.is_refused |= why.contains("refused");
        found.fail(&why);
        self.broken.push(number);
    }

    /// A connection can take the next request.
    fn is_free(&mut self, number: usize, now: Instant, found: &mut Found) {
        match self.schedule {
            None => self.begin(number, now, found),
            Some(_) => self.idle.push_back(number),
        }
    }

    /// Sends what is due in an open loop.
    fn keep_schedule(&mut self, found: &mut Found) {
        while let Some(schedule) = &mut self.schedule {
            let now = Instant::now();
            let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
            if schedule.due(now_ns) == 0 {
                return;
            }
            let Some(number) = self.idle.pop_front() else { return };
            let due = self.start + Duration::from_nanos(schedule.next_ns());
            schedule.advance();
            found.overdue += u64::from(now > due + OVERDUE);
            self.begin(number, due, found);
        }
    }

    /// When there is something to do again: now, if a request waits and a connection is idle.
    fn wake(&self, until: Instant) -> Instant {
        let mut wake = until;
        if let Some(schedule) = self.schedule.filter(|_| !self.idle.is_empty()) {
            wake = wake.min(self.start + Duration::from_nanos(schedule.next_ns()));
        }
        if self.pests.is_some() {
            wake = wake.min(Instant::now() + PEST_TICK);
        }
        wake
    }
}

impl Worker for Http {
    fn prepare(&mut self, _: &AtomicBool) -> Result<()> {
        // Whether anybody is there at all, said at once.
        let address = self.desk.options.url.address;
        TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("cannot connect to {address}"))?;
        Ok(())
    }

    fn start(&mut self, at: Instant) {
        self.start = at;
    }

    fn turn(&mut self, until: Instant, found: &mut Found) -> Result<()> {
        if std::mem::take(&mut self.is_fresh) {
            for number in 0..self.connections.len() {
                self.is_free(number, Instant::now(), found);
            }
        }
        self.keep_schedule(found);
        let (wake, before) = (self.wake(until), Instant::now());
        if std::mem::take(&mut self.was_little) {
            thread::sleep(GATHER.1);
        }
        self.waiter.wait(wake, self.schedule.is_some()).context("cannot wait for sockets")?;
        found.waited += before.elapsed();
        let ready = std::mem::take(&mut self.waiter.ready);
        self.was_little = self.schedule.is_none()
            && self.connections.len() >= GATHER.0
            && ready.len() < self.connections.len() / FEW;
        for event in &ready {
            let pests = self.pests.as_mut();
            if !pests.is_some_and(|pests| pests.hear(event.number, found)) {
                self.go_on(event.number, found);
            }
        }
        self.waiter.ready = ready;
        if let Some(pests) = &mut self.pests {
            pests.go_on(&self.waiter.poll, found)?;
        }
        self.desk.is_patient()
    }

    fn tidy(&mut self, found: &mut Found) {
        let now = Instant::now();
        for number in std::mem::take(&mut self.broken) {
            self.is_free(number, Instant::now(), found);
        }
        for number in 0..self.connections.len() {
            let flight = self.connections.get(number).and_then(|connection| connection.flight);
            if flight.is_some_and(|flight| now > flight.due + self.timeout) {
                self.end(number, format!("no answer within {:?}", self.timeout), found);
            }
        }
    }
}

impl Desk {
    /// Writes the next request of a connection.
    fn write(&mut self, number: usize, connection: &mut Connection, due: Instant) {
        let Options { url, mix, scrape_torrents, .. } = &self.options;
        let asked = mix.draw(&mut self.random);
        let first = number as u32 * self.share;
        let place = |random: &mut Random| {
            let place = first + random.below(self.share as usize) as u32;
            place.min(self.population.len() - 1)
        };
        let mut member = Member { torrent: 0, port: 0 };
        let request = &mut connection.request;
        request.clear();
        request.extend_from_slice(b"GET ");
        if asked == Asked::Announce {
            let place = place(&mut self.random);
            let (announce, who) = self.population.announce(place, &mut self.random);
            member = who;
            if announce.event == Event::Stopped {
                self.checker.expect_one_more();
            }
            let target = url.target(self.population.number(place));
            client::announce_target(request, target, &announce, 0);
        } else {
            self.hashes.clear();
            for _ in 0..*scrape_torrents {
                let torrent = self.population.torrent(place(&mut self.random));
                self.hashes.push(self.population.habits().info_hash(torrent));
            }
            // That there is such a path was made sure of before.
            let _ = client::scrape_target(request, url.target(first), &self.hashes);
        }
        request.extend_from_slice(&self.request_end);
        connection.sent = 0;
        connection.flight = Some(Flight { asked, member, due });
        self.silent_since.get_or_insert_with(|| due.max(self.heard));
    }

    /// Takes in an answer.
    fn read(&mut self, number: usize, flight: &Flight, whole: &Whole<'_>, found: &mut Found) {
        self.heard = Instant::now();
        if whole.status != 200 {
            found.count(Kind::Error);
            found.fail(&format!("HTTP status {}", whole.status));
        } else if let Err(why) = self.read_body(number, flight, whole.body, found) {
            return found.fail(why);
        }
        found.latencies.record(self.heard.saturating_duration_since(flight.due));
        (self.silent_since, self.is_refused) = (None, false);
    }

    fn read_body(
        &mut self,
        number: usize,
        flight: &Flight,
        body: &[u8],
        found: &mut Found,
    ) -> Result<(), &'static str> {
        if KEYS.failure.find(body).is_some()
            && let Ok(client::TrackerResponse::Failure(words)) = client::parse_announce(body)
        {
            found.refuse(words);
            return Ok(());
        }
        if flight.asked == Asked::Scrape {
            client::parse_scrape(body).map_err(|_| "an answer to a scrape that is none")?;
            found.count(Kind::Scrape);
            return Ok(());
        }
        self.unchecked += 1;
        if self.unchecked < self.options.check_every {
            let peers = peers(body).ok_or("an answer to an announce that is none")?;
            found.peers += peers;
        } else {
            self.unchecked = 0;
            self.look(number, flight, body, found)?;
        }
        found.count(Kind::Announce);
        Ok(())
    }

    /// Looks at an answer closely.
    fn look(
        &mut self,
        number: usize,
        flight: &Flight,
        body: &[u8],
        found: &mut Found,
    ) -> Result<(), &'static str> {
        let Ok(client::TrackerResponse::Success(answer)) = client::parse_announce(body) else {
            return Err("an answer to an announce that is none");
        };
        found.peers += answer.peers.len() as u64;
        let source = self.sources.get(number % self.sources.len().max(1)).copied();
        let asker = (flight.member, source.unwrap_or(NOWHERE));
        // Where a tracker tells no count, none can be wrong.
        let count =
            |count: Option<i64>, least| count.and_then(|it| it.try_into().ok()).unwrap_or(least);
        let seeders = count(answer.complete, answer.peers.len() as u64);
        let leechers = count(answer.incomplete, 0);
        let answer = Answer { seeders, leechers, peers: Peers::List(&answer.peers) };
        let habits = self.population.habits();
        self.checker.look(habits, asker, &answer, &mut found.checks);
        Ok(())
    }

    /// An error once nothing was answered for too long.
    fn is_patient(&self) -> Result<()> {
        let patience = if self.is_refused { REFUSED_PATIENCE } else { PATIENCE };
        match self.silent_since {
            Some(since) if since.elapsed() > patience => {
                let why = if self.is_refused { ": connection refused" } else { "" };
                bail!("the tracker has answered nothing for {patience:?}{why}")
            }
            _ => Ok(()),
        }
    }
}

const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How many peers an answer lists in compact form, found without reading all of it. Nothing if it is no
/// answer. Lists of dictionaries count as empty.
fn peers(body: &[u8]) -> Option<u64> {
    // Some trackers end the line.
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

/// Where the tracker sees this machine: the addresses that were asked for, or what the system chooses.
fn sources(options: &Options) -> Result<Vec<IpAddr>> {
    if !options.sources.is_empty() {
        return Ok(options.sources.clone());
    }
    let address = options.url.address;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = std::net::UdpSocket::bind(any)?;
    // Nothing is sent: the system only looks for the way.
    socket.connect(address).with_context(|| format!("there is no way to {address}"))?;
    Ok(vec![socket.local_addr()?.ip()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_peers_are_counted() {
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
}
