//! The reading of the log: of which stream, and by what.

use tokio::sync::mpsc;

use super::link::Link;
use super::reader::{Progress, Reader, Reading};
use super::streams::StreamState;
use crate::node::Start;

/// Messages of the log that wait for the driver.
const READ_AHEAD: usize = 64;

/// The reading of the log.
#[derive(Default)]
pub(super) struct Log {
    reader: Option<Reader>,
    pub(super) readings: Option<mpsc::Receiver<Reading>>,
    /// When the stream that is read was created, unix ns; 0 = none.
    pub(super) created_ns: u64,
    /// True until the first look-up on a new connection.
    pub(super) is_new: bool,
    progress: Progress,
    /// Up to where it was applied when it was last looked up.
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
        self.progress.note(sequence);
    }

    pub(super) fn stop(&mut self) {
        (self.reader, self.readings) = (None, None);
        self.progress = Progress::default();
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
        self.progress.has_stalled(stream, applied) || is_shorter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ClusterStream;

    #[test]
    fn a_server_is_behind_if_it_lacks_what_was_applied_before_it_was_asked() {
        let ending = |last| {
            let info = ClusterStream::default();
            StreamState {
                created_ns: 1,
                first: 1,
                last,
                last_ms: 0,
                server_ms: 0,
                info,
                doubt: None,
            }
        };
        let mut log = Log::default();
        // Two messages came while the answer was on its way.
        for (sequence, last) in [(5, 3), (9, 7), (12, 9)] {
            log.note(sequence);
            assert!(!log.is_behind(&ending(last), sequence), "{sequence}");
        }
        assert!(log.is_behind(&ending(11), 12));
        assert!(!log.is_behind(&ending(12), 12));
    }
}
