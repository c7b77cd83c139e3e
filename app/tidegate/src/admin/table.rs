//! Prints the API's objects as text: tables, and single objects line by line.

use serde_json::Value;

use crate::cli::printable;
use crate::dates;

/// A column, and where its value is in each object.
pub(super) struct Column {
    head: &'static str,
    /// A JSON pointer (RFC 6901).
    pointer: &'static str,
    kind: Format,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    /// A number, aligned right. For an object, the sum of its values.
    Count,
    /// A limit; 0 = unlimited.
    Limit,
    /// Seconds since 1970.
    Date,
    /// Seconds.
    Span,
    Bytes,
}

pub(super) const fn column(head: &'static str, pointer: &'static str, kind: Format) -> Column {
    Column { head, pointer, kind }
}

/// Rows in columns as wide as their content. Rows can be drained while others follow.
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

    /// Returns the rows added since the last call; the first time, with the head.
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
                line += &match column.kind {
                    Format::Text | Format::Date => format!("{cell:<width$}  "),
                    _ => format!("{cell:>width$}  "),
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
        let value = thing.pointer(self.pointer).unwrap_or(&Value::Null);
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

/// Returns an object, one value per line, with the API's names.
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
            let date = seconds.as_u64().map_or_else(|| "-".into(), date);
            into.push((name.into(), date));
        }
        value => into.push((name.into(), plain(value))),
    }
}

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

/// Returns seconds since 1970 as a date and a time (UTC).
pub(crate) fn date(seconds: u64) -> String {
    dates::utc(seconds).replace('T', " ").replace('Z', "")
}

/// Returns seconds in the largest unit that fits.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns bytes in the largest unit that fits.
pub(crate) fn bytes(count: f64) -> String {
    let (mut size, mut unit) = (count, "B");
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
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
    fn columns_fit_their_content() {
        let mut table = Table::new(COLUMNS);
        table.add(
            &json!({ "id": 1, "name": "a\nb", "bound": 0, "totals": { "sent": 2048, "x": 2 } }),
        );
        table.add(&json!({ "id": 20, "name": "", "bound": 7, "ends": 0, "totals": { "sent": 1 } }));
        let expected = "id  name  bound  ends                    sent   all\n \
                   1  a\\nb      -  -                    2.0 KiB  2050\n\
                   20            7  1970-01-01 00:00:00      1 B     1\n";
        assert_eq!(table.drain(), expected);
        table.add(&json!({ "id": 3 }));
        assert_eq!(table.drain(), " 3  -         -  -                          -     -\n");
    }

    #[test]
    fn prints_units() {
        assert_eq!([59, 60, 7199, 86_400].map(span), ["59 s", "1 min", "1 h", "1 d"]);
        let sizes = [0.0, 1023.0, 1024.0, 102_400.0, 1e18].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "100 KiB", "888 PiB"]);
    }
}
