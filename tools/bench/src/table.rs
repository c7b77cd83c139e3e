//! Tables as Markdown with aligned columns, readable in a terminal as well.

use std::fmt;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Column names.
    pub head: Vec<String>,
    /// Rows with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number.
    Number(String),
    /// The best number of its column.
    Best(String),
}

impl Cell {
    /// Returns a number, or a dash if there is none.
    pub fn number(text: Option<String>) -> Self {
        Self::Number(text.unwrap_or_else(|| "–".to_owned()))
    }

    /// Returns whether there is nothing in it.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.text(), "" | "–")
    }

    pub(crate) fn text(&self) -> &str {
        let (Self::Text(text) | Self::Number(text) | Self::Best(text)) = self;
        text
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Best(_))
    }

    fn markdown(&self) -> String {
        match self {
            Self::Best(number) => format!("**{number}**"),
            other => escape(other.text()),
        }
    }
}

impl Table {
    /// Returns whether a column holds numbers, which are right-aligned.
    pub(crate) fn is_number(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column)).peekable();
        cells.peek().is_some() && cells.all(Cell::is_number)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head: Vec<String> = self.head.iter().map(|name| escape(name)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::markdown).collect());
        let rows: Vec<Vec<String>> = rows.collect();
        let width = |column: usize| {
            let all = rows.iter().chain([&head]).filter_map(|row| row.get(column));
            all.map(|text| text.chars().count()).max().unwrap_or(0).max(4)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut line = |cells: &[String]| {
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
                if self.is_number(column) {
                    write!(f, "| {blanks}{cell} ")?;
                } else {
                    write!(f, "| {cell}{blanks} ")?;
                }
            }
            writeln!(f, "|")
        };
        line(&head)?;
        let rule = |(column, width): (usize, &usize)| match self.is_number(column) {
            true => format!("{}:", "-".repeat(width - 1)),
            false => "-".repeat(*width),
        };
        line(&widths.iter().enumerate().map(rule).collect::<Vec<_>>())?;
        rows.iter().try_for_each(|row| line(row))
    }
}

/// Escapes Markdown's special characters.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('_', "\\_")
}
