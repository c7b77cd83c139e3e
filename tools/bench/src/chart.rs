//! Charts as SVG, drawn by hand: bars and lines are all that a comparison needs. Colours are CSS
//! variables with light defaults, so that a page can make them dark.

mod bars;
mod lines;
mod scale;

pub(crate) use bars::Bars;
pub(crate) use lines::Lines;

/// A picture of some figures.
#[derive(Clone, Debug)]
pub(crate) enum Chart {
    /// One figure each.
    Bars(Bars),
    /// Figures in places that have an order.
    Lines(Lines),
}

impl Chart {
    /// As an `<svg>` element.
    pub(crate) fn svg(&self) -> String {
        match self {
            Self::Bars(bars) => bars.svg(),
            Self::Lines(lines) => lines.svg(),
        }
    }
}

/// How wide all charts are, in units of their own; they are stretched to the page.
const WIDTH: f64 = 960.0;
/// What names are written in: a character is about that wide.
const CHARACTER: f64 = 8.7;
/// A line of text.
const LINE: f64 = 24.0;
const SERIES: usize = 8;
const FONT: &str = "font-family=\"system-ui, Segoe UI, Roboto, sans-serif\"";

/// The start of a chart.
fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{title}\" {FONT} font-size=\"14\" fill=\"var(--ink, #1c2430)\">\
         <text x=\"0\" y=\"16\" font-weight=\"600\">{title}</text>"
    )
}

/// The colour of a series.
fn colour(series: usize) -> String {
    const LIGHT: [&str; SERIES] =
        ["#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#c2255c", "#8d6708", "#1864ab", "#495057"];
    let series = series % SERIES;
    format!("var(--series-{series}, {})", LIGHT.get(series).unwrap_or(&"#495057"))
}

/// Text as XML wants it.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
