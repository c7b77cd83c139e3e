//! A bar for each name, the figure at its end.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{CHARACTER, LINE, WIDTH, escape, open};

/// Figures of which each has a name.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// What they are.
    pub(crate) title: String,
    /// Names and figures, in their order; the first is the one that others are compared with.
    pub(crate) bars: Vec<(String, f64)>,
    /// How a figure is written.
    pub(crate) write: fn(f64) -> String,
}

const TOP: f64 = LINE + 8.0;
const BAR: f64 = 18.0;
const ROW: f64 = 28.0;

impl Bars {
    fn height(&self) -> f64 {
        TOP + self.bars.len() as f64 * ROW + 4.0
    }

    pub(super) fn svg(&self) -> String {
        let names = self.bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let figures = self.bars.iter().map(|(_, figure)| (self.write)(*figure).chars().count());
        let left = (names as f64 * CHARACTER + 12.0).min(WIDTH / 2.0);
        let right = figures.max().unwrap_or(0) as f64 * CHARACTER + 12.0;
        let scale = Scale::of(self.bars.iter().map(|(_, figure)| *figure), false);
        let mut svg = open(&self.title, self.height());
        let most =
            self.bars.iter().map(|(_, figure)| scale.at(*figure)).fold(f64::MIN_POSITIVE, f64::max);
        for (at, (name, figure)) in self.bars.iter().enumerate() {
            let y = TOP + at as f64 * ROW;
            // The longest bar ends where its figure still fits.
            let length = (scale.at(*figure) / most * (WIDTH - left - right)).max(1.0);
            let (text, base) = (y + BAR - 4.0, left - 10.0);
            let fill = if at == 0 { "var(--series-0, #0b7285)" } else { "var(--soft, #5b6675)" };
            let opacity = if at == 0 { 1.0 } else { 0.55 };
            let weight = if at == 0 { " font-weight=\"600\"" } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<text x=\"{base:.0}\" y=\"{text:.0}\" text-anchor=\"end\"{weight}>{}</text>\
                 <rect x=\"{left:.0}\" y=\"{y:.0}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{fill}\" \
                 opacity=\"{opacity}\"/>\
                 <text x=\"{:.0}\" y=\"{text:.0}\"{weight}>{}</text>",
                escape(name),
                left + length + 8.0,
                escape(&(self.write)(*figure)),
            );
        }
        svg + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_figures_say() {
        let bars = [("ours & theirs", 100.0), ("b", 50.0), ("none", 0.0)];
        let bars = bars.map(|(name, figure)| (name.to_owned(), figure)).into();
        let chart = Bars { title: "T".into(), bars, write: |figure| format!("{figure:.0}") };
        let svg = chart.svg();
        let widths: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .filter_map(|rest| rest.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 3);
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
        assert_eq!(widths[2], 1.0);
        assert!(svg.contains("ours &amp; theirs") && svg.contains(">50</text>"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    }
}
