//! A bound on what one node may send.

use crate::seam::DropReason;

/// Bytes per second: four million changes, and three times a walk that catches up.
const BYTES_PER_S: u64 = 64 << 20;
/// Bytes that may come at once.
const BURST: u64 = 2 * BYTES_PER_S;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Flood {
    left: u64,
    at_ms: u64,
}

impl Default for Flood {
    fn default() -> Self {
        Self { left: BURST, at_ms: 0 }
    }
}

impl Flood {
    /// Takes a message's bytes. Fails if that is too much. Clocks may go backwards.
    pub(super) fn take(&mut self, now_ms: u64, bytes: usize) -> Result<(), DropReason> {
        let passed_ms = now_ms.saturating_sub(self.at_ms).min(1000 * BURST / BYTES_PER_S);
        self.at_ms = now_ms;
        self.left = (self.left + passed_ms * BYTES_PER_S / 1000).min(BURST);
        self.left = self.left.checked_sub(bytes as u64).ok_or(DropReason::Rate)?;
        Ok(())
    }
}
