//! A line for each name, through places that have an order. Names stand at the ends of their lines.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{CHARACTER, LINE, WIDTH, colour, escape, open};

/// Figures that go along something: cores, percentiles.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// What they are.
    pub(crate) title: String,
    /// The names of the places, in their order.
    pub(crate) places: Vec<String>,
    /// Names, and a figure for each place; some may be missing.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
    /// Whether the axis has powers of ten instead of even steps from 0.
    pub(crate) is_logarithmic: bool,
    /// How a figure is written.
    pub(crate) write: fn(f64) -> String,
}

const HEIGHT: f64 = 340.0;
const TOP: f64 = LINE + 16.0;
const BOTTOM: f64 = HEIGHT - 34.0;
/// Names at the ends of lines are that far apart, at least.
const NAME: f64 = 19.0;

/// Where the lines are drawn.
struct Field {
    scale: Scale,
    left: f64,
    right: f64,
    places: usize,
}

impl Field {
    fn x(&self, place: usize) -> f64 {
        if self.places < 2 {
            return f64::midpoint(self.left, self.right);
        }
        let part = place as f64 / (self.places - 1) as f64;
        self.left + 8.0 + part * (self.right - self.left - 16.0)
    }

    fn y(&self, figure: f64) -> f64 {
        BOTTOM - self.scale.at(figure) * (BOTTOM - TOP)
    }
}

impl Lines {
    pub(super) fn svg(&self) -> String {
        let all = self.series.iter().flat_map(|(_, figures)| figures.iter().flatten().copied());
        let scale = Scale::of(all, self.is_logarithmic);
        let widest =
            |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * CHARACTER;
        let axis =
            widest(&mut scale.ticks().iter().map(|tick| (self.write)(*tick).chars().count()));
        let names = widest(&mut self.series.iter().map(|(name, _)| name.chars().count()));
        let (left, right) = (axis + 12.0, WIDTH - names - 24.0);
        let field = Field { scale, left, right, places: self.places.len() };
        let mut svg = open(&self.title, HEIGHT);
        self.add_axes(&mut svg, &field);
        // The first one is drawn last, above the others.
        for (at, (_, figures)) in self.series.iter().enumerate().rev() {
            add_line(&mut svg, &field, at, figures);
        }
        self.add_names(&mut svg, &field);
        svg + "</svg>"
    }

    fn add_axes(&self, svg: &mut String, field: &Field) {
        // Writing to a String cannot fail, here and below.
        for tick in field.scale.ticks() {
            let y = field.y(tick);
            let _ = write!(
                svg,
                "<line x1=\"{:.0}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"var(--line, #dde2e8)\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"var(--soft, #5b6675)\">{}</text>",
                field.left,
                field.right,
                field.left - 8.0,
                y + 5.0,
                escape(&(self.write)(tick)),
            );
        }
        for (at, place) in self.places.iter().enumerate() {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"var(--soft, #5b6675)\">{}</text>",
                field.x(at),
                BOTTOM + 22.0,
                escape(place),
            );
        }
    }

    fn add_names(&self, svg: &mut String, field: &Field) {
        let ends = self.series.iter().enumerate().filter_map(|(at, (name, figures))| {
            let last = figures.iter().rposition(Option::is_some)?;
            Some((field.y(figures.get(last).copied().flatten()?), at, name))
        });
        let mut ends: Vec<_> = ends.collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places = spread(&ends.iter().map(|(y, ..)| *y).collect::<Vec<_>>());
        for ((_, at, name), y) in ends.iter().zip(places) {
            let weight = if *at == 0 { " font-weight=\"600\"" } else { "" };
            let _ = write!(
                svg,
                "<text x=\"{:.0}\" y=\"{:.1}\" fill=\"{}\"{weight}>{}</text>",
                field.right + 10.0,
                y + 5.0,
                colour(*at),
                escape(name),
            );
        }
    }
}

fn add_line(svg: &mut String, field: &Field, series: usize, figures: &[Option<f64>]) {
    let points = figures.iter().enumerate();
    let points = points.filter_map(|(at, figure)| Some((field.x(at), field.y((*figure)?))));
    let points: Vec<_> = points.collect();
    let path = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
    let (colour, width) = (colour(series), if series == 0 { 3.0 } else { 2.0 });
    let _ = write!(
        svg,
        "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
         stroke-linejoin=\"round\"/>"
    );
    for (x, y) in points {
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"{colour}\"/>",
            width + 1.0
        );
    }
}

/// Moves sorted places apart, downwards first, then back up where that went too far.
fn spread(places: &[f64]) -> Vec<f64> {
    let mut spread: Vec<f64> = Vec::new();
    for place in places {
        let above = spread.last().map_or(f64::MIN, |above| above + NAME);
        spread.push(place.max(above));
    }
    let mut below = BOTTOM + NAME;
    for place in spread.iter_mut().rev() {
        *place = place.min(below - NAME);
        below = *place;
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_cover_each_other() {
        assert_eq!(spread(&[50.0, 52.0, 200.0]), [50.0, 50.0 + NAME, 200.0]);
        let low = spread(&[BOTTOM - 1.0, BOTTOM, BOTTOM]);
        assert_eq!(low, [BOTTOM - 2.0 * NAME, BOTTOM - NAME, BOTTOM]);
    }

    #[test]
    fn lines_go_through_what_there_is() {
        let chart = Lines {
            title: "T".into(),
            places: ["1", "2", "4"].map(str::to_owned).into(),
            series: vec![
                ("a".into(), vec![Some(10.0), Some(20.0), Some(40.0)]),
                ("b".into(), vec![Some(5.0), None, Some(10.0)]),
                ("c".into(), vec![None, None, None]),
            ],
            is_logarithmic: false,
            write: |figure| format!("{figure:.0}"),
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(
            svg.contains(">a</text>") && svg.contains(">b</text>") && !svg.contains(">c</text>")
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let heights: Vec<f64> = svg
            .split("<circle ")
            .skip(1)
            .filter_map(|rest| rest.split("cy=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        // The first series comes last; more is higher up.
        assert!(heights[2] > heights[3] && heights[3] > heights[4], "{heights:?}");
    }
}
