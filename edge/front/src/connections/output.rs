//! The output of connections: what is appended to it, what leaves, and what does not fit.

use std::io;
use std::mem::{replace, take};

use tokio::task::AbortHandle;
use tracker::counters::DropReason;
use types::{ConnectionKey, Tick, limits};
use wire::ws::{self, CloseCode};

use super::{Connections, Entry, Phase};
use crate::buffer::{WriteOutcome, write_now};

/// Seconds that a client has to answer a close frame.
const CLOSE_S: u32 = 3;

impl Connections {
    /// Appends what `write` writes to the output of a WebSocket, in response to its client. Returns false if
    /// the connection is gone or is closing.
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Tick,
        to: ConnectionKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(entry) = self.append(to, write) else { return false };
        if entry.has_overflow() {
            self.handle_overflow(now, to);
        }
        self.count_output(to.place());
        self.keep_limits(now);
        true
    }

    /// Appends what `write` writes, a message of another client, to the output of a WebSocket. Returns false if
    /// the connection is gone or is closing. Drops the message, and returns false, if its client has not read
    /// what others have sent before.
    #[inline]
    pub(crate) fn relay(
        &mut self,
        now: Tick,
        to: ConnectionKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        if !self.has_relay_room(now, to) {
            let entry = self.find(to).filter(|entry| entry.can_receive());
            entry.into_iter().for_each(|entry| entry.listener.ws().drop(DropReason::RelayUnread));
            return false;
        }
        let before = self.find(to).map_or(0, |entry| entry.output.len());
        let Some(entry) = self.append(to, write) else { return false };
        entry.relayed += entry.output.len().saturating_sub(before) as u32;
        self.count_output(to.place());
        self.keep_limits(now);
        true
    }

    /// Appends what `write` writes to the output of a WebSocket, and returns its entry. Returns `None` if the
    /// connection is gone or is closing.
    #[inline]
    fn append(
        &mut self,
        to: ConnectionKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&mut Entry> {
        let number = to.place();
        let entry = self.entries.get_mut(number).filter(|entry| entry.key == to);
        let entry = entry.filter(|entry| entry.can_receive())?;
        if entry.output.is_empty() {
            entry.output = self.spare.pop().unwrap_or_default();
            if !replace(&mut entry.is_dirty, true) {
                self.dirty.push(number);
            }
        }
        write(&mut entry.output);
        Some(entry)
    }

    /// Returns true if a client may get one more message of another one. If the client is behind, its output
    /// is first written as far as its socket takes it.
    #[inline]
    fn has_relay_room(&mut self, now: Tick, to: ConnectionKey) -> bool {
        // While memory is short, those that have read all before still get messages.
        let max = if self.is_relay_crowded(now) { 0 } else { limits::RELAYED_UNREAD_MAX };
        let is_behind = |all: &Self| all.find(to).is_some_and(|entry| entry.relayed as usize > max);
        if is_behind(self) {
            self.write_unless_waited_for(now, to);
            if is_behind(self) {
                return false;
            }
        }
        self.has_relay_memory()
    }

    /// Sends a close frame, the last frame that a WebSocket gets.
    pub(crate) fn close(&mut self, now: Tick, key: ConnectionKey, code: CloseCode, reason: &str) {
        if self.send(now, key, |out| ws::close(out, code, reason))
            && let Some(entry) = self.find_mut(key)
            && entry.phase != Phase::Closing
        {
            (entry.phase, entry.deadline) = (Phase::Closing, now.after(CLOSE_S));
        }
    }

    pub(crate) fn close_websockets(&mut self, now: Tick, code: CloseCode, reason: &str) {
        let sockets = self.entries.iter().filter(|(_, entry)| entry.client.is_some());
        let keys: Vec<ConnectionKey> = sockets.map(|(_, entry)| entry.key).collect();
        keys.into_iter().for_each(|key| self.close(now, key, code, reason));
    }

    /// Returns true if a WebSocket has output for [`Connections::flush`].
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes the output of all WebSockets that have any. Returns those whose sockets take no more:
    /// the caller starts a task for each that waits, and passes it to [`Connections::set_writer`].
    pub(crate) fn flush(&mut self, now: Tick) -> Vec<ConnectionKey> {
        let mut blocked = Vec::new();
        let mut dirty = take(&mut self.dirty);
        for number in dirty.drain(..) {
            let entry = self.entries.get_mut(number);
            // Another connection's entry by now may be here twice.
            let Some(entry) = entry.filter(|entry| entry.is_dirty) else { continue };
            entry.is_dirty = false;
            if entry.writer.is_some() {
                continue;
            }
            let key = entry.key;
            if let Ok(WriteOutcome::Blocked) = self.write(now, key) {
                blocked.push(key);
            }
        }
        self.dirty = dirty;
        blocked
    }

    pub(crate) fn set_writer(&mut self, key: ConnectionKey, writer: Option<AbortHandle>) {
        self.entry_mut(key).writer = writer;
    }

    /// Writes the output of a WebSocket, unless a task waits until its socket takes more.
    pub(super) fn write_unless_waited_for(&mut self, now: Tick, key: ConnectionKey) {
        if self.find(key).is_some_and(|entry| entry.writer.is_none()) {
            // An error shows again when the task reads.
            let _ = self.write(now, key);
        }
    }

    /// Writes as much of a connection's output as its socket takes.
    pub(crate) fn write(&mut self, now: Tick, key: ConnectionKey) -> io::Result<WriteOutcome> {
        let outcome = self.write_output(now, key);
        self.count_output(key.place());
        outcome
    }

    fn write_output(&mut self, now: Tick, key: ConnectionKey) -> io::Result<WriteOutcome> {
        let entry = self.entry_mut(key);
        let (sent, outcome) = match write_now(&entry.socket, &entry.output) {
            Ok(written) => written,
            Err(error) => {
                // The task that reads finds the socket broken, too, and ends the connection.
                entry.output = Vec::new();
                return Err(error);
            }
        };
        entry.output.drain(..sent);
        if outcome == WriteOutcome::Blocked && entry.output.len() < entry.output.capacity() / 4 {
            entry.output.shrink_to_fit();
        }
        entry.counters(|counters| counters.bytes_out += sent as u64);
        entry.relayed = match outcome {
            WriteOutcome::Done => 0,
            WriteOutcome::Blocked => entry.relayed.min(entry.unsent() as u32),
        };
        entry.note_write(now, sent, outcome);
        if outcome == WriteOutcome::Done {
            let output = take(&mut entry.output);
            self.recycle(output);
        }
        Ok(outcome)
    }

    /// Handles an output whose own responses are above their limit. What the socket takes leaves at once. If
    /// that is not enough, the client reads too slowly: it gets a close frame behind what it has not read.
    fn handle_overflow(&mut self, now: Tick, key: ConnectionKey) {
        self.write_unless_waited_for(now, key);
        let Some(entry) = self.find_mut(key).filter(|entry| entry.has_overflow()) else { return };
        entry.listener.ws().drop(DropReason::SlowReader);
        let text = "messages are not read fast enough";
        ws::close(&mut entry.output, CloseCode::POLICY, text);
        (entry.phase, entry.deadline) = (Phase::Closing, now.after(CLOSE_S));
    }
}
