//! The memory of a worker's connections: input that is not a whole request or message yet, output that
//! its socket does not take yet, and the torrents of WebSockets.
//!
//! Each connection has limits of its own, but many connections that all reach them would take
//! gigabytes. So the sums are bounded, too. When one is over its limit, the connections that hold the most
//! of it are closed, until a quarter is free: the search for them visits every connection, and must
//! not follow each message.
//!
//! Output that other clients sent makes no connection one that holds the most. It may take half of the memory
//! for output; further messages are dropped. From a quarter on, only clients that have read all that others
//! sent get more, and those that read nothing are closed.

use tracker::counters::DropReason;
use types::{ConnectionKey, Tick, limits};
use wire::ws::{self, CloseCode};

use super::{Connections, Phase};

/// The most memory that one worker's connections may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of unfinished requests and messages.
    pub read_max: usize,
    /// Bytes of output that waits for its socket.
    pub unsent_max: usize,
    /// Bytes of the torrents that WebSockets have announced.
    pub torrents_max: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            read_max: (limits::READ_MEMORY_MIB as usize) << 20,
            unsent_max: (limits::UNSENT_MEMORY_MIB as usize) << 20,
            torrents_max: limits::WS_TORRENTS_MEMORY_MAX,
        }
    }
}

/// The memory that buffers take: of one connection, or of all. Bytes by [`MemoryKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryUse([usize; 4]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryKind {
    /// Unfinished requests and messages.
    Read,
    /// Output, without that of other clients.
    Unsent,
    /// Output that other clients sent. No connection is closed for it.
    Relayed,
    /// Torrents of WebSockets.
    Torrents,
}

impl MemoryUse {
    pub(super) fn has_torrents(self) -> bool {
        self.of(MemoryKind::Torrents) > 0
    }

    #[inline]
    fn of(self, kind: MemoryKind) -> usize {
        self.0[kind as usize]
    }

    #[inline]
    fn set(&mut self, kind: MemoryKind, bytes: usize) {
        self.0[kind as usize] = bytes;
    }

    /// Returns the bytes that count against the limit of a kind.
    #[inline]
    fn limited(self, kind: MemoryKind) -> usize {
        let relayed = if kind == MemoryKind::Unsent { self.of(MemoryKind::Relayed) } else { 0 };
        self.of(kind) + relayed
    }

    /// Counts the memory of a connection that had `before`, and has `after`.
    #[inline]
    pub(super) fn replace(&mut self, before: Self, after: Self) {
        for ((sum, before), after) in self.0.iter_mut().zip(before.0).zip(after.0) {
            *sum = *sum - before + after;
        }
    }
}

impl Connections {
    /// Sets how many bytes of unfinished input a connection's task holds. Closes the largest holders if
    /// all connections together hold too many.
    pub(crate) fn hold_input(&mut self, now: Tick, key: ConnectionKey, bytes: usize) {
        let entry = self.entry(key);
        let read = bytes + entry.socket.held_bytes();
        // The usual case: an idle connection holds nothing, before and after.
        if entry.memory.of(MemoryKind::Read) != read {
            self.set_memory(key.place(), |memory| memory.set(MemoryKind::Read, read));
            self.keep_limits(now);
        }
    }

    /// Sets how many bytes the torrents of a WebSocket take. Closes the largest holders if all
    /// connections together hold too many.
    pub(crate) fn hold_torrents(&mut self, now: Tick, key: ConnectionKey, bytes: usize) {
        self.set_memory(key.place(), |memory| memory.set(MemoryKind::Torrents, bytes));
        self.keep_limits(now);
    }

    /// Counts the output of an entry after it has changed.
    #[inline]
    pub(super) fn count_output(&mut self, number: usize) {
        let entry = &self.entries[number];
        let held = entry.output.capacity() + entry.socket.unsent_bytes();
        // Memory that waits to be filled is part of what others take, if they take any.
        let own = match entry.relayed as usize {
            0 => held,
            relayed => entry.unsent().saturating_sub(relayed),
        };
        self.set_memory(number, |memory| {
            memory.set(MemoryKind::Unsent, own);
            memory.set(MemoryKind::Relayed, held.saturating_sub(own));
        });
    }

    /// Returns true if messages of other clients take a quarter of the memory for output. Writes all output
    /// that sockets take before it first returns true.
    #[inline]
    pub(super) fn is_relay_crowded(&mut self, now: Tick) -> bool {
        if self.is_relay_crowded {
            self.update_relay_crowded();
        } else if self.memory.of(MemoryKind::Relayed) > self.memory_limits.unsent_max / 4 {
            self.is_relay_crowded = true;
            self.write_all(now);
            self.update_relay_crowded();
        }
        self.is_relay_crowded
    }

    /// Clears `is_relay_crowded` if a quarter of that quarter is free again.
    pub(super) fn update_relay_crowded(&mut self) {
        let max = self.memory_limits.unsent_max / 16 * 3;
        self.is_relay_crowded &= self.memory.of(MemoryKind::Relayed) > max;
    }

    /// Returns true if messages of other clients take less than half of the memory for output.
    #[inline]
    pub(super) fn has_relay_memory(&self) -> bool {
        self.memory.of(MemoryKind::Relayed) < self.memory_limits.unsent_max / 2
    }

    /// Changes an entry's counted memory.
    #[inline]
    fn set_memory(&mut self, number: usize, change: impl FnOnce(&mut MemoryUse)) {
        // An ended connection's memory is freed with its task: changes do not count.
        let entry = self.entries.get_mut(number).filter(|entry| entry.phase != Phase::Ended);
        let Some(entry) = entry else { return };
        let before = entry.memory;
        change(&mut entry.memory);
        self.memory.replace(before, entry.memory);
    }

    /// Closes the largest holders if the connections together hold too much. Call it after
    /// [`Connections::count_output`] where output may have grown.
    #[inline]
    pub(super) fn keep_limits(&mut self, now: Tick) {
        if self.memory.of(MemoryKind::Read) > self.memory_limits.read_max {
            self.close_largest(now, MemoryKind::Read);
        }
        if self.memory.of(MemoryKind::Torrents) > self.memory_limits.torrents_max {
            self.close_largest(now, MemoryKind::Torrents);
        }
        let unsent = MemoryKind::Unsent;
        if self.memory.limited(unsent) > self.memory_limits.unsent_max {
            self.write_all(now);
            if self.memory.limited(unsent) > self.memory_limits.unsent_max {
                self.close_largest(now, unsent);
            }
        }
    }

    /// Writes the output that this turn of the reactor has brought: what sockets take is not unsent.
    #[cold]
    fn write_all(&mut self, now: Tick) {
        for at in 0..self.dirty.len() {
            let number = self.dirty.get(at).and_then(|number| self.entries.get(*number));
            if let Some(key) = number.filter(|entry| entry.is_dirty).map(|entry| entry.key) {
                self.write_unless_waited_for(now, key);
            }
        }
    }

    /// Closes the connections that hold the most, until a quarter of the memory is free.
    #[cold]
    fn close_largest(&mut self, now: Tick, kind: MemoryKind) {
        let MemoryLimits { read_max, unsent_max, torrents_max } = self.memory_limits;
        let (max, reason) = match kind {
            MemoryKind::Read => (read_max, DropReason::ReadMemory),
            MemoryKind::Torrents => (torrents_max, DropReason::TorrentMemory),
            MemoryKind::Unsent | MemoryKind::Relayed => (unsent_max, DropReason::UnsentMemory),
        };
        let holders = self.entries.iter().filter(|(_, entry)| entry.memory.of(kind) > 0);
        let mut holders: Vec<(usize, usize)> =
            holders.map(|(number, entry)| (entry.memory.of(kind), number)).collect();
        holders.sort_unstable_by(|one, other| other.cmp(one));
        for (_, number) in holders {
            if self.memory.limited(kind) <= max / 4 * 3 {
                return;
            }
            let text = "the tracker has no memory for this connection";
            self.close_now(now, number, reason, text);
        }
    }

    /// Ends a connection; a WebSocket's client gets `text`. Its task drops the input that it holds when it
    /// wakes.
    pub(super) fn close_now(&mut self, now: Tick, number: usize, reason: DropReason, text: &str) {
        let entry = &mut self.entries[number];
        entry.counters(|counters| counters.drop(reason));
        let key = entry.key;
        if entry.can_receive() && entry.output.is_empty() {
            ws::close(&mut entry.output, CloseCode::TRY_AGAIN, text);
            // A client whose socket takes no more misses this.
            let _ = self.write(now, key);
        }
        let entry = &mut self.entries[number];
        entry.end();
        entry.output = Vec::new();
        let memory = std::mem::take(&mut entry.memory);
        self.memory.replace(memory, MemoryUse::default());
    }
}
