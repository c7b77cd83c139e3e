//! One thread of the load: sockets, each with a connection id and a share of the peers.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use wire::udp::client::{Reply, decode_reply};

use super::flights::{FLIGHTS_MAX, Flight, Flights, Landing};
use super::mover::{Mover, Poller, Socket};
use super::requests::{Origin, Requests, Train};
use super::{Options, PATIENCE};
use crate::checks::{Answer, Checker, Peers};
use crate::conduct::Worker;
use crate::found::{Found, Kind};
use crate::mix::Asked;
use crate::pace::{Pace, Schedule};
use crate::population::Population;
use crate::random::{Random, hash};

/// A connection id is good for a minute by BEP 15: none gets as old.
const RECONNECT_EVERY: Duration = Duration::from_secs(45);
/// A connect that is not answered before the start is sent again after that.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How many requests of an open loop may be under way on a socket.
const OPEN_WINDOW: u32 = 4096;
/// A request that leaves later than that after it was due is overdue.
const OVERDUE_NS: u64 = 1_000_000;
/// With so many requests under way in a closed loop, answers that come few at a time are let gather for a
/// moment: the tracker has enough to do meanwhile, and batches cost a fraction.
const GATHER: (usize, Duration) = (256, Duration::from_micros(50));
/// Few are less than that part of those under way.
const FEW: usize = 8;
/// How long a tracker whose machine says that nobody listens may be silent.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Udp {
    lanes: Vec<Lane>,
    desk: Desk,
    mover: Mover,
    poller: Poller,
    /// Of an open loop.
    schedule: Option<Schedule>,
    /// The lane whose turn it is in an open loop.
    next_lane: usize,
    timeout: Duration,
    /// How many requests may be under way.
    slots: usize,
    /// Whether all lanes have still to begin.
    is_fresh: bool,
    /// Whether few answers came the last time, of many that are due.
    was_little: bool,
}

/// A socket, and what belongs to it.
struct Lane {
    socket: Socket,
    state: State,
}

struct State {
    number: u32,
    source: IpAddr,
    connection_id: Option<u64>,
    connected: Instant,
    /// Whether the tracker has refused something, perhaps the connection id.
    was_refused: bool,
    /// The first of its peers, and how many there are.
    peers: (u32, u32),
    /// Slots for requests.
    free: Vec<u32>,
}

/// Where requests are written and answers are read.
struct Desk {
    requests: Requests,
    flights: Flights,
    /// Slots of each lane.
    window: u32,
    checker: Checker,
    check_every: u32,
    unchecked: u32,
    scrape_len: usize,
    is_v6: bool,
    start: Instant,
    /// Since when requests are under way and nothing was answered.
    silent_since: Option<Instant>,
    is_refused: bool,
}

impl Udp {
    /// Worker number `number`, with its sockets.
    pub(super) fn new(options: &Options, number: u32) -> Result<Self> {
        let sockets = options.sockets.max(1);
        let workers = options.workers.max(1);
        let (window, schedule) = match options.pace {
            Pace::Closed { outstanding } => (outstanding.div_ceil(workers).div_ceil(sockets), None),
            Pace::Open { rate } => (OPEN_WINDOW, Some(Schedule::new(rate / f64::from(workers)))),
        };
        let window = window.clamp(1, FLIGHTS_MAX / sockets);
        let population = Population::new(&options.habits, number, workers);
        let mut poller = Poller::new().context("cannot wait for sockets")?;
        // How long answers take does not depend on when this thread has its processor. Where as much as
        // possible is asked, that is not worth the time.
        let mover = Mover::new(options.offload, schedule.is_some());
        let mut lanes = Vec::new();
        for lane in 0..sockets {
            let source = source(options, number * sockets + lane);
            let socket = connect(source, options.url.address)?;
            mover.take_in(&socket).context("cannot be told when datagrams come")?;
            let source = socket.local_addr().context("a socket without an address")?.ip();
            let share = |lane: u32| {
                (u64::from(population.len()) * u64::from(lane) / u64::from(sockets)) as u32
            };
            let first = share(lane).min(population.len() - 1);
            lanes.push(Lane {
                socket: poller.add(socket, lane as usize).context("cannot wait for a socket")?,
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
        let seed = hash(options.habits.seed, number.into());
        let sources = (0..workers * sockets).filter_map(|number| source(options, number));
        let sources = sources.chain(lanes.iter().map(|lane| lane.state.source));
        let desk = Desk {
            checker: Checker::new(sources, options.habits.peers.into()),
            requests: Requests::new(options, population, Random::new(seed)),
            flights: Flights::new(window * sockets, hash(seed, 1) as u32),
            window,
            check_every: options.check_every.max(1),
            unchecked: 0,
            scrape_len: 12 * options.scrape_torrents.max(1) as usize,
            is_v6: options.url.address.is_ipv6(),
            start: Instant::now(),
            silent_since: None,
            is_refused: false,
        };
        Ok(Self {
            lanes,
            desk,
            mover,
            poller,
            schedule,
            next_lane: number as usize,
            timeout: options.timeout,
            slots: (window * sockets) as usize,
            is_fresh: true,
            was_little: false,
        })
    }

    /// Waits for answers until then, takes them in, and goes on where they have come if `goes_on`.
    fn receive(&mut self, until: Instant, goes_on: bool, found: &mut Found) -> Result<()> {
        let Self { lanes, desk, mover, poller, schedule, .. } = self;
        let before = Instant::now();
        if std::mem::take(&mut self.was_little) {
            thread::sleep(GATHER.1);
        }
        let ready = poller.wait(until, schedule.is_some()).context("cannot wait for sockets")?;
        found.waited += before.elapsed();
        let mut count = 0;
        for number in ready {
            let Some(Lane { socket, state }) = lanes.get_mut(number) else { continue };
            let mut now = None;
            let received = mover.receive(socket, |datagram, was_cut, lain| {
                count += 1;
                let now: Instant = *now.get_or_insert_with(Instant::now);
                let came = now.checked_sub(lain).unwrap_or(now);
                desk.hear(state, (datagram, was_cut), came, found);
            });
            match received {
                Err(error) if error.kind() != ErrorKind::WouldBlock => desk.trouble(&error, found),
                _ => {}
            }
            if goes_on {
                let now_ns = desk.now_ns();
                desk.ask((socket, state), mover, u32::MAX, found, || now_ns);
            }
        }
        self.was_little =
            goes_on && count > 0 && self.slots >= GATHER.0 && count < self.slots / FEW;
        Ok(())
    }

    /// Sends what is due in an open loop.
    fn keep_schedule(&mut self, found: &mut Found) {
        let Self { lanes, desk, mover, schedule: Some(schedule), .. } = self else { return };
        let mut full = 0;
        while full < lanes.len() {
            let now_ns = desk.now_ns();
            let due = schedule.due(now_ns);
            if due == 0 {
                return;
            }
            self.next_lane = (self.next_lane + 1) % lanes.len();
            let Some(Lane { socket, state }) = lanes.get_mut(self.next_lane) else { return };
            full = if state.free.is_empty() { full + 1 } else { 0 };
            let mut overdue = 0;
            desk.ask((socket, state), mover, due.min(64) as u32, found, || {
                let due_ns = schedule.next_ns();
                overdue += u64::from(now_ns > due_ns + OVERDUE_NS);
                schedule.advance();
                due_ns
            });
            found.overdue += overdue;
        }
    }

    /// Asks for connection ids, where there is none or where `when` says so.
    fn connect_where(&mut self, found: &mut Found, when: impl Fn(&State) -> bool) {
        let Self { lanes, desk, mover, .. } = self;
        for Lane { socket, state } in lanes {
            if state.connection_id.is_none() || when(state) {
                desk.connect((socket, state), mover, found);
            }
        }
    }

    /// Gives up requests that were due before so long.
    fn give_up(&mut self, timeout: Duration) -> u64 {
        let Self { lanes, desk, .. } = self;
        let before_ns = desk.now_ns().saturating_sub(timeout.as_nanos() as u64);
        let (window, mut lost) = (desk.window, 0);
        desk.flights.give_up(before_ns, |slot| {
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
        let mut found = Found::default();
        while self.is_unconnected() {
            if begun.elapsed() > PATIENCE || stop.load(Ordering::Relaxed) {
                let mut errors: Vec<_> = found.errors.into_iter().collect();
                errors.sort_by_key(|(_, times)| *times);
                let why = errors.pop().map_or_else(String::new, |(text, _)| format!(": {text}"));
                bail!("no connection id within {PATIENCE:?}{why}");
            }
            self.give_up(Duration::ZERO);
            self.connect_where(&mut found, |_| false);
            let until = Instant::now() + RETRY_EVERY;
            while Instant::now() < until && !stop.load(Ordering::Relaxed) && self.is_unconnected() {
                self.receive((Instant::now() + RETRY_EVERY / 10).min(until), false, &mut found)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, at: Instant) {
        self.desk.start = at;
        self.desk.silent_since = None;
    }

    fn turn(&mut self, until: Instant, found: &mut Found) -> Result<()> {
        let goes_on = self.schedule.is_none();
        let mut until = until;
        if let Some(schedule) = &self.schedule {
            let next = self.desk.start + Duration::from_nanos(schedule.next_ns());
            if next <= Instant::now() {
                self.keep_schedule(found);
            }
            let next = self.schedule.map_or(0, |schedule| schedule.next_ns());
            until = until.min(self.desk.start + Duration::from_nanos(next));
        } else if std::mem::take(&mut self.is_fresh) {
            self.go_on_everywhere(found);
        }
        self.receive(until, goes_on, found)?;
        self.desk.is_patient()
    }

    fn tidy(&mut self, found: &mut Found) {
        found.lost += self.give_up(self.timeout);
        self.connect_where(found, |state| {
            state.was_refused || state.connected.elapsed() > RECONNECT_EVERY
        });
        if self.schedule.is_none() {
            self.go_on_everywhere(found);
        }
    }
}

impl Udp {
    fn is_unconnected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.state.connection_id.is_none())
    }

    /// Lets all lanes ask as much as they may.
    fn go_on_everywhere(&mut self, found: &mut Found) {
        let Self { lanes, desk, mover, .. } = self;
        let now_ns = desk.now_ns();
        for Lane { socket, state } in lanes {
            desk.ask((socket, state), mover, u32::MAX, found, || now_ns);
        }
    }
}

impl Desk {
    fn now_ns(&self) -> u64 {
        // Half a millennium fits.
        Instant::now().saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Sends requests on a lane, as many as it has slots for, but at most `most`. `due` says when each was
    /// due.
    fn ask(
        &mut self,
        (socket, state): (&Socket, &mut State),
        mover: &mut Mover,
        most: u32,
        found: &mut Found,
        mut due: impl FnMut() -> u64,
    ) {
        let Some(connection_id) = state.connection_id else { return };
        let origin = Origin { connection_id, peers: state.peers };
        let kept = state.free.len().saturating_sub(most as usize);
        for slot in state.free.drain(kept..).rev() {
            if self.requests.add(&mut self.flights, slot, due(), origin) {
                self.checker.expect_one_more();
            }
        }
        self.send(socket, mover, found);
    }

    /// Asks for a connection id.
    fn connect(
        &mut self,
        (socket, state): (&Socket, &mut State),
        mover: &mut Mover,
        found: &mut Found,
    ) {
        let Some(slot) = state.free.pop() else { return };
        let now_ns = self.now_ns();
        self.requests.add_connect(&mut self.flights, slot, now_ns);
        // Once for all that is refused until it is answered.
        (state.was_refused, state.connected) = (false, Instant::now());
        self.send(socket, mover, found);
    }

    fn send(&mut self, socket: &Socket, mover: &mut Mover, found: &mut Found) {
        let mut failed = None;
        for (number, train) in self.requests.trains.iter_mut().enumerate() {
            let Train { bytes, len, count } = train;
            if *count == 0 {
                continue;
            }
            found.bytes_out += bytes.len() as u64;
            if number < 3 {
                found.sent += *count;
            } else {
                found.hostile_sent += *count;
            }
            // What could not leave is lost like what was lost on the way.
            failed = mover.send(socket, bytes, *len).err().or(failed);
            train.clear();
            self.silent_since.get_or_insert_with(Instant::now);
        }
        if let Some(error) = failed {
            self.trouble(&error, found);
        }
    }

    fn trouble(&mut self, error: &io::Error, found: &mut Found) {
        self.is_refused |= error.kind() == ErrorKind::ConnectionRefused;
        found.fail(&error.to_string());
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

    /// Takes in an answer.
    fn hear(
        &mut self,
        lane: &mut State,
        (datagram, was_cut): (&[u8], bool),
        now: Instant,
        found: &mut Found,
    ) {
        found.bytes_in += datagram.len() as u64;
        if was_cut {
            found.fail("an answer longer than any announce's");
        }
        let Some((transaction_id, reply)) = decode_reply(datagram) else {
            return found.fail("what came is no answer of the protocol");
        };
        match self.flights.land(transaction_id) {
            Landing::Of(slot, flight) if slot / self.window == lane.number => {
                lane.free.push(slot);
                if self.read(lane, &flight, &reply, now, found) {
                    let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
                    let latency_ns = now_ns.saturating_sub(flight.due_ns);
                    found.latencies.record(Duration::from_nanos(latency_ns));
                    (self.silent_since, self.is_refused) = (None, false);
                }
            }
            Landing::Of(..) | Landing::Unknown => {
                found.fail("an answer with a transaction id that was not asked with");
            }
            Landing::Late => found.late += 1,
            Landing::Hostile => found.hostile_answered += 1,
        }
    }

    /// Whether it is an answer to what was asked.
    fn read(
        &mut self,
        lane: &mut State,
        flight: &Flight,
        reply: &Reply<'_>,
        now: Instant,
        found: &mut Found,
    ) -> bool {
        match (flight.asked, reply) {
            (_, Reply::Error(words)) => {
                lane.was_refused = true;
                found.refuse(words);
            }
            (Asked::Connect, Reply::Connect { connection_id }) => {
                found.count(Kind::Connect);
                (lane.connection_id, lane.connected) = (Some(*connection_id), now);
            }
            (Asked::Announce, Reply::Announce { leechers, seeders, peers, .. }) => {
                found.count(Kind::Announce);
                found.peers += (peers.len() / if self.is_v6 { 18 } else { 6 }) as u64;
                self.unchecked += 1;
                if self.unchecked >= self.check_every {
                    self.unchecked = 0;
                    let (seeders, leechers) = ((*seeders).into(), (*leechers).into());
                    let peers = if self.is_v6 { Peers::V6(peers) } else { Peers::V4(peers) };
                    let answer = Answer { seeders, leechers, peers };
                    let asker = (flight.member, lane.source);
                    let habits = self.requests.population.habits();
                    self.checker.look(habits, asker, &answer, &mut found.checks);
                }
            }
            (Asked::Scrape, Reply::Scrape(counts)) if counts.len() == self.scrape_len => {
                found.count(Kind::Scrape);
            }
            (Asked::Scrape, Reply::Scrape(_)) => {
                found.fail("a scrape's answer with another number of torrents");
                return false;
            }
            _ => {
                found.fail("an answer to something else than was asked");
                return false;
            }
        }
        true
    }
}

/// The address that a socket is bound to: the sources in turn.
fn source(options: &Options, socket: u32) -> Option<IpAddr> {
    options.sources.get(socket as usize % options.sources.len().max(1)).copied()
}

/// A socket that speaks with the tracker alone, and does not wait.
fn connect(source: Option<IpAddr>, target: SocketAddr) -> Result<UdpSocket> {
    let socket = plain_socket(source, target)?;
    socket.set_nonblocking(true)?;
    #[cfg(unix)]
    make_room(&socket);
    Ok(socket)
}

/// A socket that speaks with the tracker alone.
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

/// Answers come in bursts; a system that grants no more room loses some of them.
#[cfg(unix)]
fn make_room(socket: &UdpSocket) {
    use nix::sys::socket::{setsockopt, sockopt};
    const BYTES: usize = 8 << 20;
    let _ = setsockopt(socket, sockopt::RcvBuf, &BYTES);
    #[cfg(target_os = "linux")]
    let _ = setsockopt(socket, sockopt::RcvBufForce, &BYTES);
}
