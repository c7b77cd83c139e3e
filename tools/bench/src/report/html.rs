//! Writes one self-contained HTML file: style and charts are inline, and it has no script. It
//! follows the reader's choice of
//! light or dark.

use super::document::{Block, Document};
use crate::chart::escape;
use crate::table::{Cell, Table};

/// Series colors can be told apart by color-blind readers. The first is the tracker that the others
/// are compared with.
const STYLE: &str = include_str!("report.css");

pub(super) fn write(document: &Document) -> String {
    let title = escape(&document.title);
    let blocks: String = document.blocks.iter().map(block).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{blocks}</main>\n</body>\n</html>\n"
    )
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(title) => format!("<h2>{}</h2>\n", escape(title)),
        Block::Subheading(title) => format!("<h3>{}</h3>\n", escape(title)),
        Block::Text(words) | Block::Explanation(words) => format!("<p>{}</p>\n", escape(words)),
        Block::Notice(words) => format!("<p class=\"notice\">{}</p>\n", escape(words)),
        Block::Table(table) => rows(table),
        Block::Chart(chart) => format!("<figure>{}</figure>\n", chart.svg()),
        Block::Code(lines) => format!("<pre>{}</pre>\n", escape(lines.trim_end())),
        Block::Details(title, inner) => {
            let (title, inner) = (escape(title), self::block(inner));
            format!("<details>\n<summary>{title}</summary>\n{inner}</details>\n")
        }
    }
}

fn rows(table: &Table) -> String {
    let head = |(column, name): (usize, &String)| {
        let class = if table.is_number(column) { " class=\"number\"" } else { "" };
        format!("<th scope=\"col\"{class}>{}</th>", escape(name))
    };
    let head: String = table.head.iter().enumerate().map(head).collect();
    let row = |row: &Vec<Cell>| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>());
    let body: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"table\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )
}

fn cell(cell: &Cell) -> String {
    let text = escape(cell.text());
    match cell {
        Cell::Text(_) => format!("<td>{text}</td>"),
        Cell::Code(_) => format!("<td><code>{text}</code></td>"),
        Cell::Number(_) => format!("<td class=\"number\">{text}</td>"),
        Cell::Best(_) => format!("<td class=\"number\"><strong>{text}</strong></td>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_self_contained_and_escaped() {
        let table = Table {
            head: vec!["<a>".into()],
            rows: vec![vec![Cell::Text("\"x\" & <script>".into())], vec![Cell::Best("1".into())]],
        };
        let blocks = vec![Block::Table(table), Block::Notice("1 < 2".into())];
        let html = write(&Document { title: "A & B".into(), blocks });
        assert!(html.contains("<title>A &amp; B</title>"));
        assert!(html.contains("&quot;x&quot; &amp; &lt;script&gt;"));
        assert!(html.contains("<strong>1</strong>"));
        for foreign in ["<script", "http://", "https://", "url(", "@import"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }
}
