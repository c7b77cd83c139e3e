//! The peers' connections: one thread waits for all of them, reads into one buffer, and writes what
//! a peer has to say in one piece.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use types::limits;

use super::crowd::Crowd;
use super::peer::{Ended, Heard, Peer, Turn};
use super::{Options, Rhythm};
use crate::found::Found;
use crate::pace::Schedule;
use crate::pests::Pests;
use crate::random::hash;
use crate::stream::{Dialer, Stream};
use crate::waiter::Waiter;

/// Connections that are on their way to their first reply at once: fewer than listeners have room for.
const OPENING_MAX: usize = 64;
/// Bytes read at once.
const BUFFER: usize = 256 * 1024;
/// Bytes on their way to a tracker that does not take them, above which a peer answers no offers.
const CONGESTED: usize = 256 * 1024;
/// A request that leaves later than that after it was due is overdue.
const OVERDUE: Duration = Duration::from_millis(1);
/// How long a wait may be before hostile connections are looked at again.
const PEST_TICK: Duration = Duration::from_millis(10);

// What is left of one read is less than a message, and there is room for more behind it.
const _: () = assert!(limits::WS_MESSAGE_MAX + limits::HTTP_HEAD_MAX < BUFFER);

struct Socket {
    stream: Stream,
    peer: Peer,
    /// The part of a message that has come.
    unread: Vec<u8>,
    /// What the kernel has not taken yet.
    unsent: Vec<u8>,
    /// Answers to its requests so far.
    served: u32,
}

/// What an idle peer does when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    Ask,
    Ping,
}

/// All connections of a worker.
pub(super) struct Sockets {
    waiter: Waiter,
    /// `None` where a connection has ended.
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    out: Vec<u8>,
    crowd: Crowd,
    dialer: Dialer,
    pests: Option<Pests>,
    rhythm: Rhythm,
    requests_per_connection: Option<u32>,
    timeout: Duration,
    /// Of paced peers: when requests are due, and whose turn it is.
    schedule: Option<Schedule>,
    free: VecDeque<usize>,
    start: Instant,
    /// Whether peers go on asking; and whether they have still to begin.
    started: bool,
    is_fresh: bool,
    joined: usize,
    /// Connections that have ended, and those of them whose peer had not joined.
    ended: usize,
    failed: usize,
    duties: BinaryHeap<Reverse<(Instant, usize, Duty)>>,
}

impl Sockets {
    /// Those of worker number `number`.
    pub(super) fn new(options: &Options, number: u32) -> Result<Self> {
        let workers = options.workers.clamp(1, options.habits.peers.max(1));
        let crowd = Crowd::new(options, number, workers);
        let dialer =
            || -> Result<Dialer> { Ok(Dialer::new(&options.url, false)?.from(&options.sources)) };
        let pests = match options.hostile {
            Some((kind, pests)) => {
                let count = pests / workers + u32::from(number < pests % workers);
                let seed = hash(options.habits.seed, number.into());
                let numbers = (crowd.peers(), count as usize);
                Some(Pests::new(kind, numbers, dialer()?, &options.url.host, seed))
            }
            None => None,
        };
        let schedule = match options.rhythm {
            Rhythm::Paced(rate) => Some(Schedule::new(rate / f64::from(workers))),
            Rhythm::Busy | Rhythm::Idle { .. } => None,
        };
        Ok(Self {
            waiter: Waiter::new().context("cannot wait for sockets")?,
            sockets: Vec::with_capacity(crowd.peers()),
            buffer: vec![0; BUFFER].into(),
            out: Vec::new(),
            crowd,
            dialer: dialer()?,
            pests,
            rhythm: options.rhythm,
            requests_per_connection: options.requests_per_connection,
            timeout: options.timeout,
            schedule,
            free: VecDeque::new(),
            start: Instant::now(),
            started: false,
            is_fresh: false,
            joined: 0,
            ended: 0,
            failed: 0,
            duties: BinaryHeap::new(),
        })
    }

    /// Opens connections as long as there are some to open, and not too many under way.
    pub(super) fn open_some(&mut self) -> Result<()> {
        while self.sockets.len() < self.peers() && self.sockets.len() < self.settled() + OPENING_MAX
        {
            let index = self.sockets.len();
            self.sockets.push(None);
            self.open(index)?;
        }
        Ok(())
    }

    /// Opens a connection for a peer that has none.
    fn open(&mut self, index: usize) -> Result<()> {
        let stream = self.dialer.dial(&self.waiter.poll, index)?;
        let mut unsent = Vec::new();
        let now = Instant::now();
        let mut turn = Turn { crowd: &mut self.crowd, now, out: &mut unsent, congested: false };
        let peer = Peer::new(index, &mut turn);
        if let Some(place) = self.sockets.get_mut(index) {
            // It leaves when the connection stands.
            *place = Some(Socket { stream, peer, unread: Vec::new(), unsent, served: 0 });
        }
        Ok(())
    }

    /// Waits until something happens, until then at the most, and does all that is to be done.
    pub(super) fn turn(&mut self, until: Instant) -> Result<()> {
        if std::mem::take(&mut self.is_fresh) {
            (0..self.sockets.len()).for_each(|index| self.is_free(index));
        }
        self.keep_schedule();
        let (wake, before) = (self.wake(until), Instant::now());
        self.waiter.wait(wake, self.schedule.is_some()).context("cannot wait for sockets")?;
        self.crowd.found.waited += before.elapsed();
        let ready = std::mem::take(&mut self.waiter.ready);
        for event in &ready {
            let pests = self.pests.as_mut();
            if pests.is_some_and(|pests| pests.hear(event.number, &mut self.crowd.found)) {
                continue;
            }
            if event.is_writable {
                self.flush(event.number);
            }
            if event.is_readable {
                self.receive(event.number);
            }
        }
        self.waiter.ready = ready;
        if let Some(pests) = self.pests.as_mut().filter(|_| self.started) {
            pests.go_on(&self.waiter.poll, &mut self.crowd.found)?;
        }
        self.do_duties();
        Ok(())
    }

    /// When there is something to do again.
    fn wake(&self, until: Instant) -> Instant {
        let mut wake = until;
        if let Some(schedule) = self.schedule.filter(|_| self.started && !self.free.is_empty()) {
            wake = wake.min(self.start + Duration::from_nanos(schedule.next_ns()));
        }
        if let Some(Reverse((due, ..))) = self.duties.peek() {
            wake = wake.min(*due);
        }
        if self.pests.is_some() {
            wake = wake.min(Instant::now() + PEST_TICK);
        }
        wake
    }

    /// Lets peers ask whose turn it is.
    fn keep_schedule(&mut self) {
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
            self.crowd.found.overdue += u64::from(now > due + OVERDUE);
            self.with_peer(index, due, Peer::ask);
        }
    }

    /// A peer waits for nothing: it goes on as the rhythm has it.
    fn is_free(&mut self, index: usize) {
        match self.rhythm {
            Rhythm::Busy if self.started => self.with_peer(index, Instant::now(), Peer::ask),
            Rhythm::Paced(_) if self.started => self.free.push_back(index),
            Rhythm::Busy | Rhythm::Paced(_) | Rhythm::Idle { .. } => {}
        }
    }

    /// Lets one peer offer while all others are silent: if one of these gets a reply, it is to its
    /// answer.
    pub(super) fn begin_probe(&mut self) {
        self.crowd.probing = true;
        if let Some(first) = self.sockets.iter().position(Option::is_some) {
            self.with_peer(first, Instant::now(), |peer, turn| peer.offer(turn));
        }
    }

    /// What that was to show is known.
    pub(super) fn end_probe(&mut self) {
        self.crowd.probing = false;
    }

    /// Lets all peers ask, and go on asking.
    pub(super) fn start(&mut self, at: Instant) {
        (self.started, self.is_fresh, self.start) = (true, true, at);
    }

    /// What is found goes there from now on; what was found is given back.
    pub(super) fn swap_found(&mut self, found: &mut Found) {
        std::mem::swap(&mut self.crowd.found, found);
    }

    /// An error if no connection is left to go on with.
    pub(super) fn is_alive(&self) -> Result<()> {
        if self.ended == self.sockets.len() {
            bail!("no connection is left");
        }
        Ok(())
    }

    pub(super) fn peers(&self) -> usize {
        self.crowd.peers()
    }

    pub(super) fn joined(&self) -> usize {
        self.joined
    }

    /// Those of whom it is known whether they have joined.
    pub(super) fn settled(&self) -> usize {
        self.joined + self.failed
    }

    /// What went wrong most often.
    pub(super) fn complaint(&self) -> Option<String> {
        let errors = self.crowd.found.errors.iter();
        errors.max_by_key(|(_, times)| **times).map(|(text, _)| text.clone())
    }

    /// Reads until nothing more is there. The end of one read shows that; the readiness that comes
    /// after it is reported again.
    fn receive(&mut self, index: usize) {
        while let Some(Some(socket)) = self.sockets.get_mut(index) {
            let kept = socket.unread.len();
            let Some((front, room)) = self.buffer.split_at_mut_checked(kept) else { return };
            let read = match socket.stream.read(room) {
                Ok(0) => return self.lose(index, &"the tracker closed the connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.lose(index, &error),
            };
            let emptied = read < room.len() && !socket.stream.is_over();
            front.copy_from_slice(&socket.unread);
            self.crowd.found.bytes_in += read as u64;
            self.heard(index, kept + read);
            if emptied {
                return;
            }
        }
    }

    /// Gives a peer the first bytes of the buffer, keeps what it leaves, and sends what it says.
    fn heard(&mut self, index: usize, len: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        let input = self.buffer.get_mut(..len).unwrap_or_default();
        let now = Instant::now();
        self.out.clear();
        let congested = socket.unsent.len() > CONGESTED;
        let mut turn = Turn { crowd: &mut self.crowd, now, out: &mut self.out, congested };
        let heard = match socket.peer.hear(input, &mut turn) {
            Ok(heard) => heard,
            Err(Ended(why)) => return self.lose(index, &why),
        };
        socket.unread.clear();
        socket.unread.extend_from_slice(input.get(heard.consumed..).unwrap_or_default());
        socket.served += u32::from(heard.answered && self.started);
        let is_worn = self.requests_per_connection.is_some_and(|most| socket.served >= most);
        let is_busy = self.rhythm == Rhythm::Busy && self.started && !is_worn;
        if heard.answered && is_busy {
            // In the same write as what it has just said.
            socket.peer.ask(&mut turn);
        }
        self.send(index);
        self.joined += usize::from(heard.joined);
        if heard.answered && !is_busy {
            self.is_answered(index, is_worn, &heard, now);
        }
    }

    /// The request of a peer that is not busy was answered, or the last one on its connection.
    fn is_answered(&mut self, index: usize, is_worn: bool, heard: &Heard, now: Instant) {
        if is_worn {
            // It leaves the poll when it is dropped.
            if let Some(place) = self.sockets.get_mut(index) {
                *place = None;
            }
            if let Err(error) = self.open(index) {
                self.crowd.found.fail(&format!("{error:#}"));
                self.ended += 1;
            }
            return;
        }
        if let Rhythm::Idle { ping_every } = self.rhythm {
            // Without an interval, what most trackers say.
            let due = now + heard.interval.unwrap_or(Duration::from_secs(120));
            self.duties.push(Reverse((due, index, Duty::Ask)));
            if let Some(every) = ping_every.filter(|_| heard.joined) {
                self.duties.push(Reverse((now + every, index, Duty::Ping)));
            }
        }
        self.is_free(index);
    }

    /// Idle peers whose time has come ask, or ping.
    fn do_duties(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, index, duty))) = self.duties.peek().copied() {
            if due > now {
                break;
            }
            self.duties.pop();
            match (duty, self.rhythm) {
                (Duty::Ask, _) => self.with_peer(index, now, Peer::ask),
                (Duty::Ping, Rhythm::Idle { ping_every: Some(every) }) => {
                    self.with_peer(index, now, |peer, turn| peer.ping(turn));
                    self.duties.push(Reverse((due + every, index, duty)));
                }
                (Duty::Ping, _) => {}
            }
        }
    }

    /// Gives up on what was not answered in time.
    pub(super) fn sweep(&mut self) {
        let Some(since) = Instant::now().checked_sub(self.timeout) else { return };
        for index in 0..self.sockets.len() {
            let Some(Some(socket)) = self.sockets.get_mut(index) else { continue };
            if socket.peer.give_up(since) {
                self.crowd.found.lost += 1;
                match self.rhythm {
                    Rhythm::Idle { .. } => self.with_peer(index, Instant::now(), Peer::ask),
                    Rhythm::Busy | Rhythm::Paced(_) => self.is_free(index),
                }
            }
        }
    }

    /// Lets a peer say something, which was due at that time, if its connection stands.
    fn with_peer(
        &mut self,
        index: usize,
        now: Instant,
        say: impl FnOnce(&mut Peer, &mut Turn<'_>),
    ) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        self.out.clear();
        let congested = socket.unsent.len() > CONGESTED;
        let mut turn = Turn { crowd: &mut self.crowd, now, out: &mut self.out, congested };
        say(&mut socket.peer, &mut turn);
        self.send(index);
    }

    /// Writes what a peer has just said, behind what is still to go.
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
                self.crowd.found.bytes_out += written as u64;
                socket.unsent.extend_from_slice(self.out.get(written..).unwrap_or_default());
            }
            Err(error) => self.lose(index, &error),
        }
    }

    /// Writes what is still to go, now that the kernel takes more.
    fn flush(&mut self, index: usize) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        if socket.unsent.is_empty() && !socket.stream.is_pending() {
            return;
        }
        match socket.stream.write(&socket.unsent) {
            Ok(written) => {
                self.crowd.found.bytes_out += written as u64;
                socket.unsent.drain(..written);
                if socket.unsent.is_empty() {
                    // Few peers need it again.
                    socket.unsent = Vec::new();
                }
            }
            Err(error) => self.lose(index, &error),
        }
    }

    fn lose(&mut self, index: usize, why: &dyn std::fmt::Display) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        let found = &mut self.crowd.found;
        found.fail(&why.to_string());
        found.web.connections_lost += 1;
        found.lost += u64::from(socket.peer.is_waiting());
        self.ended += 1;
        self.failed += usize::from(!socket.peer.has_joined());
        // Dropped, it leaves the poll, too.
        if let Some(place) = self.sockets.get_mut(index) {
            *place = None;
        }
    }
}
