//! The most frequent of many keys, in a table with a bound.

/// A Misra-Gries summary: any key with more than one in `MAX` + 1 of the samples is in the table, however many others
/// there are, and its count is at most that share too low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frequent<K, const MAX: usize> {
    counts: Vec<(K, u32)>,
}

impl<K, const MAX: usize> Default for Frequent<K, MAX> {
    fn default() -> Self {
        Self { counts: Vec::new() }
    }
}

impl<K: Copy + Eq, const MAX: usize> Frequent<K, MAX> {
    /// Counts some samples of `key`. Returns a lower bound of its count.
    pub(crate) fn count(&mut self, key: K, samples: u32) -> u32 {
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

    /// Halves all counts.
    pub(crate) fn fade(&mut self) {
        self.lower(|count| count / 2);
    }

    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }

    /// Returns the keys in the table, with their counts.
    pub(crate) fn counts(&self) -> &[(K, u32)] {
        &self.counts
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
            frequent.count(1 + stranger, 1);
            if stranger % 10 == 0 {
                frequent.count(0, 1);
            }
        }
        assert!(frequent.counts().len() <= 16);
        let count = frequent.counts().iter().find(|(key, _)| *key == 0).map(|(_, count)| *count);
        assert!(count.is_some_and(|count| count > 2000 - 22_000 / 17), "{count:?}");
    }
}
