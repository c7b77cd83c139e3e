//! One thread's share of the peers: it waits for all of their connections, reads into one buffer, and writes a peer's
//! output in one piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use types::limits;

use super::peer::{Ended, Peer, PeerContext, ReceiveOutcome};
use super::shared::SharedState;
use super::{AnnounceTiming, WsOptions};
use crate::counters::Counters;
use crate::poller::{Poller, Ready};
use crate::runner::{SILENCE_MAX, Worker};
use crate::schedule::Pacer;
use crate::stream::{Dialer, Link};

/// Maximum number of connections that are joining at once: fewer than listen backlogs hold.
const JOINING_MAX: usize = 64;
/// Duration of the probe for acknowledgements of answers.
const PROBE: Duration = Duration::from_millis(300);
/// Maximum wait per step while peers join.
const TICK: Duration = Duration::from_millis(50);
/// Bytes per read.
const BUFFER: usize = 256 * 1024;
/// With more unsent bytes than this, a peer answers no offers.
const CONGESTION_THRESHOLD: usize = 256 * 1024;

// The rest of one read is shorter than a message, and the buffer has room for more after it.
const _: () = assert!(limits::WS_MESSAGE_MAX + limits::HTTP_HEAD_MAX < BUFFER);

struct Socket {
    link: Link,
    peer: Peer,
}

/// A scheduled action of an idle peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdleAction {
    Request,
    Ping,
}

/// See the module.
pub(super) struct Ws<'a> {
    all_joined: &'a AtomicU64,
    poller: Poller,
    /// `None` where a connection has ended.
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    out: Vec<u8>,
    shared: SharedState,
    dialer: Dialer,
    timing: AnnounceTiming,
    timeout: Duration,
    /// In an open loop.
    pacer: Option<Pacer>,
    started: bool,
    /// True until its first step.
    is_first_step: bool,
    joined: usize,
    /// Closed connections, and those of them whose peer had not joined.
    ended: usize,
    failed: usize,
    idle_actions: BinaryHeap<Reverse<(Instant, usize, IdleAction)>>,
}

impl<'a> Ws<'a> {
    /// Creates worker number `number`, whose peers are not yet connected.
    pub(super) fn new(options: &WsOptions, number: u32, all_joined: &'a AtomicU64) -> Result<Self> {
        let workers = options.workers.clamp(1, options.connections().max(1));
        let shared = SharedState::new(options, number, workers);
        let pacer = match options.timing {
            AnnounceTiming::Paced(rate) => Some(Pacer::new(rate / f64::from(workers))),
            AnnounceTiming::Busy | AnnounceTiming::Idle { .. } => None,
        };
        Ok(Self {
            all_joined,
            poller: Poller::new().context("cannot wait for sockets")?,
            sockets: Vec::with_capacity(shared.connections()),
            buffer: vec![0; BUFFER].into(),
            out: Vec::new(),
            shared,
            dialer: Dialer::new(&options.url)?,
            timing: options.timing,
            timeout: options.timeout,
            pacer,
            started: false,
            is_first_step: false,
            joined: 0,
            ended: 0,
            failed: 0,
            idle_actions: BinaryHeap::new(),
        })
    }

    /// Opens connections, limiting those that are joining.
    fn open_some(&mut self) -> Result<()> {
        while self.sockets.len() < self.shared.connections()
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
        let link = self.dialer.dial(&self.poller, index)?;
        self.out.clear();
        let (shared, out) = (&mut self.shared, &mut self.out);
        let mut step = PeerContext { shared, now: Instant::now(), out, congested: false };
        let peer = Peer::new(index, &mut step);
        if let Some(place) = self.sockets.get_mut(index) {
            *place = Some(Socket { link, peer });
        }
        // The handshake is written once the connection is established.
        self.with_link(index, |link, out| link.send(out));
        Ok(())
    }

    /// Waits for events until `until` and handles them.
    fn exchange(&mut self, until: Instant) -> Result<()> {
        if std::mem::take(&mut self.is_first_step) {
            (0..self.sockets.len()).for_each(|index| self.on_idle(index));
        }
        self.send_due();
        let (wake, before) = (self.wake(until), Instant::now());
        self.poller.wait(wake, self.pacer.is_some()).context("cannot wait for sockets")?;
        self.shared.counters.waited += before.elapsed();
        let ready = std::mem::take(&mut self.poller.ready);
        for event in &ready {
            if event.is_writable {
                self.with_link(event.number, |link, _| link.flush());
            }
            if event.is_readable {
                self.receive(*event);
            }
        }
        self.poller.ready = ready;
        self.run_idle_actions();
        Ok(())
    }

    /// Returns the next time at which there is work.
    fn wake(&self, until: Instant) -> Instant {
        let mut wake = until;
        if let Some(pacer) = self.pacer.as_ref().filter(|_| self.started) {
            wake = pacer.wake(wake);
        }
        if let Some(Reverse((due, ..))) = self.idle_actions.peek() {
            wake = wake.min(*due);
        }
        wake
    }

    /// Sends the scheduled requests of an open loop.
    fn send_due(&mut self) {
        while self.started
            && let Some(pacer) = &mut self.pacer
            && let Some((index, due)) = pacer.next(&mut self.shared.counters)
        {
            self.with_peer(index, due, |peer, step| {
                if !peer.is_waiting() {
                    peer.request(step);
                }
            });
        }
    }

    /// Handles a peer without an outstanding request, by the announce timing.
    fn on_idle(&mut self, index: usize) {
        match self.timing {
            AnnounceTiming::Busy if self.started => {
                self.with_peer(index, Instant::now(), Peer::request)
            }
            AnnounceTiming::Paced(_) if self.started => {
                self.pacer.iter_mut().for_each(|pacer| pacer.add(index));
            }
            AnnounceTiming::Busy | AnnounceTiming::Paced(_) | AnnounceTiming::Idle { .. } => {}
        }
    }

    /// Finds out whether the tracker acknowledges answers: one peer sends offers while all others are silent. A response
    /// to one of the others then acknowledges its answer.
    fn probe(&mut self, stop: &AtomicBool) -> Result<()> {
        self.shared.probing = true;
        if let Some(first) = self.sockets.iter().position(Option::is_some) {
            self.with_peer(first, Instant::now(), Peer::request);
        }
        let end = Instant::now() + PROBE;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            self.exchange(end.min(Instant::now() + TICK))?;
        }
        self.shared.probing = false;
        Ok(())
    }

    /// Returns the number of peers that have joined or failed to join.
    fn decided(&self) -> usize {
        self.joined + self.failed
    }

    /// Reads until no more input is available, and passes it to the peer.
    fn receive(&mut self, event: Ready) {
        let index = event.number;
        while let Some(Some(socket)) = self.sockets.get_mut(index) {
            let input = match socket.link.read(&mut self.buffer, event.is_closed) {
                Ok(Some(input)) => input,
                Ok(None) => return,
                Err(error) => return self.close(index, &error),
            };
            self.shared.counters.bytes_in += input.fresh as u64;
            self.heard(index, input.len);
            if input.is_over {
                return self.close(index, &"the tracker closed the connection");
            }
            if input.is_all {
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
        let congested = socket.link.unsent() > CONGESTION_THRESHOLD;
        let mut step = PeerContext { shared: &mut self.shared, now, out: &mut self.out, congested };
        let heard = match socket.peer.receive(input, &mut step) {
            Ok(heard) => heard,
            Err(Ended(why)) => return self.close(index, &why),
        };
        socket.link.keep(input.get(heard.consumed..).unwrap_or_default());
        let is_busy = self.timing == AnnounceTiming::Busy && self.started;
        if heard.answered && is_busy {
            // Sent in the same write as its replies.
            socket.peer.request(&mut step);
        }
        self.with_link(index, |link, out| link.send(out));
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
    fn sweep(&mut self) {
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
        let congested = socket.link.unsent() > CONGESTION_THRESHOLD;
        let mut step = PeerContext { shared: &mut self.shared, now, out: &mut self.out, congested };
        say(&mut socket.peer, &mut step);
        self.with_link(index, |link, out| link.send(out));
    }

    /// Calls `write` with a connection and the output, and closes it on an error.
    fn with_link(
        &mut self,
        index: usize,
        write: impl FnOnce(&mut Link, &[u8]) -> std::io::Result<usize>,
    ) {
        let Some(Some(socket)) = self.sockets.get_mut(index) else { return };
        match write(&mut socket.link, &self.out) {
            Ok(written) => self.shared.counters.bytes_out += written as u64,
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

impl Worker for Ws<'_> {
    /// Opens all connections and makes each peer announce once.
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut progress = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) && self.decided() < self.shared.connections() {
            self.open_some()?;
            self.exchange(Instant::now() + TICK)?;
            let reached = self.shared.first_announces + self.decided();
            if reached > progress.1 {
                progress = (Instant::now(), reached);
            }
            // Peers without a response are left out; the others continue.
            if progress.0.elapsed() > SILENCE_MAX {
                break;
            }
        }
        if self.joined == 0 {
            let worst = self.shared.counters.errors.iter().max_by_key(|(_, times)| **times);
            bail!("no peer could join: {}", worst.map_or("nothing was answered", |(text, _)| text));
        }
        self.all_joined.fetch_add(self.joined as u64, Ordering::Relaxed);
        if self.shared.offers > 0 { self.probe(stop) } else { Ok(()) }
    }

    fn start(&mut self, at: Instant) {
        // Counts from before the start are discarded.
        self.shared.counters = Counters::default();
        (self.started, self.is_first_step) = (true, true);
        self.pacer.iter_mut().for_each(|pacer| pacer.start = at);
    }

    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()> {
        std::mem::swap(&mut self.shared.counters, counters);
        let done = self.exchange(until);
        std::mem::swap(&mut self.shared.counters, counters);
        done?;
        ensure!(self.ended < self.sockets.len(), "no connection is left");
        Ok(())
    }

    fn maintain(&mut self, counters: &mut Counters) {
        std::mem::swap(&mut self.shared.counters, counters);
        self.sweep();
        std::mem::swap(&mut self.shared.counters, counters);
    }
}
