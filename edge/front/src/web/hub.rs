//! What is due to a worker's WebSocket connections: each has a mailbox, which is emptied into its
//! socket at the end of a turn of the reactor.
//!
//! Plain form: a frame is written when it comes up. Departures:
//! 1. Frames gather in the mailbox, and all that a turn brought for a connection leaves in one write.
//! 2. A mailbox has memory only while something is in it.
//! 3. What is for another worker's connections gathers in one packet for each worker.

use std::io;
use std::mem::take;
use std::rc::Rc;

use slab::Slab;
use tracker::counters::{Counters, DropReason};
use tracker::{ListenerPolicyId, Offers};
use types::{ConnectionKey, Tick, limits};
use wire::ws::{self, CloseCode};

use super::exchange::{Content, Exchange, Letter, Packet, Place};
use super::{WebListener, WebOptions};
use crate::stream::{Socket, Stream};

/// The mailboxes of a worker's connections, and the packets for other workers.
pub(super) struct Hub {
    number: usize,
    mailboxes: Slab<Mailbox>,
    /// Tells the users of a mailbox's place from each other.
    generation: u64,
    /// Places of mailboxes with something in them that nobody waits to write.
    due: Vec<usize>,
    outgoing: Vec<Packet>,
    /// How often deadlines were looked at.
    scans: usize,
    /// Memory for mailboxes.
    spare: Vec<Vec<u8>>,
    listeners: Vec<WebListener>,
}

struct Mailbox {
    key: ConnectionKey,
    stream: Rc<Socket>,
    listener: usize,
    unsent: Vec<u8>,
    /// Since when the socket has taken nothing. Somebody waits to write on then.
    blocked: Option<Tick>,
    /// When it is ended by force. The last frame is in `unsent`, or sent.
    ends: Option<Tick>,
    /// When the client was last heard of.
    heard: Tick,
    /// Whether it was pinged since.
    pinged: bool,
    offers: Offers,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All is out.
    All,
    /// The socket takes no more for now.
    Blocked,
    /// The connection is broken or gone.
    Broken,
}

/// Buffers kept for mailboxes that are filled next.
const SPARE_MAX: usize = 128;
/// Buffers above this are not kept.
const SPARE_BYTES_MAX: usize = 64 * 1024;
/// Scans in which every mailbox has its turn: about a second.
const SCAN_PARTS: usize = 4;
/// Seconds that a client has to answer a close frame.
const CLOSE_S: u32 = 3;

impl Hub {
    pub(super) fn new(place: &Place, listeners: Vec<WebListener>) -> Self {
        Self {
            number: place.number,
            mailboxes: Slab::new(),
            generation: 0,
            due: Vec::new(),
            outgoing: (0..place.exchange.workers()).map(|_| Packet::default()).collect(),
            scans: 0,
            spare: Vec::new(),
            listeners,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    pub(super) fn counters(&mut self, listener: usize) -> &mut Counters {
        &mut self.listeners[listener].metrics.counters
    }

    /// Connections held that have come by a listener.
    pub(super) fn held(&self, listener: usize) -> u64 {
        let counters = &self.listeners[listener].metrics.counters;
        counters.connections_opened - counters.connections_closed
    }

    /// What is decided for a listener.
    pub(super) fn listener_policy(&self, listener: usize) -> ListenerPolicyId {
        self.listeners[listener].listener_policy
    }

    /// How a listener's connections are served.
    pub(super) fn options(&self, listener: usize) -> &WebOptions {
        &self.listeners[listener].options
    }

    /// A mailbox for a new connection, with what could not be sent to it yet.
    pub(super) fn open(
        &mut self,
        now: Tick,
        stream: Rc<Socket>,
        listener: usize,
        unsent: Vec<u8>,
    ) -> ConnectionKey {
        self.counters(listener).connections_opened += 1;
        self.generation += 1;
        let place = self.mailboxes.vacant_entry();
        let at = place.key();
        let key = key(self.number, self.generation, at);
        if !unsent.is_empty() {
            self.due.push(at);
        }
        place.insert(Mailbox {
            key,
            stream,
            listener,
            unsent,
            blocked: None,
            ends: None,
            heard: now,
            pinged: false,
            offers: Offers::default(),
        });
        key
    }

    /// Ends a connection: its key leads nowhere from now on.
    pub(super) fn remove(&mut self, key: ConnectionKey) {
        if self.mailbox(key).is_some() {
            let mailbox = self.mailboxes.remove(place(key));
            self.counters(mailbox.listener).connections_closed += 1;
            self.keep(mailbox.unsent);
        }
    }

    /// The client has shown that it lives.
    pub(super) fn heard(&mut self, now: Tick, key: ConnectionKey) {
        if let Some(mailbox) = self.mailbox(key) {
            mailbox.heard = now;
            mailbox.pinged = false;
        }
    }

    /// The offers that a connection may answer.
    pub(super) fn offers(&mut self, key: ConnectionKey) -> Option<&mut Offers> {
        self.mailbox(key).map(|mailbox| &mut mailbox.offers)
    }

    /// Whether a close frame is on its way.
    pub(super) fn is_ending(&self, key: ConnectionKey) -> bool {
        let mailbox = self.mailboxes.get(place(key)).filter(|mailbox| mailbox.key == key);
        mailbox.is_none_or(|mailbox| mailbox.ends.is_some())
    }

    /// Puts what `write` appends into a connection of this worker's mailbox.
    #[inline]
    pub(super) fn put(
        &mut self,
        now: Tick,
        to: ConnectionKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let at = place(to);
        let mailbox = self.mailboxes.get_mut(at);
        let Some(mailbox) = mailbox.filter(|box_| box_.key == to && box_.ends.is_none()) else {
            return false;
        };
        if mailbox.unsent.is_empty() {
            mailbox.unsent = self.spare.pop().unwrap_or_default();
            self.due.push(at);
        }
        write(&mut mailbox.unsent);
        if mailbox.unsent.len() > self.listeners[mailbox.listener].options.unread_max {
            self.relieve(now, at);
        }
        true
    }

    /// Sends a message to a connection of whatever worker, if it is still there.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Tick,
        to: ConnectionKey,
        content: Content,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let worker = worker(to);
        if worker == self.number {
            if self.put(now, to, |out| ws::text_with(out, write)) {
                self.expect(now, to, content);
            }
        } else if let Some(packet) = self.outgoing.get_mut(worker) {
            let start = packet.frames.len();
            ws::text_with(&mut packet.frames, write);
            packet.letters.push(Letter { to, content, len: packet.frames.len() - start });
        }
    }

    /// Puts what other workers sent into the mailboxes.
    pub(super) fn receive(&mut self, now: Tick, packet: &Packet) {
        let mut frames = packet.frames.as_slice();
        for letter in &packet.letters {
            let Some((frame, rest)) = frames.split_at_checked(letter.len) else { return };
            frames = rest;
            if self.put(now, letter.to, |out| out.extend_from_slice(frame)) {
                self.expect(now, letter.to, letter.content);
            }
        }
    }

    #[inline]
    fn expect(&mut self, now: Tick, to: ConnectionKey, content: Content) {
        if let Content::Offer { name, from } = content
            && let Some(mailbox) = self.mailbox(to)
        {
            mailbox.offers.remember(now, name, from);
        }
    }

    /// Sends a close frame, the last that a connection gets.
    pub(super) fn close(&mut self, now: Tick, key: ConnectionKey, code: CloseCode, reason: &str) {
        self.put(now, key, |out| ws::close(out, code, reason));
        if let Some(mailbox) = self.mailbox(key) {
            let ends = now.after(CLOSE_S);
            mailbox.ends = mailbox.ends.or(Some(ends));
        }
    }

    /// Sends a close frame to all.
    pub(super) fn close_all(&mut self, now: Tick, code: CloseCode, reason: &str) {
        let keys: Vec<ConnectionKey> = self.mailboxes.iter().map(|(_, one)| one.key).collect();
        keys.into_iter().for_each(|key| self.close(now, key, code, reason));
    }

    /// Empties all mailboxes that are due, and posts what is for other workers. Gives the connections
    /// whose sockets take no more; somebody has to wait for each, and [`Hub::write`] on.
    pub(super) fn flush(
        &mut self,
        now: Tick,
        exchange: &Exchange,
    ) -> Vec<(ConnectionKey, Rc<Socket>)> {
        let mut blocked = Vec::new();
        let mut due = take(&mut self.due);
        for at in due.drain(..) {
            let mailbox = self.mailboxes.get(at);
            let Some(key) = mailbox.filter(|one| one.blocked.is_none()).map(|one| one.key) else {
                continue;
            };
            if self.write(now, key) == Written::Blocked
                && let Some(mailbox) = self.mailboxes.get(at)
            {
                blocked.push((key, Rc::clone(&mailbox.stream)));
            }
        }
        self.due = due;
        for (worker, packet) in self.outgoing.iter_mut().enumerate() {
            if !packet.letters.is_empty() {
                exchange.post(worker, packet);
            }
        }
        blocked
    }

    /// Whether something is to be flushed.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty() || self.outgoing.iter().any(|packet| !packet.letters.is_empty())
    }

    /// Writes as much of a mailbox as the socket takes.
    pub(super) fn write(&mut self, now: Tick, key: ConnectionKey) -> Written {
        let Some(mailbox) = self.mailbox(key) else { return Written::Broken };
        let mut sent = 0;
        let written = loop {
            let left = mailbox.unsent.get(sent..).unwrap_or_default();
            if left.is_empty() && !mailbox.stream.is_pending() {
                break Written::All;
            }
            match mailbox.stream.write_now(left) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Written::Blocked,
                // The task that reads finds out, too, and ends the connection.
                Err(_) => {
                    sent = mailbox.unsent.len();
                    break Written::Broken;
                }
            }
        };
        mailbox.unsent.drain(..sent);
        mailbox.blocked = match (written, mailbox.blocked) {
            (Written::Blocked, Some(since)) if sent == 0 => Some(since),
            (Written::Blocked, _) => Some(now),
            _ => None,
        };
        let listener = mailbox.listener;
        let empty = if mailbox.unsent.is_empty() { take(&mut mailbox.unsent) } else { Vec::new() };
        self.counters(listener).bytes_out += sent as u64;
        self.keep(empty);
        written
    }

    /// A mailbox is over its bound: what the socket takes goes at once; if that does not help, its
    /// owner reads too slowly, and is told so behind what it has not read yet.
    fn relieve(&mut self, now: Tick, at: usize) {
        let Some(mailbox) = self.mailboxes.get(at) else { return };
        let (key, listener) = (mailbox.key, mailbox.listener);
        if mailbox.blocked.is_none() {
            self.write(now, key);
            // Not waited for by anybody: the flush tries again.
            let Some(mailbox) = self.mailboxes.get_mut(at) else { return };
            mailbox.blocked = None;
            if mailbox.unsent.len() <= self.listeners[listener].options.unread_max {
                return;
            }
        }
        self.counters(listener).drop(DropReason::SlowReader);
        let Some(mailbox) = self.mailboxes.get_mut(at) else { return };
        ws::close(&mut mailbox.unsent, CloseCode::POLICY, "messages are not read fast enough");
        mailbox.ends = Some(now.after(CLOSE_S));
    }

    /// A few times a second: ends what is overdue, pings who is silent, forgets old offers, publishes
    /// figures. Each call looks at a part of the mailboxes.
    pub(super) fn scan(&mut self, now: Tick) {
        let mut silent = Vec::new();
        self.scans += 1;
        for at in (self.scans % SCAN_PARTS..self.mailboxes.capacity()).step_by(SCAN_PARTS) {
            let Some(mailbox) = self.mailboxes.get_mut(at) else { continue };
            let WebListener { metrics, options, .. } = &mut self.listeners[mailbox.listener];
            let counters = &mut metrics.counters;
            let stuck =
                mailbox.blocked.is_some_and(|since| now > since.after(options.write_timeout_s));
            let is_overdue = match mailbox.ends {
                Some(ends) => now > ends,
                None if stuck => {
                    counters.drop(DropReason::SlowReader);
                    true
                }
                None if now > mailbox.heard.after(options.idle_timeout_s) => {
                    counters.drop(DropReason::TimedOut);
                    true
                }
                None => false,
            };
            if is_overdue {
                // Its task wakes up and finds the stream closed. One closed already needs no ending.
                mailbox.ends = Some(Tick(u32::MAX));
                let _ = mailbox.stream.hang_up();
            } else if !mailbox.pinged && now >= mailbox.heard.after(options.ping_s) {
                mailbox.pinged = true;
                silent.push(mailbox.key);
            }
            mailbox.offers.expire(now);
        }
        for key in silent {
            self.put(now, key, |out| ws::ping(out, b""));
        }
        self.listeners.iter_mut().for_each(|listener| listener.metrics.publish());
    }

    #[inline]
    fn mailbox(&mut self, key: ConnectionKey) -> Option<&mut Mailbox> {
        self.mailboxes.get_mut(place(key)).filter(|mailbox| mailbox.key == key)
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if (1..=SPARE_BYTES_MAX).contains(&capacity) && self.spare.len() < SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// A worker's number, a number that no other user of the place had, and the place.
fn key(worker: usize, generation: u64, place: usize) -> ConnectionKey {
    let generation = generation % (1 << GENERATION_BITS);
    ConnectionKey(
        (worker as u64) << (GENERATION_BITS + PLACE_BITS) | generation << PLACE_BITS | place as u64,
    )
}

fn worker(key: ConnectionKey) -> usize {
    (key.0 >> (GENERATION_BITS + PLACE_BITS)) as usize
}

fn place(key: ConnectionKey) -> usize {
    (key.0 % (1 << PLACE_BITS)) as usize
}

const PLACE_BITS: u32 = 24;
const GENERATION_BITS: u32 = 30;
const _: () = assert!(limits::CONNECTIONS_MAX <= 1 << PLACE_BITS);
const _: () = assert!(limits::WORKERS_MAX <= 1 << (64 - PLACE_BITS - GENERATION_BITS));
