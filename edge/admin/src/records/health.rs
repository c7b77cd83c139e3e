//! State of the records, for metrics and the API.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

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
    /// Why the last write failed, until one succeeds.
    failing: Mutex<Option<RecordsError>>,
}

impl RecordsHealth {
    /// Returns the number of failures that need attention: all but conflicts, full queues and upgrades.
    pub(crate) fn serious_failures(&self) -> u64 {
        let harmless = RecordsError::HARMLESS.map(|failure| failure.index());
        let all = self.failures.iter().enumerate().filter(|(at, _)| !harmless.contains(at));
        all.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn failures_by_label(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.failures.iter().map(|count| count.load(Ordering::Relaxed));
        let former = RecordsError::FORMER_LABELS.into_iter().map(|label| (label, 0));
        RecordsError::LABELS.into_iter().zip(counts).chain(former)
    }

    /// Returns why the last write failed, or `None` if it succeeded.
    pub(crate) fn failing(&self) -> Option<RecordsError> {
        self.failing.lock().clone()
    }

    /// Notes whether a write failed.
    pub(super) fn set_failing(&self, why: Option<&RecordsError>) {
        *self.failing.lock() = why.cloned();
    }

    pub(crate) fn count(&self, failure: &RecordsError) {
        if let Some(count) = self.failures.get(failure.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
