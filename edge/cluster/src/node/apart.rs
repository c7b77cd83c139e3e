//! Times for which a node was apart from the others.
//!
//! What a node reads after a long time is older than what the others know. A later message may take it back, so it is
//! not contradicted until all is read.

use crate::inbound::late::TELL_AGAIN_MS;
use crate::outbound::MERGE_WAIT_MS;

/// The times of one node, by the steady clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Apart {
    /// When the connection was lost, until the log is looked up again.
    cut_ms: Option<u64>,
    /// Since when the node was apart for [`TELL_AGAIN_MS`] or longer, until the log is applied.
    since_ms: Option<u64>,
    /// When the threads that merge have caught up.
    joined_ms: Option<u64>,
}

impl Apart {
    /// Notes that the connection is lost.
    pub(super) fn cut(&mut self, now_ms: u64) {
        self.cut_ms.get_or_insert(now_ms);
        self.joined_ms = None;
    }

    /// Notes that the log can be read again. Returns true if the node was apart for long.
    pub(super) fn looked_up(&mut self, now_ms: u64) -> bool {
        let cut_ms = self.cut_ms.take().filter(|at_ms| now_ms >= at_ms + TELL_AGAIN_MS);
        self.since_ms = self.since_ms.or(cut_ms);
        cut_ms.is_some()
    }

    /// Notes that the log is applied. Returns since when the node was apart, if that was long.
    pub(super) fn applied(&mut self, now_ms: u64) -> Option<u64> {
        self.joined_ms = self.since_ms.map(|_| now_ms + MERGE_WAIT_MS);
        self.since_ms
    }

    /// Returns true once, when the node knows what the others know.
    pub(super) fn has_joined(&mut self, now_ms: u64) -> bool {
        let has_joined = self.joined_ms.take_if(|at_ms| now_ms >= *at_ms).is_some();
        if has_joined {
            self.since_ms = None;
        }
        has_joined
    }
}
