//! Documents, written as Markdown for terminals and repositories.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use crate::table::Table;

/// A title and blocks.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
pub(crate) enum Block {
    Heading(String),
    Subheading(String),
    Text(String),
    /// Explanation of how to read the blocks that follow. Documents with several reports have it once.
    Explanation(String),
    /// A warning.
    Notice(String),
    Table(Table),
}

impl Document {
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n", self.title);
        for block in &self.blocks {
            add(&mut text, block, "");
        }
        text
    }

    /// Returns the document as a section of another one, without explanations. `parts` are the headings to
    /// write with what follows them, or none for all. What precedes the first heading is always written.
    ///
    /// # Errors
    ///
    /// Returns an error if the document has no such heading.
    pub(crate) fn section(&self, parts: &[&str]) -> Result<String> {
        let mut text = format!("## {}\n", self.title);
        let mut missing = parts.to_vec();
        let mut is_wanted = true;
        for block in &self.blocks {
            if let Block::Heading(title) | Block::Subheading(title) = block {
                is_wanted = parts.is_empty() || parts.contains(&title.as_str());
                missing.retain(|part| part != title);
            }
            if is_wanted && !matches!(block, Block::Explanation(_)) {
                add(&mut text, block, "#");
            }
        }
        ensure!(missing.is_empty(), "{}: no heading {}", self.title, missing.join(", "));
        Ok(text)
    }
}

/// Adds a block. `under` has a `#` per additional heading level.
fn add(text: &mut String, block: &Block, under: &str) {
    // Writing to a String cannot fail.
    let _ = match block {
        Block::Heading(title) => write!(text, "\n{under}## {title}\n"),
        Block::Subheading(title) => write!(text, "\n{under}### {title}\n"),
        Block::Text(words) | Block::Explanation(words) => write!(text, "\n{}\n", wrap(words)),
        Block::Notice(words) => write!(text, "\n{}\n", wrap(&format!("**Note:** {words}"))),
        Block::Table(table) => write!(text, "\n{table}"),
    };
}

/// Breaks a paragraph into lines of at most [`COLUMNS`].
fn wrap(text: &str) -> String {
    let (mut wrapped, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 {
            // At the start of a line, these would begin a list.
            let fits = width + 1 + length <= COLUMNS || ["+", "-", "*"].contains(&word);
            wrapped.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        wrapped.push_str(word);
        width += length;
    }
    wrapped
}

/// As in documents.
const COLUMNS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cell;

    #[test]
    fn separates_blocks() {
        let table = Table { head: vec!["name".into()], rows: vec![vec![Cell::Text("a".into())]] };
        let document = Document {
            title: "T".into(),
            blocks: vec![
                Block::Heading("H".into()),
                Block::Notice("N".into()),
                Block::Table(table),
                Block::Explanation("E".into()),
            ],
        };
        let expected = "# T\n\n## H\n\n**Note:** N\n\n| name |\n| ---- |\n| a    |\n\nE\n";
        assert_eq!(document.markdown(), expected);
        let section = "## T\n\n### H\n\n**Note:** N\n\n| name |\n| ---- |\n| a    |\n";
        assert_eq!(document.section(&[]).unwrap(), section);
        assert_eq!(document.section(&["H"]).unwrap(), section);
        assert!(document.section(&["I"]).unwrap_err().to_string().contains("no heading I"));
    }
}
