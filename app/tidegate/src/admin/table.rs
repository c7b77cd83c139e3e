//! What the API gives, for people: tables of things, and one thing line by line.

use std::fmt::Write as _;

use serde_json::Value;

use crate::cli::printable;
use crate::dates;

/// A column, and where its figure is in each thing.
pub(super) struct Column {
    head: &'static str,
    /// A JSON pointer (RFC 6901).
    place: &'static str,
    kind: Format,
}

/// How a figure is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    /// A number, on the right; of an object, the sum of what is in it.
    Count,
    /// A bound, of which 0 is none.
    Limit,
    /// Seconds since 1970.
    Date,
    /// Seconds.
    Span,
    Bytes,
}

pub(super) const fn column(head: &'static str, place: &'static str, kind: Format) -> Column {
    Column { head, place, kind }
}

/// Rows in columns, which are as wide as what is in them. What is drained may be printed already; the
/// columns never become narrower.
pub(super) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &'static [Column]) -> Self {
        let heads = columns.iter().map(|column| column.head.to_owned()).collect();
        Self { columns, widths: vec![0; columns.len()], rows: vec![heads] }
    }

    pub(super) fn add(&mut self, thing: &Value) {
        self.rows.push(self.columns.iter().map(|column| column.of(thing)).collect());
    }

    /// The rows since the last time, the head with the first ones.
    pub(super) fn drain(&mut self) -> String {
        for row in &self.rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in self.rows.drain(..) {
            let mut line = String::new();
            for ((cell, width), column) in row.iter().zip(&self.widths).zip(self.columns) {
                // Writing to a string cannot fail.
                let _ = match column.kind {
                    Format::Text | Format::Date => write!(line, "{cell:<width$}  "),
                    _ => write!(line, "{cell:>width$}  "),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

impl Column {
    fn of(&self, thing: &Value) -> String {
        let value = thing.pointer(self.place).unwrap_or(&Value::Null);
        match (self.kind, value.as_u64()) {
            (Format::Limit, Some(0)) => "-".into(),
            (Format::Date, Some(seconds)) => date(seconds),
            (Format::Span, Some(seconds)) => span(seconds),
            (Format::Bytes, Some(count)) => bytes(count as f64),
            (Format::Count, None) if value.is_object() => sum(value).to_string(),
            _ => plain(value),
        }
    }
}

/// A thing, a figure a line, by the names that the API has for them.
pub(super) fn lines(thing: &Value) -> String {
    let mut all = Vec::new();
    flatten("", thing, &mut all);
    let width = all.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let lines = all.iter().map(|(name, value)| format!("{name:<width$}  {value}"));
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

fn flatten(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(&format!("{name}{dot}{}", printable(member)), value, into);
            }
        }
        Value::Number(seconds) if matches!(name, "created" | "expires" | "first_used") => {
            into.push((name.into(), date(seconds.as_u64().unwrap_or_default())));
        }
        value => into.push((name.into(), plain(value))),
    }
}

/// A value as people write it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => printable(text),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        value => printable(&value.to_string()),
    }
}

fn sum(value: &Value) -> u64 {
    match value {
        Value::Object(members) => members.values().map(sum).sum(),
        value => value.as_u64().unwrap_or_default(),
    }
}

/// Seconds since 1970, without what nobody reads.
pub(crate) fn date(seconds: u64) -> String {
    dates::utc(seconds).replace('T', " ").replace('Z', "")
}

/// Seconds in the largest unit that fits.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Bytes with three digits.
pub(crate) fn bytes(count: f64) -> String {
    let (mut size, mut units) = (count, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter());
    let mut unit = units.next().unwrap_or_default();
    while size >= 1024.0
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, next);
    }
    let digits = if unit == "B" || size >= 99.95 { 0 } else { 1 };
    format!("{size:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: &[Column] = &[
        column("id", "/id", Format::Count),
        column("name", "/name", Format::Text),
        column("bound", "/bound", Format::Limit),
        column("ends", "/ends", Format::Date),
        column("sent", "/totals/sent", Format::Bytes),
        column("all", "/totals", Format::Count),
    ];

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut table = Table::new(COLUMNS);
        table.add(
            &json!({ "id": 1, "name": "a\nb", "bound": 0, "totals": { "sent": 2048, "x": 2 } }),
        );
        table.add(&json!({ "id": 20, "name": "", "bound": 7, "ends": 0, "totals": { "sent": 1 } }));
        let due = "id  name  bound  ends                    sent   all\n \
                   1  a\\nb      -  -                    2.0 KiB  2050\n\
                   20            7  1970-01-01 00:00:00      1 B     1\n";
        assert_eq!(table.drain(), due);
        table.add(&json!({ "id": 3 }));
        assert_eq!(table.drain(), " 3  -         -  -                          -     -\n");
    }

    #[test]
    fn a_thing_has_a_line_for_each_figure() {
        let thing = json!({ "name": "x", "of": { "a": 1, "b": [true, "y"] }, "expires": 0 });
        let due = "expires  1970-01-01 00:00:00\nname     x\nof.a     1\nof.b     yes y\n";
        assert_eq!(lines(&thing), due);
    }

    #[test]
    fn figures_have_units() {
        assert_eq!([59, 60, 7199, 86_400].map(span), ["59 s", "1 min", "1 h", "1 d"]);
        let sizes = [0.0, 1023.0, 1024.0, 102_400.0, 1e18].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "100 KiB", "888 PiB"]);
    }
}
