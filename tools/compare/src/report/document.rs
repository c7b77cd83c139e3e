//! A document, before it is Markdown or HTML.

use crate::chart::Chart;

/// A title and what stands under it.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// A piece of a document.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Heading(String),
    Subheading(String),
    Text(String),
    /// A text that must not be missed.
    Notice(String),
    Table(Table),
    Chart(Chart),
    /// Text as it is, in lines.
    Code(String),
    /// What is opened by those who want it.
    Details(String, Box<Self>),
}

/// Rows under a head.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// What is in a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    /// Words of a command or a setting.
    Code(String),
    Number(String),
    /// The best number of its column.
    Best(String),
}

impl Cell {
    pub(crate) fn text(&self) -> &str {
        let (Self::Text(text) | Self::Code(text) | Self::Number(text) | Self::Best(text)) = self;
        text
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Best(_))
    }
}

impl Document {
    /// As Markdown. Charts are left to HTML: the tables have their figures.
    pub(crate) fn markdown(&self) -> String {
        super::markdown::write(self)
    }

    /// As one HTML file that needs no other.
    pub(crate) fn html(&self) -> String {
        super::html::write(self)
    }
}
