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
    pub(super) progress: Progress,
}

impl Log {
    /// Reads the stream from `start` on.
    pub(super) fn read(&mut self, link: &Link, start: Start) {
        self.stop();
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        self.reader = Some(Reader::start(link, link.subjects.stream("d"), start, sender));
        self.readings = Some(receiver);
    }

    pub(super) fn stop(&mut self) {
        (self.reader, self.readings) = (None, None);
        self.progress = Progress::default();
    }

    /// Takes what a look-up found. Returns whether the node is to begin to read: it is another stream, the
    /// connection is new, or nothing reads.
    pub(super) fn look_at(&mut self, stream: &StreamState) -> bool {
        let is_other = stream.created_ns != self.created_ns;
        let begins = is_other || self.is_new || self.reader.is_none();
        (self.created_ns, self.is_new) = (stream.created_ns, false);
        begins
    }
}
