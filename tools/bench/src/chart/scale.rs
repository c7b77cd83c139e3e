//! Round numbers along an axis.

/// From 0 or, if it is logarithmic, from a power of ten, to a round number above all figures.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    is_logarithmic: bool,
    low: f64,
    high: f64,
}

impl Scale {
    pub(super) fn of(figures: impl Iterator<Item = f64>, is_logarithmic: bool) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for figure in figures.filter(|figure| figure.is_finite() && *figure > 0.0) {
            (low, high) = (low.min(figure), high.max(figure));
        }
        if high == 0.0 {
            (low, high) = (1.0, 1.0);
        }
        if is_logarithmic {
            let floor = 10_f64.powf(low.log10().floor());
            let ceil = 10_f64.powf(high.log10().ceil()).max(floor * 10.0);
            return Self { is_logarithmic, low: floor, high: ceil };
        }
        let step = step(high);
        Self { is_logarithmic, low: 0.0, high: (high / step).ceil() * step }
    }

    /// Where a figure is, from 0 to 1.
    pub(super) fn at(&self, figure: f64) -> f64 {
        let part = if self.is_logarithmic {
            (figure.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            figure / self.high
        };
        part.clamp(0.0, 1.0)
    }

    /// The figures with a line of their own.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let tens = std::iter::successors(Some(self.low), |tick| Some(tick * 10.0));
            return tens.take_while(|tick| *tick <= self.high * 1.001).collect();
        }
        let step = step(self.high);
        let steps = (self.high / step).round() as u32;
        (0..=steps).map(|at| f64::from(at) * step).collect()
    }
}

/// 1, 2 or 5 of some power of ten: four to eight of them make `high`.
fn step(high: f64) -> f64 {
    let ten = 10_f64.powf((high / 4.0).log10().floor());
    let fits = [5.0, 2.0, 1.0].into_iter().find(|times| times * ten <= high / 4.0);
    fits.unwrap_or(1.0) * ten
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        let all = found.iter().zip(expected);
        all.for_each(|(found, expected)| assert!((found - expected).abs() < 1e-6, "{found}"));
    }

    #[test]
    fn ticks_are_round() {
        near(&Scale::of([443_000.0].into_iter(), false).ticks(), &[0.0, 1e5, 2e5, 3e5, 4e5, 5e5]);
        near(&Scale::of([7.0, 8.0].into_iter(), false).ticks(), &[0.0, 2.0, 4.0, 6.0, 8.0]);
        near(&Scale::of([13.0, 5000.0].into_iter(), true).ticks(), &[10.0, 100.0, 1e3, 1e4]);
        near(&Scale::of([100.0].into_iter(), true).ticks(), &[100.0, 1000.0]);
        assert!(Scale::of(std::iter::empty(), false).ticks().len() > 1);
    }

    #[test]
    fn figures_are_in_their_places() {
        let linear = Scale::of([80.0].into_iter(), false);
        near(&[linear.at(0.0), linear.at(40.0), linear.at(80.0)], &[0.0, 0.5, 1.0]);
        let tens = Scale::of([10.0, 1000.0].into_iter(), true);
        near(&[tens.at(1.0), tens.at(10.0), tens.at(100.0), tens.at(1e9)], &[0.0, 0.0, 0.5, 1.0]);
    }
}
