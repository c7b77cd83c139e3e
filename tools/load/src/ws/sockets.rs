//! The peers' connections. One thread waits for all of them, reads into one buffer, and writes a
//! peer's output in one piece.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use types::limits;

use super::peer::{Ended, Peer, PeerContext, ReceiveOutcome};
use super::shared::SharedState;
use super::{AnnounceTiming, WsOptions};
use crate::counters::Counters;
use crate::poller::Poller;
use crate::schedule::Schedule;
use crate::stream::{Dialer, Stream};

/// Maximum number of connections that are joining at once: fewer than listen backlogs hold.
const JOINING_MAX: usize = 64;
/// Bytes per read.
const BUFFER: usize = 256 * 1024;
/// With more unsent bytes than this, a peer answers no offers.
const CONGESTION_THRESHOLD: usize = 256 * 1024;
/// A request sent later than this after its scheduled time is overdue.
const OVERDUE: Duration = Duration::from_millis(1);

// The rest of one read is shorter than a message, and the buffer has room for more after it.
const _: () = assert!(limits::WS_MESSAGE_MAX + limits::HTTP_HEAD_MAX < BUFFER);

struct Socket {
    stream: Stream,
    peer: Peer,
    /// The received part of a message.
    unread: Vec<u8>,
    /// Output that the kernel has not yet accepted.
    unsent: Vec<u8>,
}

/// A scheduled action of an idle peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdleAction {
    Request,
    Ping,
}

/// All connections of a worker.
pub(super) struct Sockets {
    poller: Poller,
    /// `None` where a connection has ended.
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    out: Vec<u8>,
    shared: SharedState,
    dialer: Dialer,
    timing: AnnounceTiming,
    timeout: Duration,
    /// In an open loop: the schedule, and the free peers in turn.
    schedule: Option<Schedule>,
    free: VecDeque<usize>,
    start: Instant,
    /// True once the load has started.
    started: bool,
    /// True until its first step.
    is_first_step: bool,
    joined: usize,
    /// Closed connections, and those of them whose peer had not joined.
    ended: usize,
    failed: usize,
    idle_actions: BinaryHeap<Reverse<(Instant, usize, IdleAction)>>,
}

impl Sockets {
    /// Creates the connections' state for worker number `number`.
    pub(super) fn new(options: &WsOptions, number: u32) -> Result<Self> {
        let workers = options.workers.clamp(1, options.connections().max(1));
        let shared = SharedState::new(options, number, workers);
        let schedule = match options.timing {
            AnnounceTiming::Paced(rate) => Some(Schedule::new(rate / f64::from(workers))),
            AnnounceTiming::Busy | AnnounceTiming::Idle { .. } => None,
        };
        Ok(Self {
            poller: Poller::new().context("cannot wait for sockets")?,
            sockets: Vec::with_capacity(shared.connections()),
            buffer: vec![0; BUFFER].into(),
            out: Vec::new(),
            shared,
            dialer: Dialer::new(&options.url)?,
            timing: options.timing,
            timeout: options.timeout,
            schedule,
            free: VecDeque::new(),
            start: Instant::now(),
            started: false,
            is_first_step: false,
            joined: 0,
            ended: 0,
            failed: 0,
            idle_actions: BinaryHeap::new(),
        })
    }

    /// Opens connections, limiting those that are joining.
    pub(super) fn open_some(&mut self) -> Result<()> {
        while self.sockets.len() < self.connections()
            && self.sockets.len() < self.decided() + JOINING_MAX
        {
            let index = self.sockets.len();
            self.sockets.push(None);
            self.open(index)?;
        }
        Ok(())
    }

    /// Opens a connection for a peer that has none.
    fn open(&mut self, index: usize) -> Result<()> {
        let stream = self.dialer.dial(&self.poller, index)?;
        let mut unsent = Vec::new();
        let now = Instant::now();
        let mut step =
            PeerContext { shared: &mut self.shared, now, out: &mut unsent, congested: false };
        let peer = Peer::new(index, &mut step);
        if let Some(place) = self.sockets.get_mut(index) {
            // The handshake is written once the connection is established.
            *place = Some(Socket { stream, peer, unread: Vec::new(), unsent });
        }
        Ok(())
    }

    /// Waits for events until `until` and handles them.
    pub(super) fn step(&mut self, until: Instant) -> Result<()> {
        if std::mem::take(&mut self.is_first_step) {
            (0..self.sockets.len()).for_each(|index| self.on_idle(index));
        }
        self.send_due();
        let (wake, before) = (self.wake(until), Instant::now());
        self.poller.wait(wake, self.schedule.is_some()).context("cannot wait for sockets")?;
        self.shared.counters.waited += before.elapsed();
        let ready = std::mem::take(&mut self.poller.ready);
        for event in &ready {
            if event.is_writable {
                self.flush(event.number);
            }
            if event.is_readable {
                self.receive(event.number);
            }
        }
        self.poller.ready = ready;
        self.run_idle_actions();
        Ok(())
    }

    /// Returns the next time at which there is work.
    fn wake(&self, until: Instant) -> Instant {
        let mut wake = until;
        if let Some(schedule) = self.schedule.filter(|_| self.started && !self.free.is_empty()) {
            wake = wake.min(self.start + Duration::from_nanos(schedule.next_ns()));
        }
        if let Some(Reverse((due, ..))) = self.idle_actions.peek() {
            wake = wake.min(*due);
        }
        wake
    }

    /// Sends the scheduled requests of an open loop.
    fn send_due(&mut self) {
        while let Some(schedule) = self.schedule.as_mut().filter(|_| self.started) {
            let now = Instant::now();
            let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
            if schedule.due(now_ns) == 0 {
                return;
            }
            let Some(index) = self.free.pop_front() else { return };
            let is_there = |socket: &Socket| !socket.peer.is_waiting();
            if !self.sockets.get(index).and_then(Option::as_ref).is_some_and(is_there) {
                continue;
            }
            let due = self.start + Duration::from_nanos(schedule.next_ns());
            schedule.advance();
            self.shared.counters.overdue += u64::from(now > due + OVERDUE);
            self.with_peer(index, due, Peer::request);
        }
    }

    /// Handles a peer without an outstanding request, by the announce timing.
    fn on_idle(&mut self, index: usize) {
        match self.timing {
            AnnounceTiming::Busy if self.started => {
                self.with_peer(index, Instant::now(), Peer::request)
            }
            AnnounceTiming::Paced(_) if self.started => self.free.push_back(index),
            AnnounceTiming::Busy | AnnounceTiming::Paced(_) | AnnounceTiming::Idle { .. } => {}
        }
    }

    /// Starts the probe: one peer sends offers while all others are silent. A response to one of
    /// the others then acknowledges its answer.
    pub(super) fn start_probe(&mut self) {
        self.shared.probing = true;
        if let Some(first) = self.sockets.iter().position(Option::is_some) {
            self.with_peer(first, Instant::now(), Peer::request);
        }
    }

    /// Ends the probe.
    pub(super) fn end_probe(&mut self) {
        self.shared.probing = false;
    }

    /// Starts the load.
    pub(super) fn start(&mut self, at: Instant) {
        (self.started, self.is_first_step, self.start) = (true, true, at);
    }

    /// Swaps the counters with the given ones.
    pub(super) fn swap_counters(&mut self, counters: &mut Counters) {
        std::mem::swap(&mut self.shared.counters, counters);
    }

    /// Fails if no connection is left.
    pub(super) fn check_alive(&self) -> Result<()> {
        if self.ended == self.sockets.len() {
            bail!("no connection is left");
        }
        Ok(())
    }

    pub(super) fn connections(&self) -> usize {
        self.shared.connections()
    }

    pub(super) fn joined(&self) -> usize {
        self.joined
    }

    /// Returns the number of peers that have joined or failed to join.
    pub(super) fn decided(&self) -> usize {
        self.joined + self.failed
    }

    /// Returns a number that grows while peers join.
    pub(super) fn join_progress(&self) -> usize {
        self.shared.first_announces + self.decided()
    }

    /// Returns the most frequent error.
    pub(super) fn most_frequent_error(&self) -> Option<String> {
        let errors = self.shared.counters.errors.iter();
        errors.max_by_key(|(_, times)| **times).map(|(text, _)| text.clone())
    }

    /// Reads until no more input is available. A short read shows that; later readiness is reported
    /// again.
    fn receive(&mut self, index: usize) {
        while let Some(Some(socket)) = self.sockets.get_mut(index) {
            let kept = socket.unread.len();
            let Some((front, room)) = self.buffer.split_at_mut_checked(kept) else { return };
            let read = match socket.stream.read(room) {
                Ok(0) => return self.close(index, &"the tracker closed the connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.close(index, &error),
            };
            let emptied = read < room.len() && !socket.stream.is_over();
            front.copy_from_slice(&socket.unread);
            self.shared.counters.bytes_in += read as u64;
            self.heard(index, kept + read);
            if emptied {
                return;
            }
        }
    }

    /// Passes the first bytes of the buffer to a peer, keeps the unprocessed rest, and sends its
    /// output.
    fn heard(&mut self, index: usize, len: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        let input = self.buffer.get_mut(..len).unwrap_or_default();
        let now = Instant::now();
        self.out.clear();
        let congested = socket.unsent.len() > CONGESTION_THRESHOLD;
        let mut step = PeerContext { shared: &mut self.shared, now, out: &mut self.out, congested };
        let heard = match socket.peer.receive(input, &mut step) {
            Ok(heard) => heard,
            Err(Ended(why)) => return self.close(index, &why),
        };
        socket.unread.clear();
        socket.unread.extend_from_slice(input.get(heard.consumed..).unwrap_or_default());
        let is_busy = self.timing == AnnounceTiming::Busy && self.started;
        if heard.answered && is_busy {
            // Sent in the same write as its replies.
            socket.peer.request(&mut step);
        }
        self.send(index);
        self.joined += usize::from(heard.joined);
        if heard.answered && !is_busy {
            self.on_response(index, &heard, now);
        }
    }

    /// Handles the response to a peer that is not busy.
    fn on_response(&mut self, index: usize, heard: &ReceiveOutcome, now: Instant) {
        if let AnnounceTiming::Idle { ping_every, interval_min } = self.timing {
            // Without an interval, use the most common one. The torrents of a connection take turns.
            let interval = heard.interval.unwrap_or(Duration::from_secs(120));
            let due = now + interval.max(interval_min) / self.shared.peers_each;
            self.idle_actions.push(Reverse((due, index, IdleAction::Request)));
            if let Some(every) = ping_every.filter(|_| heard.joined) {
                self.idle_actions.push(Reverse((now + every, index, IdleAction::Ping)));
            }
        }
        self.on_idle(index);
    }

    /// Runs the idle peers' scheduled actions.
    fn run_idle_actions(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, index, action))) = self.idle_actions.peek().copied() {
            if due > now {
                break;
            }
            self.idle_actions.pop();
            match (action, self.timing) {
                (IdleAction::Request, _) => self.with_peer(index, now, Peer::request),
                (IdleAction::Ping, AnnounceTiming::Idle { ping_every: Some(every), .. }) => {
                    self.with_peer(index, now, |peer, step| peer.ping(step));
                    self.idle_actions.push(Reverse((due + every, index, action)));
                }
                (IdleAction::Ping, _) => {}
            }
        }
    }

    /// Expires requests that were not answered in time.
    pub(super) fn sweep(&mut self) {
        let Some(since) = Instant::now().checked_sub(self.timeout) else { return };
        for index in 0..self.sockets.len() {
            let Some(Some(socket)) = self.sockets.get_mut(index) else { continue };
            if socket.peer.expire(since) {
                self.shared.counters.lost += 1;
                match self.timing {
                    AnnounceTiming::Idle { .. } => {
                        self.with_peer(index, Instant::now(), Peer::request)
                    }
                    AnnounceTiming::Busy | AnnounceTiming::Paced(_) => self.on_idle(index),
                }
            }
        }
    }

    /// Calls `say` on a connected peer with `now` as the scheduled time, and sends its output.
    fn with_peer(
        &mut self,
        index: usize,
        now: Instant,
        say: impl FnOnce(&mut Peer, &mut PeerContext<'_>),
    ) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        self.out.clear();
        let congested = socket.unsent.len() > CONGESTION_THRESHOLD;
        let mut step = PeerContext { shared: &mut self.shared, now, out: &mut self.out, congested };
        say(&mut socket.peer, &mut step);
        self.send(index);
    }

    /// Sends a peer's output after its earlier unsent output.
    fn send(&mut self, index: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        if self.out.is_empty() {
            return;
        }
        if !socket.unsent.is_empty() {
            socket.unsent.extend_from_slice(&self.out);
            return;
        }
        match socket.stream.write(&self.out) {
            Ok(written) => {
                self.shared.counters.bytes_out += written as u64;
                socket.unsent.extend_from_slice(self.out.get(written..).unwrap_or_default());
            }
            Err(error) => self.close(index, &error),
        }
    }

    /// Sends unsent output once the socket is writable.
    fn flush(&mut self, index: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        if socket.unsent.is_empty() && !socket.stream.is_pending() {
            return;
        }
        match socket.stream.write(&socket.unsent) {
            Ok(written) => {
                self.shared.counters.bytes_out += written as u64;
                socket.unsent.drain(..written);
                if socket.unsent.is_empty() {
                    // Release the buffer: few peers need it again.
                    socket.unsent = Vec::new();
                }
            }
            Err(error) => self.close(index, &error),
        }
    }

    fn close(&mut self, index: usize, why: &dyn std::fmt::Display) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        let counters = &mut self.shared.counters;
        counters.fail(&why.to_string());
        counters.web.connections_lost += 1;
        counters.lost += u64::from(socket.peer.is_waiting());
        self.ended += 1;
        self.failed += usize::from(!socket.peer.has_joined());
        // Dropping it deregisters it.
        if let Some(place) = self.sockets.get_mut(index) {
            *place = None;
        }
    }
}
