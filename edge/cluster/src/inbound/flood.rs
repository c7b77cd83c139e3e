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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_dropped_and_all_else_is_not() {
        let mut flood = Flood::default();
        let most = 512 * 1024;
        let taken = (0..1000).filter(|_| flood.take(5000, most).is_ok()).count() as u64;
        assert_eq!(taken, BURST / most as u64);
        assert!(flood.take(4000, most).is_err());
        // A walk at its full rate, beside changes.
        let mut flood = Flood::default();
        assert!((0..10_000).all(|tick| flood.take(tick * 10, 300_000).is_ok()));
    }
}
