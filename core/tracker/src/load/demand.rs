//! The clients of a service, counted by the announces that they have been asked for.

use std::collections::BTreeMap;

/// Announces that clients will make, because responses asked for them. A client that heeds its interval is counted
/// once, whatever the interval was when it was asked: the count does not change when intervals do, only when clients
/// come and go. That is why a controller that follows it does not swing, although its decisions take effect only when
/// clients return.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// The second at which they are expected, and their number.
    expected: BTreeMap<u64, u64>,
    total: u64,
}

impl Demand {
    /// Adds clients that were told to return `interval_s` after `now_s`.
    pub(super) fn add(&mut self, now_s: u64, interval_s: u32, clients: u64) {
        if clients > 0 {
            *self.expected.entry(now_s + u64::from(interval_s)).or_default() += clients;
            self.total += clients;
        }
    }

    /// Returns the number of clients that are expected after `now_s`. Those before have returned, or will not.
    pub(super) fn clients(&mut self, now_s: u64) -> u64 {
        while let Some(first) = self.expected.first_entry().filter(|first| *first.key() <= now_s) {
            self.total -= first.remove();
        }
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_count_until_they_are_expected() {
        let mut demand = Demand::default();
        demand.add(0, 30, 5);
        demand.add(10, 60, 7);
        demand.add(20, 10, 1);
        assert_eq!([20, 29, 30, 69, 70].map(|now_s| demand.clients(now_s)), [13, 13, 7, 7, 0]);
    }
}
