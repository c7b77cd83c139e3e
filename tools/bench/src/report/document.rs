//! A document, independent of how it is written.

use crate::table::Table;

/// A title and blocks.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// A block of a document.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Heading(String),
    Subheading(String),
    Text(String),
    /// How to read what follows. Documents with several reports say that once.
    Explanation(String),
    /// A warning.
    Notice(String),
    Table(Table),
}
