//! Requests per second over several times, as UNIT3D shows them.

/// Seconds over which rates are averaged.
pub(crate) const WINDOWS_S: [u32; 5] = [1, 10, 60, 900, 7_200];

/// Averages that forget exponentially.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    counted: u64,
    per_s: [f64; WINDOWS_S.len()],
}

impl Rates {
    /// Takes the count since the start, `elapsed_s` after the last call.
    pub(crate) fn update(&mut self, count: u64, elapsed_s: f64) {
        let rate = (count - self.counted.min(count)) as f64 / elapsed_s.max(0.001);
        self.counted = count;
        for (average, window_s) in self.per_s.iter_mut().zip(WINDOWS_S) {
            let weight = 1.0 - (-elapsed_s / f64::from(window_s)).exp();
            *average += (rate - *average) * weight;
        }
    }

    pub(crate) fn per_s(&self) -> [f64; WINDOWS_S.len()] {
        self.per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_averages_follow_sooner_than_long_ones() {
        let mut rates = Rates::default();
        for step in 1..=20 {
            rates.update(step * 300, 3.0);
        }
        let [second, ten, minute, quarter, hours] = rates.per_s();
        assert!((second - 100.0).abs() < 0.01 && ten > 99.0, "{rates:?}");
        assert!(minute > quarter && quarter > hours && minute > 60.0, "{rates:?}");
        rates.update(0, 3.0);
        assert!(rates.per_s()[0] < 10.0, "a count that begins anew is no rate");
    }
}
