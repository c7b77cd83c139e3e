//! Which blocks of a process have come: each counts once.

/// Gaps that are kept. Of more, blocks of the oldest one do not count when they come after all.
const GAPS_MAX: usize = 64;
/// The blocks before the first one that are expected to come yet: at most this many are in flight.
const BEFORE: u64 = 256;

/// Numbers of blocks that have come.
#[derive(Debug)]
pub(super) struct Counted {
    /// The largest one.
    up_to: u64,
    /// Those below that have not come: first and last of each gap, in order.
    gaps: Vec<(u64, u64)>,
}

impl Counted {
    /// Returns one for which `first` is about to come, and others before it may.
    pub(super) fn from(first: u64) -> Self {
        Self { up_to: first.saturating_sub(1 + BEFORE), gaps: Vec::new() }
    }

    /// Notes that a block has come. Returns whether it is the first time.
    pub(super) fn note(&mut self, number: u64) -> bool {
        if number > self.up_to {
            if number > self.up_to + 1 {
                if self.gaps.len() == GAPS_MAX {
                    self.gaps.remove(0);
                }
                self.gaps.push((self.up_to + 1, number - 1));
            }
            self.up_to = number;
            return true;
        }
        let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(&number);
        let Some(at) = self.gaps.iter().position(is_in) else { return false };
        let (first, last) = self.gaps.remove(at);
        if number < last {
            self.gaps.insert(at, (number + 1, last));
        }
        if first < number {
            self.gaps.insert(at, (first, number - 1));
        }
        self.gaps.truncate(GAPS_MAX);
        true
    }

    /// Returns how many have not come.
    pub(super) fn missing(&self) -> u64 {
        self.gaps
            .iter()
            .map(|(first, last)| (last - first).saturating_add(1))
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use primitives::Random;

    use super::*;

    #[test]
    fn each_number_counts_once() {
        let mut random = Random::new(3);
        for _ in 0..50 {
            let (mut counted, mut plain) = (Counted::from(1), BTreeSet::new());
            for _ in 0..400 {
                let number = 1 + u64::from(random.below(120));
                assert_eq!(counted.note(number), plain.insert(number));
                let most = plain.last().copied().unwrap_or_default();
                assert_eq!(counted.missing(), most - plain.len() as u64);
            }
        }
    }

    #[test]
    fn hostile_numbers_take_no_room() {
        let mut counted = Counted::from(u64::MAX);
        assert!(counted.note(u64::MAX) && !counted.note(u64::MAX) && !counted.note(0));
        let mut counted = Counted::from(1);
        for number in (1..10_000).step_by(2) {
            assert!(counted.note(number));
        }
        assert_eq!((counted.gaps.len(), counted.missing()), (GAPS_MAX, GAPS_MAX as u64));
        // Gaps that are split do not become more.
        assert!(counted.note(1 << 40) && counted.note(1 << 39) && counted.gaps.len() <= GAPS_MAX);
    }

    #[test]
    fn blocks_before_the_first_one_are_expected() {
        let mut counted = Counted::from(5000);
        assert!(counted.note(5000) && counted.note(4900) && !counted.note(4900));
        assert!(!counted.note(4000));
    }
}
