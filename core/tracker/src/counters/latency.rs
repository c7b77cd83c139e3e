//! Response times in fixed buckets.

use std::time::Duration;

/// A histogram of response times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Responses by the bounds of [`Latency::BOUNDS_US`]; the last bucket has those above all bounds.
    pub buckets: [u64; Self::BOUNDS_US.len() + 1],
    /// The sum of all response times, nanoseconds.
    pub sum_ns: u64,
}

impl Latency {
    /// The upper bound of each bucket, microseconds.
    pub const BOUNDS_US: [u32; 13] =
        [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000];

    /// Counts `responses` that took `time` each.
    #[inline]
    pub fn observe(&mut self, time: Duration, responses: u64) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let is_longer = |bound: &&u32| time_ns > u64::from(**bound) * 1000;
        let bucket = Self::BOUNDS_US.iter().take_while(is_longer).count();
        self.buckets[bucket] += responses;
        self.sum_ns = self.sum_ns.wrapping_add(time_ns.wrapping_mul(responses));
    }

    /// Returns the number of responses.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(to, from)| *to += from);
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        let mut latency = Latency::default();
        for (us, answers) in [(0, 1), (5, 2), (6, 4), (100_000, 8), (100_001, 16)] {
            latency.observe(Duration::from_micros(us), answers);
        }
        assert_eq!((latency.buckets[0], latency.buckets[1]), (3, 4));
        assert_eq!((latency.buckets[12], latency.buckets[13], latency.count()), (8, 16, 31));
        let mut sum = latency;
        sum.add(&latency);
        assert_eq!((sum.count(), sum.sum_ns), (62, 2 * latency.sum_ns));
        assert_eq!(latency.sum_ns, (10 + 24 + 800_000 + 1_600_016) * 1000);
    }
}
