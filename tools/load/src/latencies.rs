//! A histogram of response times. Bucket widths grow with the values, so it has a fixed size and a
//! relative error of at most 0.4 %.

use std::fmt;
use std::time::Duration;

/// Buckets for each power of two.
const FINE: u64 = 256;
const FINE_BITS: u32 = FINE.trailing_zeros();
/// Covers all of `u64`; values below [`FINE`] have a bucket each.
const BUCKETS: usize = (64 - FINE_BITS as usize + 1) * FINE as usize;

/// A histogram of durations.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Box<[u64]>,
    total: u64,
    sum_ns: u128,
    max: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), total: 0, sum_ns: 0, max: Duration::ZERO }
    }
}

impl Latencies {
    /// Adds a duration.
    pub fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanoseconds)) {
            *count += 1;
        }
        self.total += 1;
        self.sum_ns += u128::from(nanoseconds);
        self.max = self.max.max(latency);
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.sum_ns, self.max) = (0, 0, Duration::ZERO);
    }

    /// Returns the mean; 0 if empty.
    pub fn mean(&self) -> Duration {
        let mean = self.sum_ns / u128::from(self.total.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Returns the quantile `part`, from 0 to 1, at most 0.4 % too high; `None` if empty.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let rank = ((self.total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= rank
        };
        let bucket = self.counts.iter().position(reached)?;
        Some(Duration::from_nanos(upper(bucket)).min(self.max))
    }

    /// Returns the fraction of values, from 0 to 1, above `bound`, accurate to 0.4 % of it; 0 if
    /// empty.
    pub fn part_above(&self, bound: Duration) -> f64 {
        let nanoseconds = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let above: u64 = self.counts.iter().skip(bucket(nanoseconds) + 1).sum();
        above as f64 / self.total.max(1) as f64
    }

    /// Returns the maximum.
    pub fn max(&self) -> Duration {
        self.max
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |latency: Duration| latency.as_secs_f64() * 1e3;
        let part = |part| milliseconds(self.quantile(part).unwrap_or_default());
        let max = milliseconds(self.max);
        write!(f, "p50 {:.3} ms, p99 {:.3} ms, max {max:.3} ms", part(0.5), part(0.99))
    }
}

fn bucket(value: u64) -> usize {
    let power = value.max(FINE).ilog2() - FINE_BITS;
    // The first power's buckets also hold values below FINE.
    (u64::from(power) * FINE + (value >> power)) as usize
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket / FINE).saturating_sub(1);
    let fine = bucket - power * FINE;
    ((fine + 1) << power).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn bucket_bounds_are_within_the_error() {
        let mut random = Random::new(1);
        let edges = (0..64).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
        let others = (0..100_000).map(|n| random.next() >> (n % 64));
        for value in edges.chain(others).chain([u64::MAX]).collect::<Vec<u64>>() {
            let bucket = bucket(value);
            assert!(bucket < BUCKETS, "{value}");
            let upper = upper(bucket);
            assert!(value <= upper && upper - value <= value / FINE, "{value}: {upper}");
        }
    }

    #[test]
    fn quantiles_match_a_sorted_list() {
        let mut random = Random::new(2);
        let mut latencies = Latencies::default();
        let mut list = Vec::new();
        for n in 0..10_000 {
            let latency = Duration::from_nanos(random.next() >> (30 + n % 30));
            latencies.record(latency);
            list.push(latency);
        }
        list.sort_unstable();
        for part in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0] {
            let rank = ((10_000.0 * part) as usize).max(1);
            let (exact, found) = (list[rank - 1], latencies.quantile(part).unwrap());
            assert!(found >= exact && found <= exact + exact / 256, "{part}: {exact:?} {found:?}");
            // Values in the same bucket do not count as above.
            let above =
                |bound| list.iter().filter(|latency| **latency > bound).count() as f64 / 1e4;
            let found = latencies.part_above(exact);
            assert!(
                found <= above(exact) && found >= above(exact + exact / 128),
                "{part}: {found}"
            );
        }
        assert_eq!(latencies.max(), list[9_999]);
        assert_eq!(latencies.mean(), list.iter().sum::<Duration>() / 10_000);
        assert_eq!(Latencies::default().quantile(0.5), None);
        assert_eq!(Latencies::default().part_above(Duration::ZERO), 0.0);
    }

    #[test]
    fn merged_halves_equal_the_whole() {
        let mut random = Random::new(3);
        let (mut whole, mut halves) =
            (Latencies::default(), [(); 2].map(|()| Latencies::default()));
        for n in 0..1000 {
            let latency = Duration::from_nanos(random.next() >> 40);
            whole.record(latency);
            halves[n % 2].record(latency);
        }
        let [mut first, second] = halves;
        first.merge(&second);
        for part in [0.1, 0.5, 0.99] {
            assert_eq!(first.quantile(part), whole.quantile(part));
        }
        assert_eq!((first.max(), first.mean()), (whole.max(), whole.mean()));
        first.clear();
        assert_eq!(
            (first.quantile(0.5), first.max(), first.mean()),
            (None, Duration::ZERO, Duration::ZERO)
        );
    }
}
