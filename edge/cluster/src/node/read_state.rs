//! The progress of a node in reading the log.

/// The messages that a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    /// 0 = it has none.
    pub(super) last: u64,
    /// When the last one was stored.
    pub(super) last_ms: u64,
}

/// How far the node is with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadState {
    /// It has not been looked up.
    Unknown,
    /// It has been looked up, and is read once heartbeats have been collected.
    Waiting(Extent),
    /// It is read, and was applied up to `until` when everything is known.
    Behind { until: u64 },
    /// It was applied up to where it ended once.
    Current,
}
