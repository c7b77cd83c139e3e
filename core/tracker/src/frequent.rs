//! The most frequent of many keys, in a table with a bound.

/// A Misra-Gries summary of recent samples: any key with more than one in `MAX` + 1 of them is in the table, however
/// many others there are, and its count is at most that share too low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frequent<K, const MAX: usize> {
    counts: Vec<(K, u32)>,
    /// All samples.
    total: u32,
}

/// Samples after which all counts are halved, so that the past fades.
const FADE_AFTER: u32 = 8192 * 64;

impl<K, const MAX: usize> Default for Frequent<K, MAX> {
    fn default() -> Self {
        Self { counts: Vec::new(), total: 0 }
    }
}

impl<K: Copy + Eq, const MAX: usize> Frequent<K, MAX> {
    /// Counts some samples of `key`; `None` = of no key. Returns a lower bound of its count.
    pub(crate) fn count(&mut self, key: Option<K>, samples: u32) -> u32 {
        self.total = self.total.saturating_add(samples);
        if self.total >= FADE_AFTER {
            self.total /= 2;
            self.lower(|count| count / 2);
        }
        key.map_or(0, |key| self.note(key, samples))
    }

    fn note(&mut self, key: K, samples: u32) -> u32 {
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| *known == key) {
            *count += samples;
            return *count;
        }
        if self.counts.len() < MAX {
            self.counts.push((key, samples));
        } else {
            self.lower(|count| count.saturating_sub(samples));
        }
        samples
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds another worker's samples.
    pub fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        for (key, samples) in &other.counts {
            self.note(*key, *samples);
        }
    }

    /// Returns the keys in the table, with their recent samples.
    pub fn counts(&self) -> &[(K, u32)] {
        &self.counts
    }

    /// Returns the number of recent samples, also of keys that are not in the table.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of those that are not in [`Self::counts`].
    pub fn others(&self) -> u32 {
        self.counts.iter().fold(self.total, |rest, (_, count)| rest.saturating_sub(*count))
    }

    fn lower(&mut self, to: impl Fn(u32) -> u32) {
        self.counts.iter_mut().for_each(|(_, count)| *count = to(*count));
        self.counts.retain(|(_, count)| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_frequent_key_in_a_crowd() {
        let mut frequent = Frequent::<u32, 16>::default();
        for stranger in 0..20_000 {
            frequent.count(Some(1 + stranger), 1);
            if stranger % 10 == 0 {
                frequent.count(Some(0), 1);
            }
        }
        assert!(frequent.counts().len() <= 16 && frequent.total() == 22_000);
        let count = frequent.counts().iter().find(|(key, _)| *key == 0).map(|(_, count)| *count);
        assert!(count.is_some_and(|count| count > 2000 - 22_000 / 17), "{count:?}");
    }

    #[test]
    fn the_past_fades_and_workers_add_up() {
        let [mut one, mut other] = [Frequent::<&str, 64>::default(), Frequent::default()];
        one.count(Some("past"), 100);
        (0..20).for_each(|_| _ = one.count(Some("present"), FADE_AFTER / 2));
        assert_eq!(one.counts().len(), 1);
        let before = one.total();
        other.count(Some("past"), 50);
        other.count(None, 7);
        one.add(&other);
        assert_eq!((one.counts()[1], one.total()), (("past", 50), before + 57));
    }
}
