//! Writes Markdown, for terminals and repositories.

use std::fmt::Write as _;

use super::document::{Block, Document};

pub(super) fn write(document: &Document) -> String {
    let mut text = format!("# {}\n", document.title);
    for block in &document.blocks {
        add(&mut text, block, "");
    }
    text
}

/// Writes a section of another document, without collapsed details.
pub(super) fn section(document: &Document) -> String {
    let mut text = format!("## {}\n", document.title);
    for block in &document.blocks {
        if !matches!(block, Block::Details(..)) {
            add(&mut text, block, "#");
        }
    }
    text
}

/// Adds a block. `under` has a `#` per additional heading level.
fn add(text: &mut String, block: &Block, under: &str) {
    // Writing to a String cannot fail.
    let _ = match block {
        Block::Heading(title) => write!(text, "\n{under}## {title}\n"),
        Block::Subheading(title) => write!(text, "\n{under}### {title}\n"),
        Block::Text(words) => write!(text, "\n{words}\n"),
        Block::Notice(words) => write!(text, "\n**Note:** {words}\n"),
        Block::Table(table) => write!(text, "\n{table}"),
        Block::Chart(_) => Ok(()),
        Block::Code(lines) => write!(text, "\n```text\n{}\n```\n", lines.trim_end()),
        Block::Details(title, block) => {
            let _ = write!(text, "\n{under}### {title}\n");
            add(text, block, under);
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Cell, Table};

    #[test]
    fn separates_blocks() {
        let table = Table { head: vec!["name".into()], rows: vec![vec![Cell::Text("a".into())]] };
        let document = Document {
            title: "T".into(),
            blocks: vec![
                Block::Heading("H".into()),
                Block::Notice("N".into()),
                Block::Table(table),
                Block::Details("D".into(), Box::new(Block::Code("1\n2\n".into()))),
            ],
        };
        let expected = "# T\n\n## H\n\n**Note:** N\n\n| name |\n| ---- |\n| a    |\n\
                        \n### D\n\n```text\n1\n2\n```\n";
        assert_eq!(document.markdown(), expected);
        let section = "## T\n\n### H\n\n**Note:** N\n\n| name |\n| ---- |\n| a    |\n";
        assert_eq!(document.section(), section);
    }
}
