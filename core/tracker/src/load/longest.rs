//! The longest stretch whose clients may not have returned yet.

use std::collections::VecDeque;

use super::Stretch;

/// Stretches that were in force, each longer than those after it: the maximum of a sliding window.
#[derive(Clone, Debug, Default)]
pub(super) struct Longest {
    /// The last second of each, and the stretch.
    last: VecDeque<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    last_s: u64,
    stretch: Stretch,
}

impl Longest {
    pub(super) fn note(&mut self, now_s: u64, stretch: Stretch) {
        while self.last.back().is_some_and(|held| held.stretch <= stretch) {
            self.last.pop_back();
        }
        self.last.push_back(Held { last_s: now_s, stretch });
    }

    /// Returns the longest of the stretches that were in force within the lifetime that belongs to each, where
    /// `lifetime_s` is that of peers whose intervals are not stretched.
    pub(super) fn get(&mut self, now_s: u64, lifetime_s: u32) -> Stretch {
        while let Some(first) = self.last.front() {
            if self.last.len() == 1
                || now_s - first.last_s <= u64::from(first.stretch.of(lifetime_s))
            {
                return first.stretch;
            }
            self.last.pop_front();
        }
        Stretch::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_counts_until_its_clients_have_returned() {
        let mut longest = Longest::default();
        let mut at = |now_s, permille| {
            longest.note(now_s, Stretch(permille));
            longest.get(now_s, 100).0
        };
        assert_eq!(at(0, 1000), 1000);
        assert_eq!(at(10, 3000), 3000, "it rises at once");
        assert_eq!(at(20, 2000), 3000);
        assert_eq!(at(200, 1500), 3000);
        assert_eq!(at(310, 1000), 3000);
        // 300 s after 10 s the first is over; the second was last in force at 20 s, for 200 s.
        assert_eq!(at(311, 1000), 1500);
        assert_eq!(at(350, 1000), 1500);
        assert_eq!(at(351, 1000), 1000);
    }
}
