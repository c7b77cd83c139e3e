//! Builds the book of `docs/` by mdBook, and checks it: links, anchors, pictures, and that it loads nothing from
//! elsewhere.
//!
//! Pages link to files of the repository, too. These are copied into the book, so that it can be read
//! without the repository and without a network.

mod html;
mod links;

use crate::command::{Tally, command, run};
use crate::setup;
use crate::tree::Tree;
use crate::workspace::target;
use anyhow::{Context, Result};
use links::Book;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The folder of the book in the target folder.
const FOLDER: &str = "book";

/// Builds `target/book`, and checks it.
pub(crate) fn build() -> Result<Tally> {
    setup::install_mdbook()?;
    let folder = target().join(FOLDER);
    let program = setup::mdbook_folder().join("bin/mdbook").display().to_string();
    let place = folder.display().to_string();
    run(command(&[&program, "build", "docs", "--dest-dir", &place]))?;
    let mut files = BTreeMap::new();
    read(&folder, "", &mut files)?;
    let tree = Tree::read()?;
    let Book { changed, findings, checked } = links::check(&files, &tree);
    for (path, content) in changed {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().context("a file without a folder")?)?;
        fs::write(path, content)?;
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("{checked} links of {}", folder.join("index.html").display());
    let failed = findings.len() as u32;
    Ok(Tally { passed: u32::from(failed == 0), failed, flaky: 0 })
}

/// Reads the files of a folder: text by its path, and empty text for others.
fn read(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{name}/"), files)?;
        } else {
            let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
            files.insert(name, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    /// The book is built in CI only where mdBook is; this holds everywhere.
    #[test]
    fn the_book_is_configured_to_load_nothing() {
        let text = fs::read_to_string(root().join("docs/book.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let html = table["output"]["html"].as_table().unwrap();
        for key in ["google-analytics", "mathjax-support", "git-repository-url", "additional-js"] {
            assert!(!html.contains_key(key), "{key}");
        }
    }
}
