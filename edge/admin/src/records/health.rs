//! State of the records, for metrics and the API.

use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::RecordsError;

/// Counters and gauges of the records.
#[derive(Debug, Default)]
pub struct RecordsHealth {
    /// Transactions committed.
    pub commits: AtomicU64,
    /// Changes committed and applied.
    pub changes: AtomicU64,
    /// Changes and flushes that failed, by [`RecordsError::index`].
    pub failures: [AtomicU64; RecordsError::LABELS.len()],
    /// Counts written.
    pub counts_written: AtomicU64,
    /// Counts that could not be written yet.
    pub counts_pending: AtomicU64,
    /// Duration of the last flush of counts, microseconds.
    pub last_flush_us: AtomicU64,
    /// Seconds since the oldest pending count could first have been written; 0 if none is pending.
    pub lag_s: AtomicU64,
    /// Changes queued for the writer.
    pub changes_pending: AtomicU64,
}

impl RecordsHealth {
    /// Returns the number of failures that need attention: all but conflicts, full queues and upgrades.
    pub(crate) fn serious_failures(&self) -> u64 {
        let harmless = [
            RecordsError::Conflict,
            RecordsError::QueueFull,
            RecordsError::Upgrading,
            RecordsError::OutboxFull,
            RecordsError::Merging,
        ]
        .map(|failure| failure.index());
        let all = self.failures.iter().enumerate().filter(|(at, _)| !harmless.contains(at));
        all.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// Counts a failure.
    pub(crate) fn count(&self, failure: &RecordsError) {
        if let Some(count) = self.failures.get(failure.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
