//! The peers' connections: one thread waits for all of them, reads into one buffer, and writes what
//! a peer has to say in one piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use types::limits;

use super::crowd::Crowd;
use super::peer::{Ended, Peer, Turn};
use super::{Options, PATIENCE, PROBE, Pace, TICK, Tally};
use crate::latencies::Latencies;
use crate::stream::{Dialer, Stream};
use crate::waiter::Waiter;

/// Connections that are on their way to their first reply at once: fewer than listeners have room for.
const OPENING_MAX: usize = 64;
/// Bytes read at once.
const BUFFER: usize = 256 * 1024;
/// Bytes on their way to a tracker that does not take them, above which a peer answers no offers.
const CONGESTED: usize = 256 * 1024;
/// How often requests that wait in vain are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

// What is left of one read is less than a message, and there is room for more behind it.
const _: () = assert!(limits::WS_MESSAGE_MAX + limits::HTTP_HEAD_MAX < BUFFER);

struct Socket {
    stream: Stream,
    peer: Peer,
    /// The part of a message that has come.
    unread: Vec<u8>,
    /// What the kernel has not taken yet.
    unsent: Vec<u8>,
}

/// What an idle peer does when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    Ask,
    Ping,
}

/// All connections of a run.
pub(super) struct Sockets {
    waiter: Waiter,
    /// `None` where a connection has ended.
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    out: Vec<u8>,
    crowd: Crowd,
    dialer: Dialer,
    pace: Pace,
    connections: usize,
    /// Whether busy peers go on asking.
    started: bool,
    joined: usize,
    /// Connections that have ended, and those of them whose peer had not joined.
    ended: usize,
    failed: usize,
    duties: BinaryHeap<Reverse<(Instant, usize, Duty)>>,
    swept: Instant,
}

impl Sockets {
    pub(super) fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            waiter: Waiter::new().context("cannot wait for sockets")?,
            sockets: Vec::with_capacity(options.connections),
            buffer: vec![0; BUFFER].into(),
            out: Vec::new(),
            crowd: Crowd::new(options),
            dialer: Dialer::new(&options.url, false)?,
            pace: options.pace,
            connections: options.connections,
            started: false,
            joined: 0,
            ended: 0,
            failed: 0,
            duties: BinaryHeap::new(),
            swept: Instant::now(),
        })
    }

    /// Opens connections as long as there are some to open, and not too many under way.
    pub(super) fn open_some(&mut self) -> Result<()> {
        while self.sockets.len() < self.connections
            && self.sockets.len() < self.settled() + OPENING_MAX
        {
            let index = self.sockets.len();
            let stream = self.dialer.dial(&self.waiter.poll, index)?;
            let mut unsent = Vec::new();
            let now = Instant::now();
            let mut turn = Turn { crowd: &mut self.crowd, now, out: &mut unsent, congested: false };
            let peer = Peer::new(index, &mut turn);
            // It leaves when the connection stands.
            self.sockets.push(Some(Socket { stream, peer, unread: Vec::new(), unsent }));
        }
        Ok(())
    }

    /// Goes on for so long. An error if no connection is left to go on with.
    pub(super) fn run_for(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.turn(left.min(TICK))?;
            if self.ended == self.sockets.len() {
                bail!("no connection is left: {}", self.complaint().unwrap_or_default());
            }
        }
    }

    /// Waits until something happens, at most so long, and does all that is to be done.
    pub(super) fn turn(&mut self, wait: Duration) -> Result<()> {
        let until = Instant::now() + wait;
        self.waiter.wait(until, false).context("cannot wait for sockets")?;
        let ready = std::mem::take(&mut self.waiter.ready);
        for event in &ready {
            if event.is_writable {
                self.flush(event.number);
            }
            if event.is_readable {
                self.receive(event.number);
            }
        }
        self.waiter.ready = ready;
        self.do_duties();
        self.sweep();
        Ok(())
    }

    /// Lets one peer offer while all others are silent: if one of these gets a reply, it is to its
    /// answer.
    pub(super) fn probe(&mut self) -> Result<()> {
        self.crowd.probing = true;
        if let Some(first) = self.sockets.iter().position(Option::is_some) {
            self.with_peer(first, |peer, turn| peer.offer(turn));
        }
        self.run_for(PROBE)?;
        self.crowd.probing = false;
        Ok(())
    }

    /// Lets all peers ask, and go on asking.
    pub(super) fn start(&mut self) {
        self.started = true;
        for index in 0..self.sockets.len() {
            self.with_peer(index, Peer::ask);
        }
    }

    pub(super) fn forget_figures(&mut self) {
        self.crowd.tally = Tally::default();
        self.crowd.latencies = Latencies::default();
    }

    pub(super) fn joined(&self) -> usize {
        self.joined
    }

    /// Those of whom it is known whether they have joined.
    pub(super) fn settled(&self) -> usize {
        self.joined + self.failed
    }

    pub(super) fn tally(&self) -> Tally {
        self.crowd.tally
    }

    pub(super) fn latencies(&self) -> &Latencies {
        &self.crowd.latencies
    }

    pub(super) fn complaint(&self) -> Option<&str> {
        self.crowd.complaint.as_deref()
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
            self.crowd.tally.bytes_received += read as u64;
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
        if heard.answered {
            self.joined += usize::from(heard.joined);
            match self.pace {
                Pace::Busy { .. } if self.started => socket.peer.ask(&mut turn),
                Pace::Busy { .. } => {}
                Pace::Idle { ping_every } => {
                    // Without an interval, what most trackers say.
                    let due = now + heard.interval.unwrap_or(Duration::from_secs(120));
                    self.duties.push(Reverse((due, index, Duty::Ask)));
                    if let Some(every) = ping_every.filter(|_| heard.joined) {
                        self.duties.push(Reverse((now + every, index, Duty::Ping)));
                    }
                }
            }
        }
        self.send(index);
    }

    /// Idle peers whose time has come ask, or ping.
    fn do_duties(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, index, duty))) = self.duties.peek().copied() {
            if due > now {
                break;
            }
            self.duties.pop();
            match (duty, self.pace) {
                (Duty::Ask, _) => self.with_peer(index, Peer::ask),
                (Duty::Ping, Pace::Idle { ping_every: Some(every) }) => {
                    self.with_peer(index, |peer, turn| peer.ping(turn));
                    self.duties.push(Reverse((due + every, index, duty)));
                }
                (Duty::Ping, _) => {}
            }
        }
    }

    /// Now and then gives up on what was not answered.
    fn sweep(&mut self) {
        let now = Instant::now();
        if now - self.swept < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        let Some(since) = now.checked_sub(PATIENCE) else { return };
        for index in 0..self.sockets.len() {
            let Some(Some(socket)) = self.sockets.get_mut(index) else { continue };
            if socket.peer.give_up(since) {
                self.crowd.tally.unanswered += 1;
                if self.started || matches!(self.pace, Pace::Idle { .. }) {
                    self.with_peer(index, Peer::ask);
                }
            }
        }
    }

    /// Lets a peer say something, if its connection stands.
    fn with_peer(&mut self, index: usize, say: impl FnOnce(&mut Peer, &mut Turn<'_>)) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        self.out.clear();
        let now = Instant::now();
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
                self.crowd.tally.bytes_sent += written as u64;
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
                self.crowd.tally.bytes_sent += written as u64;
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
        self.crowd.complain(|| why.to_string());
        self.crowd.tally.lost += 1;
        self.ended += 1;
        // Dropped, it leaves the poll, too.
        let socket = self.sockets.get_mut(index).and_then(Option::take);
        self.failed += usize::from(socket.is_some_and(|socket| !socket.peer.has_joined()));
    }
}
