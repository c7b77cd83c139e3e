//! The journal of the swarms: peers survive a kill, a restart and a power failure.
//!
//! A journal is a directory of segments. A [`Writer`] appends two things, mixed: changes of peers as they
//! happen, and a walk over the whole store that never ends, one round in a few minutes. A reader that starts at
//! the last complete round finds everything, so older segments are deleted. [`Journal`] reads it back.
#![forbid(unsafe_code)]

mod disk;
mod inspect;
mod lock;
mod log;
mod plan;
mod reader;
mod rounds;
mod scan;
mod segment;
mod shown;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

use replication::Now;

pub use disk::{Directory, Disk, SegmentFile};
pub use inspect::{Inspection, RoundInfo, SegmentInfo, inspect};
pub use lock::Lock;
pub use reader::Journal;
pub use shown::JournalStatus;
pub use status::{Failure, Figures, KINDS, SKIPPED, State, Status};
pub use stream::{Milestone, NextSessions, Receiver, SendOrders, StreamError, TakeSessions, send};
pub use writer::Writer;

/// Appends the next body of sessions, until there are no more: then it returns false, and the next call
/// begins anew. The flag says that nothing changes any more.
pub type SessionSource = dyn FnMut(Now, bool, &mut Vec<u8>) -> bool + Send;

/// Takes a body of sessions. Gets the seconds that count as passed since it was written, and whether it may
/// be the last thing that its writer wrote.
pub type SessionSink = dyn Fn(u32, bool, &[u8]) + Send + Sync;

/// Settings that may change while a journal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Duration of a round.
    pub round: Duration,
    /// Interval at which written data is forced to the disk; zero = only before segments are deleted.
    pub sync: Duration,
    /// The most bytes on the disk; 0 = unlimited. A round that would take more than half of them hurries
    /// to its end, because that frees the round before it. At the bound, the journal stops.
    pub bytes_max: u64,
}
