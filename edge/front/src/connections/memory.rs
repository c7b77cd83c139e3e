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

/// The memory that buffers take: of one connection, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryUse {
    /// Bytes of unfinished requests and messages.
    read: usize,
    /// Bytes of output, without that of other clients.
    unsent: usize,
    /// Bytes of output that other clients sent.
    relayed: usize,
    /// Bytes of torrents.
    torrents: usize,
}

/// One of the kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryKind {
    Read,
    Unsent,
    Torrents,
}

impl MemoryKind {
    fn drop_reason(self) -> DropReason {
        match self {
            Self::Read => DropReason::ReadMemory,
            Self::Unsent => DropReason::UnsentMemory,
            Self::Torrents => DropReason::TorrentMemory,
        }
    }
}

impl MemoryLimits {
    fn of(&self, kind: MemoryKind) -> usize {
        match kind {
            MemoryKind::Read => self.read_max,
            MemoryKind::Unsent => self.unsent_max,
            MemoryKind::Torrents => self.torrents_max,
        }
    }
}

impl MemoryUse {
    /// Returns true if torrents were announced.
    pub(super) fn has_torrents(self) -> bool {
        self.torrents > 0
    }

    /// Returns the bytes for which a connection can be closed.
    fn of(self, kind: MemoryKind) -> usize {
        match kind {
            MemoryKind::Read => self.read,
            MemoryKind::Unsent => self.unsent,
            MemoryKind::Torrents => self.torrents,
        }
    }

    /// Returns the bytes that count against the limit.
    fn limited(self, kind: MemoryKind) -> usize {
        let relayed = if kind == MemoryKind::Unsent { self.relayed } else { 0 };
        self.of(kind) + relayed
    }
}

impl Connections {
    /// Sets how many bytes of unfinished input a connection's task holds. Closes the largest holders if
    /// all connections together hold too many.
    pub(crate) fn hold_input(&mut self, now: Tick, key: ConnectionKey, bytes: usize) {
        let Some(slot) = self.slot_mut(key) else { return };
        let read = bytes + slot.socket.held_bytes();
        // The usual case: an idle connection holds nothing, before and after.
        if slot.memory.read != read {
            self.set_memory(key.place(), |memory| memory.read = read);
            self.keep_limits(now);
        }
    }

    /// Sets how many bytes the torrents of a WebSocket take. Closes the largest holders if all
    /// connections together hold too many.
    pub(crate) fn hold_torrents(&mut self, now: Tick, key: ConnectionKey, bytes: usize) {
        if self.slot(key).is_some() {
            self.set_memory(key.place(), |memory| memory.torrents = bytes);
            self.keep_limits(now);
        }
    }

    /// Counts the output of a slot after it has changed.
    #[inline]
    pub(super) fn count_output(&mut self, number: usize) {
        let Some(slot) = self.slots.get(number) else { return };
        let held = slot.output.capacity() + slot.socket.unsent_bytes();
        // Memory that waits to be filled is part of what others take, if they take any.
        let own = match slot.relayed as usize {
            0 => held,
            relayed => slot.unsent().saturating_sub(relayed),
        };
        self.set_memory(number, |memory| {
            memory.unsent = own;
            memory.relayed = held.saturating_sub(own);
        });
    }

    /// Returns true if messages of other clients take a quarter of the memory for output. Writes all output
    /// that sockets take before it first returns true.
    #[inline]
    pub(super) fn is_relay_crowded(&mut self, now: Tick) -> bool {
        if self.is_relay_crowded {
            self.update_relay_crowded();
        } else if self.memory.relayed > self.relay_crowded_bytes() {
            self.is_relay_crowded = true;
            self.write_all(now);
            self.update_relay_crowded();
        }
        self.is_relay_crowded
    }

    /// Clears `is_relay_crowded` if a quarter of that quarter is free again.
    pub(super) fn update_relay_crowded(&mut self) {
        self.is_relay_crowded &= self.memory.relayed > self.relay_crowded_bytes() / 4 * 3;
    }

    /// Returns true if messages of other clients take less than half of the memory for output.
    #[inline]
    pub(super) fn has_relay_memory(&self) -> bool {
        self.memory.relayed < self.memory_limits.unsent_max / 2
    }

    fn relay_crowded_bytes(&self) -> usize {
        self.memory_limits.unsent_max / 4
    }

    /// Changes a slot's counted memory.
    #[inline]
    fn set_memory(&mut self, number: usize, change: impl FnOnce(&mut MemoryUse)) {
        // An ended connection's memory is freed with its task: changes do not count.
        let slot = self.slots.get_mut(number).filter(|slot| slot.phase != Phase::Ended);
        let Some(slot) = slot else { return };
        let before = slot.memory;
        change(&mut slot.memory);
        let after = slot.memory;
        self.memory.read = self.memory.read - before.read + after.read;
        self.memory.unsent = self.memory.unsent - before.unsent + after.unsent;
        self.memory.relayed = self.memory.relayed - before.relayed + after.relayed;
        self.memory.torrents = self.memory.torrents - before.torrents + after.torrents;
    }

    /// Closes the largest holders if the connections together hold too much. Call it after
    /// [`Connections::count_output`] where output may have grown.
    #[inline]
    pub(super) fn keep_limits(&mut self, now: Tick) {
        if self.memory.read > self.memory_limits.read_max {
            self.close_largest(now, MemoryKind::Read);
        }
        if self.memory.torrents > self.memory_limits.torrents_max {
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

    /// Stops counting the memory of a slot that was removed.
    pub(super) fn uncount_memory(&mut self, memory: MemoryUse) {
        self.memory.read -= memory.read;
        self.memory.unsent -= memory.unsent;
        self.memory.relayed -= memory.relayed;
        self.memory.torrents -= memory.torrents;
    }

    /// Writes the output that this turn of the reactor has brought: what sockets take is not unsent.
    #[cold]
    fn write_all(&mut self, now: Tick) {
        for at in 0..self.dirty.len() {
            let number = self.dirty.get(at).and_then(|number| self.slots.get(*number));
            let slot = number.filter(|slot| slot.is_dirty && slot.writer.is_none());
            if let Some(key) = slot.map(|slot| slot.key) {
                // An error shows again when the task reads.
                let _ = self.write(now, key);
            }
        }
    }

    /// Closes the connections that hold the most, until a quarter of the memory is free.
    #[cold]
    fn close_largest(&mut self, now: Tick, kind: MemoryKind) {
        let max = self.memory_limits.of(kind);
        let holders = self.slots.iter().filter(|(_, slot)| slot.memory.of(kind) > 0);
        let mut holders: Vec<(usize, usize)> =
            holders.map(|(number, slot)| (slot.memory.of(kind), number)).collect();
        holders.sort_unstable_by(|one, other| other.cmp(one));
        for (_, number) in holders {
            if self.memory.limited(kind) <= max / 4 * 3 {
                return;
            }
            let text = "the tracker has no memory for this connection";
            self.close_now(now, number, kind.drop_reason(), text);
        }
    }

    /// Ends a connection; a WebSocket's client gets `text`. Its task drops the input that it holds when it
    /// wakes.
    pub(super) fn close_now(&mut self, now: Tick, number: usize, reason: DropReason, text: &str) {
        let Some(slot) = self.slots.get_mut(number) else { return };
        slot.counters(|counters| counters.drop(reason));
        let key = slot.key;
        if slot.can_receive() && slot.output.is_empty() {
            ws::close(slot.output.bytes_mut(), CloseCode::TRY_AGAIN, text);
            // A client whose socket takes no more misses this.
            let _ = self.write(now, key);
        }
        if let Some(slot) = self.slots.get_mut(number) {
            slot.end();
            slot.output = Default::default();
            let memory = std::mem::take(&mut slot.memory);
            self.uncount_memory(memory);
        }
    }
}
