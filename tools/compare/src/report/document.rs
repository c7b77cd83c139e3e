//! A document, before it is Markdown or HTML.

use crate::chart::Chart;
use crate::table::Table;

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

impl Document {
    /// As Markdown. Charts are left to HTML: the tables have their figures.
    pub(crate) fn markdown(&self) -> String {
        super::markdown::write(self)
    }

    /// As a section of a document of others, without settings and single runs.
    pub(crate) fn section(&self) -> String {
        super::markdown::section(self)
    }

    /// As one HTML file that needs no other.
    pub(crate) fn html(&self) -> String {
        super::html::write(self)
    }
}
