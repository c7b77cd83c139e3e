//! Markdown, for terminals and repositories.

use std::fmt::Write as _;

use super::document::{Block, Cell, Document, Table};

pub(super) fn write(document: &Document) -> String {
    let mut text = format!("# {}\n", document.title);
    for block in &document.blocks {
        add(&mut text, block);
    }
    text
}

fn add(text: &mut String, block: &Block) {
    // Writing to a String cannot fail.
    let _ = match block {
        Block::Heading(title) => write!(text, "\n## {title}\n"),
        Block::Subheading(title) => write!(text, "\n### {title}\n"),
        Block::Text(words) => write!(text, "\n{words}\n"),
        Block::Notice(words) => write!(text, "\n**Note:** {words}\n"),
        Block::Table(table) => write!(text, "\n{}", rows(table)),
        Block::Chart(_) => Ok(()),
        Block::Code(lines) => write!(text, "\n```text\n{}\n```\n", lines.trim_end()),
        Block::Details(title, block) => {
            let _ = write!(text, "\n### {title}\n");
            add(text, block);
            Ok(())
        }
    };
}

fn rows(table: &Table) -> String {
    let is_number = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        cells.clone().count() > 0 && cells.into_iter().all(Cell::is_number)
    };
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |(column, _)| if is_number(column) { "---:" } else { "---" }.to_owned();
    let mut text = line(table.head.iter().map(|name| escape(name)).collect());
    text += &line(table.head.iter().enumerate().map(rule).collect());
    for row in &table.rows {
        text += &line(row.iter().map(cell).collect());
    }
    text
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Best(number) => format!("**{number}**"),
        Cell::Code(words) if !words.is_empty() => format!("`{}`", words.replace('|', "\\|")),
        other => escape(other.text()),
    }
}

/// What Markdown would take for something else.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_tell_numbers_from_names() {
        let table = Table {
            head: vec!["a|b".into(), "n".into()],
            rows: vec![
                vec![Cell::Text("x_y".into()), Cell::Best("2".into())],
                vec![Cell::Code("a_b".into()), Cell::Number("1".into())],
            ],
        };
        let document = Document {
            title: "T".into(),
            blocks: vec![
                Block::Heading("H".into()),
                Block::Table(table),
                Block::Details("D".into(), Box::new(Block::Code("1\n2\n".into()))),
            ],
        };
        let expected = "# T\n\n## H\n\n| a\\|b | n |\n| --- | ---: |\n| x\\_y | **2** |\n| `a_b` | 1 |\n\
                        \n### D\n\n```text\n1\n2\n```\n";
        assert_eq!(document.markdown(), expected);
    }
}
