//! The reading of the log: of which stream, by what, and whether it has stalled.
//!
//! The server that has the consumer may be behind the others, such as after a partition, and reports that there is
//! nothing to read: that is no error. A new consumer may be at another server.

use tokio::sync::mpsc;
use tracing::info;

use super::link::Link;
use super::reader::{Reader, Reading};
use super::streams::StreamState;
use crate::node::Start;

/// Messages of the log that wait for the driver.
const READ_AHEAD: usize = 64;

#[derive(Default)]
pub(super) struct Log {
    reader: Option<Reader>,
    pub(super) readings: Option<mpsc::Receiver<Reading>>,
    /// When the stream that is read was created, unix ns; 0 = none.
    created_ns: u64,
    /// True until the first look-up on a new connection.
    pub(super) is_new: bool,
    /// The sequence of the last message that came.
    came: u64,
    /// The same when the stream was last looked up.
    came_before: u64,
    /// Where the stream ended then; 0 if it was empty.
    ended: u64,
    /// Up to where it was applied then.
    applied: u64,
}

impl Log {
    /// Reads the stream from `start` on.
    pub(super) fn read(&mut self, link: &Link, start: Start) {
        self.stop();
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        self.reader = Some(Reader::start(link, link.subjects.stream(), start, sender));
        self.readings = Some(receiver);
    }

    /// Notes that a message came.
    pub(super) fn note(&mut self, sequence: u64) {
        self.came = sequence;
    }

    pub(super) fn stop(&mut self) {
        (self.reader, self.readings) = (None, None);
        (self.came, self.came_before, self.ended) = (0, 0, 0);
    }

    /// Takes what a look-up found, and up to where the log is applied now. Returns whether the node is to begin to
    /// read: it is another stream, the connection is new, nothing reads, or [`Self::is_behind`] says so.
    pub(super) fn look_at(&mut self, stream: &StreamState, applied: u64) -> bool {
        let is_other = stream.created_ns != self.created_ns;
        let begins = is_other || self.is_new || self.reader.is_none();
        (self.created_ns, self.is_new) = (stream.created_ns, false);
        // Not of the other stream.
        self.applied *= u64::from(!is_other);
        self.is_behind(stream, applied) || begins
    }

    /// Returns whether nothing comes, or the server that answered is behind: the stream ends before what was applied
    /// when it was last looked up. What was applied since then may be later than the answer.
    fn is_behind(&mut self, stream: &StreamState, applied: u64) -> bool {
        let is_shorter = stream.last < self.applied;
        self.applied = applied;
        self.has_stalled(stream, applied) || is_shorter
    }

    /// Returns whether reading has stopped without an error: nothing came since the last look-up of what the stream had
    /// then.
    fn has_stalled(&mut self, stream: &StreamState, applied: u64) -> bool {
        let has_stalled = self.came == self.came_before && self.came.max(applied) < self.ended;
        self.came_before = self.came;
        self.ended = if stream.last < stream.first { 0 } else { stream.last };
        if has_stalled {
            info!(why = "nothing came of what the stream has", "reading the log again");
        }
        has_stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ClusterStream;

    fn ending(last: u64) -> StreamState {
        let info = ClusterStream::default();
        StreamState { created_ns: 1, first: 1, last, last_ms: 0, server_ms: 0, info, doubt: None }
    }

    #[test]
    fn a_server_is_behind_if_it_lacks_what_was_applied_before_it_was_asked() {
        let mut log = Log::default();
        // Two messages came while the answer was on its way.
        for (sequence, last) in [(5, 3), (9, 7), (12, 9)] {
            log.note(sequence);
            assert!(!log.is_behind(&ending(last), sequence), "{sequence}");
        }
        assert!(log.is_behind(&ending(11), 12));
        assert!(!log.is_behind(&ending(12), 12));
    }

    #[test]
    fn reading_has_stalled_if_nothing_comes_of_what_there_was() {
        let mut log = Log::default();
        // It has only been looked up.
        assert!(!log.has_stalled(&ending(9), 4));
        // One of them came meanwhile, then none.
        log.note(5);
        assert!(!log.has_stalled(&ending(12), 5));
        assert!(log.has_stalled(&ending(12), 5));
        log.stop();
        assert!(!log.has_stalled(&ending(12), 5));
        // All of them came.
        log.note(12);
        for _ in 0..3 {
            assert!(!log.has_stalled(&ending(12), 12));
        }
        // The new ones have had no time.
        assert!(!log.has_stalled(&ending(13), 12));
        assert!(log.has_stalled(&ending(13), 12));
    }
}
