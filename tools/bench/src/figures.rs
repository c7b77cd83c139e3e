//! Medians, spreads and number formatting.

/// Several measurements of the same quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    /// The lowest.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Figure {
    /// Summarizes all finite values; `None` if there are none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> =
            figures.into_iter().filter(|figure| figure.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let lower = if sorted.len().is_multiple_of(2) { sorted.get(middle - 1) } else { None };
        let median = lower.map_or(upper, |lower| lower.midpoint(upper));
        Some(Self { median, low: *sorted.first()?, high: *sorted.last()? })
    }

    /// Returns the range from lowest to highest as a fraction of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median }
    }
}

/// Formats a count with thousands separators.
pub fn count(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", &*digits), |digits| ("-", digits));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

/// Formats microseconds with three significant digits and a fitting unit.
pub(crate) fn micros(us: f64) -> String {
    let (figure, unit) = match us {
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let text = match figure {
        figure if figure < 10.0 => format!("{figure:.2}"),
        figure if figure < 100.0 => format!("{figure:.1}"),
        figure => format!("{figure:.0}"),
    };
    // Round figures are written without decimals.
    let text = text.trim_end_matches(".00").trim_end_matches(".0");
    format!("{text} {unit}")
}

/// Bytes, as MiB.
pub fn mib(bytes: f64) -> String {
    let mib = bytes / f64::from(1 << 20);
    if mib < 10.0 { format!("{mib:.1} MiB") } else { format!("{} MiB", count(mib)) }
}

pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 1.0 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let of = |figures: &[f64]| Figure::of(figures.iter().copied()).unwrap();
        assert_eq!(of(&[3.0, 1.0, 2.0]), Figure { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(of(&[f64::NAN, 5.0]).median, 5.0);
        assert_eq!(of(&[90.0, 100.0, 110.0]).spread(), 0.2);
        assert_eq!(of(&[0.0]).spread(), 0.0);
        assert!(Figure::of([f64::NAN]).is_none());
    }

    #[test]
    fn numbers_are_written_to_be_read() {
        for (figure, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (-12_345.0, "-12,345"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(count(figure), text);
        }
        let texts: Vec<_> = [1.25, 42.0, 100.4, 1500.0, 1e4, 12_345.0, 3e6].map(micros).into();
        assert_eq!(texts, ["1.25 µs", "42 µs", "100 µs", "1.50 ms", "10 ms", "12.3 ms", "3 s"]);
        assert_eq!((mib(1_572_864.0), mib(2e9)), ("1.5 MiB".into(), "1,907 MiB".into()));
        assert_eq!(
            (percent(0.0), percent(0.001), percent(0.5)),
            ("0.0 %".into(), "0.10 %".into(), "50.0 %".into())
        );
    }
}
