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
    /// Whether the node has not heard of the log since the connection was made.
    pub(super) is_new: bool,
    progress: Progress,
}

impl Log {
    /// Reads the stream from `start` on.
    pub(super) fn read(&mut self, link: &Link, start: Start) {
        self.stop();
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        self.reader = Some(Reader::start(link, link.subjects.stream("d"), start, sender));
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

    /// Takes what a look-up found, and up to where the log was applied. Returns whether the node is to begin to
    /// read: it is another stream or ends before that, the connection is new, or nothing reads or comes.
    pub(super) fn look_at(&mut self, stream: &StreamState, applied: u64) -> bool {
        let is_other = stream.created_ns != self.created_ns;
        let has_stalled = self.progress.has_stalled(stream, applied);
        let is_behind = stream.last < applied || has_stalled;
        let begins = is_other || self.is_new || self.reader.is_none() || is_behind;
        (self.created_ns, self.is_new) = (stream.created_ns, false);
        begins
    }
}
