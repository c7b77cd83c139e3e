//! Datagrams lost in the last minutes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for which a loss is remembered.
const WINDOW: Duration = Duration::from_secs(600);

/// Recent losses, with the time and the number of each, and the total so far.
#[derive(Default)]
pub(super) struct Losses {
    recent: VecDeque<(Instant, u64)>,
    total: u64,
}

impl Losses {
    /// Notes that `total` have been lost so far.
    pub(super) fn add(&mut self, now: Instant, total: u64) {
        let new = total.saturating_sub(self.total);
        self.total = total;
        if new > 0 {
            self.recent.push_back((now, new));
        }
        while self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.recent.pop_front();
        }
    }

    pub(super) fn recent(&self) -> u64 {
        self.recent.iter().map(|(_, lost)| lost).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_forgotten_after_ten_minutes() {
        let (mut losses, start) = (Losses::default(), Instant::now());
        for (minute, total, recent) in
            [(0, 0, 0), (1, 5, 5), (2, 5, 5), (8, 7, 7), (12, 7, 2), (19, 7, 0)]
        {
            losses.add(start + Duration::from_secs(minute * 60), total);
            assert_eq!(losses.recent(), recent, "minute {minute}");
        }
    }
}
