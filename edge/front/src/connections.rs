//! The connections of a worker: HTTP, TLS handshakes and WebSockets in one table, with one scan for
//! all deadlines.
//!
//! Plain form: each connection's task owns its socket, a timer and its output. Departures:
//! 1. One scan, a few times a second, ends what is overdue: a timer for each connection would cost
//!    more memory than the connection.
//! 2. WebSocket messages gather in the receiver's output, and all that one turn of the reactor brought
//!    for a connection leaves in one write.
//! 3. An empty output has no memory; buffers are recycled. All of them together are bounded.
//! 4. Messages that other clients send to a WebSocket have lower bounds than its own responses, and are
//!    dropped above them: only what a client has asked for may close it.

mod memory;
mod output;
mod scan;
mod seats;

use std::rc::Rc;

use slab::Slab;
use tokio::task::AbortHandle;
use tracker::counters::Counters;
use tracker::{ConnectionPermit, Offers, Random};
use types::{ConnectionKey, Tick};

use crate::buffer::WriteOutcome;
use crate::client::WsClient;
use crate::listener::Listener;
use crate::stream::{Socket, Stream};
use crate::webtorrent::WorkerLink;
use memory::MemoryUse;

pub use memory::MemoryLimits;
pub(crate) use seats::Crowd;

/// A worker's table of connections.
pub(crate) struct Connections {
    /// The worker and the node that the table's keys name.
    link: WorkerLink,
    entries: Slab<Entry>,
    /// Distinguishes the connections that use an entry one after the other.
    generation: u64,
    /// Places of WebSockets with output that no task waits to write.
    dirty: Vec<usize>,
    /// The memory of all buffers.
    memory: MemoryUse,
    memory_limits: MemoryLimits,
    /// True while messages of other clients take a quarter of the memory for output.
    is_relay_crowded: bool,
    /// The number of scans so far.
    scans: usize,
    /// Memory for outputs.
    spare: Vec<Vec<u8>>,
    /// Chooses the connections that may make room for others.
    random: Random,
    /// Connections that made room for others, and whose tasks have not ended yet.
    displaced: usize,
}

struct Entry {
    key: ConnectionKey,
    socket: Socket,
    listener: Rc<Listener>,
    /// Output that waits for the socket.
    output: Vec<u8>,
    /// Held for as long as the connection.
    permit: ConnectionPermit,
    /// The offers that the client may answer.
    offers: Offers,
    /// The task that waits until the socket of a WebSocket takes more output.
    writer: Option<AbortHandle>,
    /// When the scan acts on the connection, as `phase` says.
    deadline: Tick,
    /// The tick by which a WebSocket's unfinished message must have ended, or [`NEVER`].
    message_deadline: Tick,
    /// The connection's counted memory.
    memory: MemoryUse,
    /// The client of a WebSocket.
    client: Option<Rc<WsClient>>,
    /// Bytes of unsent output that other clients sent. Of what leaves, the client's own responses count first.
    relayed: u32,
    /// The connection's place in `listener.seats`, if it has one there.
    seat: u32,
    phase: Phase,
    /// True if the connection made room for another, and only its task is left.
    is_displaced: bool,
    /// True if the entry is among the dirty ones.
    is_dirty: bool,
}

/// Later than any deadline.
const NEVER: Tick = Tick(u32::MAX);

/// The activity of a connection. It decides the meaning of the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// HTTP between two requests. Overdue: the client is silent.
    Idle,
    /// HTTP with a request or response under way, or in the TLS handshake. Overdue: the client is slow.
    Request,
    /// A WebSocket. Overdue: the client is pinged.
    WebSocket,
    /// A WebSocket that was pinged. Overdue: the client is gone.
    Pinged,
    /// A WebSocket whose client reads too slowly. Overdue: it has not read at all.
    Blocked,
    /// The last bytes are in the output, or sent, and the client should close. Overdue: it does not.
    Closing,
    /// Ended by the scan.
    Ended,
}

/// Buffers kept for connections that get output next.
const SPARE_MAX: usize = 128;
/// Larger buffers are freed.
const SPARE_BYTES_MAX: usize = 64 * 1024;

impl Connections {
    /// Returns an empty table. `generation` is random: see [`ConnectionKey`].
    pub(crate) fn new(link: WorkerLink, generation: u64, memory_limits: MemoryLimits) -> Self {
        Self {
            link,
            entries: Slab::new(),
            generation,
            dirty: Vec::new(),
            memory: MemoryUse::default(),
            memory_limits,
            is_relay_crowded: false,
            scans: 0,
            spare: Vec::new(),
            random: Random::new(generation),
            displaced: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an HTTP connection without output.
    pub(crate) fn insert(
        &mut self,
        socket: Socket,
        listener: Rc<Listener>,
        permit: ConnectionPermit,
        deadline: Tick,
    ) -> ConnectionKey {
        self.generation = self.generation.wrapping_add(1);
        let vacant = self.entries.vacant_entry();
        let number = vacant.key();
        let key = ConnectionKey::new(self.link.node(), self.link.worker, self.generation, number);
        let seat = listener.take_seat(number);
        vacant.insert(Entry {
            key,
            socket,
            listener,
            output: Vec::new(),
            permit,
            offers: Offers::default(),
            writer: None,
            deadline,
            message_deadline: NEVER,
            memory: MemoryUse::default(),
            client: None,
            relayed: 0,
            seat,
            phase: Phase::Request,
            is_displaced: false,
            is_dirty: false,
        });
        key
    }

    /// Closes a connection's socket. Its key is invalid from now on.
    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        let entry = self.entries.remove(key.place());
        assert!(entry.key == key, "a task has outlived its connection");
        entry.counters(Counters::connection_closed);
        self.memory.replace(entry.memory, MemoryUse::default());
        self.leave_seat(&entry);
        if let Some(writer) = entry.writer {
            writer.abort();
        }
        self.recycle(entry.output);
    }

    pub(crate) fn upgrade(&mut self, now: Tick, key: ConnectionKey, client: Rc<WsClient>) {
        let entry = self.entry_mut(key);
        debug_assert!(entry.client.is_none(), "upgraded twice");
        entry.counters(Counters::connection_closed);
        entry.client = Some(client);
        entry.counters(Counters::connection_opened);
        entry.alive(now);
        if !entry.output.is_empty() {
            entry.is_dirty = true;
            self.dirty.push(key.place());
        }
    }

    /// Sets what an HTTP connection does, and until when it may.
    pub(crate) fn set_phase(&mut self, key: ConnectionKey, phase: Phase, deadline: Option<Tick>) {
        let entry = self.entry_mut(key);
        if entry.phase == Phase::Ended {
            return;
        }
        entry.phase = phase;
        if let Some(deadline) = deadline {
            entry.deadline = deadline;
        }
    }

    pub(crate) fn permit(&mut self, key: ConnectionKey) -> &mut ConnectionPermit {
        &mut self.entry_mut(key).permit
    }

    /// Returns true if a connection has output that waits for its socket.
    #[inline]
    pub(crate) fn has_output(&self, key: ConnectionKey) -> bool {
        let entry = self.entry(key);
        !entry.output.is_empty() || entry.socket.is_pending()
    }

    /// Sets the output of an HTTP connection that has none.
    pub(crate) fn set_output(&mut self, now: Tick, key: ConnectionKey, output: Vec<u8>) {
        let entry = self.entry_mut(key);
        debug_assert!(entry.output.is_empty(), "output would be lost");
        entry.output = output;
        self.count_output(key.place());
        self.keep_limits(now);
    }

    /// Returns true if the scan has ended the connection, and so has counted why.
    pub(crate) fn was_ended(&self, key: ConnectionKey) -> bool {
        self.entry(key).phase == Phase::Ended
    }

    /// Returns true if the last bytes for the connection are in its output, or sent.
    pub(crate) fn is_closing(&self, key: ConnectionKey) -> bool {
        matches!(self.entry(key).phase, Phase::Closing | Phase::Ended)
    }

    #[inline]
    pub(crate) fn socket(&self, key: ConnectionKey) -> &Socket {
        &self.entry(key).socket
    }

    /// Returns the offers that a connection may answer.
    pub(crate) fn offers(&mut self, key: ConnectionKey) -> Option<&mut Offers> {
        self.find_mut(key).map(|entry| &mut entry.offers)
    }

    /// Records that a WebSocket's client has sent something.
    pub(crate) fn heard(&mut self, now: Tick, key: ConnectionKey) {
        let entry = self.entry_mut(key);
        if matches!(entry.phase, Phase::WebSocket | Phase::Pinged) {
            entry.alive(now);
        }
    }

    /// Records that a WebSocket's input ends inside a message, which must end in time from its first byte on,
    /// whatever control frames come in between. `is_new` = the input has the message's first byte.
    pub(crate) fn await_message_end(&mut self, now: Tick, key: ConnectionKey, is_new: bool) {
        let entry = self.entry_mut(key);
        if is_new || entry.message_deadline == NEVER {
            let timeout_s = entry.listener.web_options.message_timeout_s;
            entry.message_deadline = now.after(timeout_s);
        }
    }

    /// Records that a WebSocket's input ends with a whole message, or waits for the tracker.
    pub(crate) fn note_message_end(&mut self, key: ConnectionKey) {
        self.entry_mut(key).message_deadline = NEVER;
    }

    /// Returns the entry of a connection whose task runs.
    ///
    /// # Panics
    ///
    /// Panics if the task has outlived its connection.
    #[inline]
    fn entry(&self, key: ConnectionKey) -> &Entry {
        self.find(key).expect("a task has outlived its connection")
    }

    #[inline]
    fn entry_mut(&mut self, key: ConnectionKey) -> &mut Entry {
        self.find_mut(key).expect("a task has outlived its connection")
    }

    /// Returns the entry of a connection that may be gone.
    #[inline]
    fn find(&self, key: ConnectionKey) -> Option<&Entry> {
        self.entries.get(key.place()).filter(|entry| entry.key == key)
    }

    #[inline]
    fn find_mut(&mut self, key: ConnectionKey) -> Option<&mut Entry> {
        self.entries.get_mut(key.place()).filter(|entry| entry.key == key)
    }

    fn recycle(&mut self, mut output: Vec<u8>) {
        if (1..=SPARE_BYTES_MAX).contains(&output.capacity()) && self.spare.len() < SPARE_MAX {
            output.clear();
            self.spare.push(output);
        }
    }
}

impl Entry {
    fn can_receive(&self) -> bool {
        matches!(self.phase, Phase::WebSocket | Phase::Pinged | Phase::Blocked)
    }

    /// Returns the bytes that wait for the socket; of TLS, the memory that holds them.
    fn unsent(&self) -> usize {
        self.output.len() + self.socket.unsent_bytes()
    }

    /// Returns true if more bytes of the client's own responses wait than `unread_max` allows.
    #[inline]
    fn has_overflow(&self) -> bool {
        let own = self.output.len().saturating_sub(self.relayed as usize);
        own > self.listener.web_options.unread_max
    }

    /// Applies `count` to the counters of the connection's protocol.
    fn counters(&self, count: impl FnOnce(&mut Counters)) {
        if self.client.is_some() {
            count(&mut self.listener.ws());
        } else {
            count(&mut self.listener.http());
        }
    }

    /// Records that the client of a WebSocket lives: it is pinged if it is silent from now on.
    fn alive(&mut self, now: Tick) {
        let options = &self.listener.web_options;
        let wait_s = options.ping_s.min(options.idle_timeout_s);
        (self.phase, self.deadline) = (Phase::WebSocket, now.after(wait_s));
    }

    /// Adapts the phase of a WebSocket to the result of a write.
    fn note_write(&mut self, now: Tick, sent: usize, outcome: WriteOutcome) {
        match (self.phase, outcome) {
            // A client that reads something gets more time.
            (Phase::Blocked, WriteOutcome::Blocked) if sent == 0 => {}
            (Phase::WebSocket | Phase::Pinged | Phase::Blocked, WriteOutcome::Blocked) => {
                let write_timeout_s = self.listener.web_options.write_timeout_s;
                (self.phase, self.deadline) = (Phase::Blocked, now.after(write_timeout_s));
            }
            (Phase::Blocked, WriteOutcome::Done) => self.alive(now),
            (Phase::Closing, WriteOutcome::Done) => {
                // A broken socket needs no end.
                let _ = self.socket.shutdown_write();
            }
            _ => {}
        }
    }

    /// Shuts the socket down. The connection's task wakes, finds its input ended, and removes it.
    fn end(&mut self) {
        self.phase = Phase::Ended;
        // A socket that is closed already needs no shutdown.
        let _ = self.socket.shutdown_both();
    }
}
