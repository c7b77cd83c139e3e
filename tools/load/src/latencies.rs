//! Response times, of which quantiles are reported.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Values are accurate to a thousandth.
const DIGITS: u8 = 3;
/// Longer ones are counted as this long.
const LONGEST: Duration = Duration::from_secs(3600);

/// A histogram of durations.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(nanoseconds(LONGEST), DIGITS);
        Self(histogram.expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Adds a duration.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(nanoseconds(latency));
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Returns the mean; 0 if empty.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// Returns the quantile `part`, from 0 to 1; `None` if empty.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let quantile = || Duration::from_nanos(self.0.value_at_quantile(part));
        (!self.0.is_empty()).then(quantile)
    }

    /// Returns the fraction of values, from 0 to 1, above `bound`; 0 if empty.
    pub fn part_above(&self, bound: Duration) -> f64 {
        // Of an empty histogram, 100 % are below.
        1.0 - self.0.quantile_below(nanoseconds(bound))
    }

    /// Returns the maximum.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

fn nanoseconds(latency: Duration) -> u64 {
    u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)
}
