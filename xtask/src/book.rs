//! Builds the book of `docs/` by mdBook.
//!
//! `tidy` checks the links of its pages, in their sources. Pages link to files of the repository, too. These are copied
//! into the book, so that it can be read without the repository and without a network.

use crate::tidy::links::resolve;
use crate::tree::Tree;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use trials::command::{command, run};
use trials::setup;
use trials::workspace::target;

/// The folder of the book in the target folder.
const FOLDER: &str = "book";
/// The folder of the book that files of the repository are copied to.
const FILES: &str = "files";
/// The text that mdBook writes before the target of a link.
const LINK: &str = "href=\"";

/// Builds `target/book`.
pub(crate) fn build() -> Result<()> {
    setup::install_mdbook()?;
    let folder = target().join(FOLDER);
    let program = setup::mdbook_folder().join("bin/mdbook").display().to_string();
    let place = folder.display().to_string();
    run(command(&[&program, "build", "docs", "--dest-dir", &place]))?;
    let tree = Tree::read()?;
    for page in tree.with_extension(".md").filter_map(|file| file.path.strip_prefix("docs/")) {
        // The summary is no page, and README.md would be an index.
        let path = page.replace(".md", ".html");
        let Ok(text) = fs::read_to_string(folder.join(&path)) else { continue };
        let Page { text, copies } = with_copies(&path, &text, &tree);
        fs::write(folder.join(&path), text)?;
        for (path, content) in copies {
            write(&folder.join(path), &content)?;
        }
    }
    println!("{}", folder.join("index.html").display());
    Ok(())
}

/// A page of the book, and copies of files that it leads to, by their paths.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    text: String,
    copies: Vec<(String, String)>,
}

/// Returns a page with links to copies instead of files of the repository.
fn with_copies(path: &str, text: &str, tree: &Tree) -> Page {
    let mut pieces = text.split(LINK);
    let mut page = Page { text: pieces.next().unwrap_or_default().to_owned(), copies: Vec::new() };
    for piece in pieces {
        page.text += LINK;
        let (link, rest) = piece.split_at(piece.find('"').unwrap_or(piece.len()));
        let target = link.split('#').next().unwrap_or_default();
        match of_repository(path, target, tree) {
            Some((file, content)) => {
                let copy = format!("{FILES}/{file}.txt");
                page.text += &"../".repeat(path.matches('/').count());
                page.text += &copy;
                page.copies.push((copy, content));
            }
            None => page.text += link,
        }
        page.text += rest;
    }
    page
}

/// Returns path and text of a link's target, if it is a file of the repository that is no page of the book, or a folder,
/// whose text lists its files.
fn of_repository(page: &str, target: &str, tree: &Tree) -> Option<(String, String)> {
    let place = resolve(&format!("docs/{page}"), target).filter(|place| !place.is_empty())?;
    // mdBook makes links to pages of links to Markdown, whether or not the file is in the book.
    let source = place.strip_suffix(".html").map(|stem| format!("{stem}.md"));
    if let Some(file) = tree.file(&place).or_else(|| tree.file(source.as_deref()?)) {
        let is_page = file.path.starts_with("docs/") && file.path.ends_with(".md");
        return (!is_page).then(|| (file.path.clone(), file.text.clone()));
    }
    let inside = format!("{place}/");
    let list: Vec<&str> =
        tree.files.iter().filter_map(|file| file.path.strip_prefix(&inside)).collect();
    (!list.is_empty() && !place.starts_with("docs")).then(|| (place, list.join("\n") + "\n"))
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file without a folder")?)?;
    Ok(fs::write(path, content)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trials::workspace::root;

    #[test]
    fn the_book_is_configured_to_load_nothing() {
        let text = fs::read_to_string(root().join("docs/book.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let html = table["output"]["html"].as_table().unwrap();
        for key in ["google-analytics", "mathjax-support", "git-repository-url", "additional-js"] {
            assert!(!html.contains_key(key), "{key}");
        }
        let style = fs::read_to_string(root().join("docs/theme/book.css")).unwrap();
        assert!(!style.contains("//") && !style.contains("@import"));
    }

    #[test]
    fn links_to_files_of_the_repository_lead_to_copies() {
        let tree = Tree::of(&[
            ("dist/a.service", "[Unit]\n"),
            ("SECURITY.md", "# S\n"),
            ("docs/x.md", ""),
            ("docs/book.toml", ""),
        ]);
        let page = "<a href=\"../../dist/a.service#L2\">a</a> <a href=\"../../SECURITY.html\">s</a> \
                    <a href=\"../../dist/\">d</a> <a href=\"../x.html#y\">x</a> <a href=\"#z\">z</a>\
                    <a href=\"https://example.org/\">e</a> <link href=\"../book.css\">";
        let page = with_copies("run/a.html", page, &tree);
        assert_eq!(
            page.text,
            "<a href=\"../files/dist/a.service.txt\">a</a> <a href=\"../files/SECURITY.md.txt\">s</a> \
             <a href=\"../files/dist.txt\">d</a> <a href=\"../x.html#y\">x</a> <a href=\"#z\">z</a>\
             <a href=\"https://example.org/\">e</a> <link href=\"../book.css\">"
        );
        let expected = [
            ("files/dist/a.service.txt", "[Unit]\n"),
            ("files/SECURITY.md.txt", "# S\n"),
            ("files/dist.txt", "a.service\n"),
        ];
        assert_eq!(page.copies, expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }
}
