//! The pages of the book: its summary lists each file of `docs/` once.

use super::Finding;
use crate::tree::Tree;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Every `docs/**/*.md` is listed in the summary. `links` finds those that are listed and not there.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let summary = tree.file(SUMMARY).context("no docs/SUMMARY.md")?;
    let mut listed = BTreeMap::new();
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(summary.text.lines()) {
        let Some((_, rest)) = text.split_once("](") else { continue };
        let page = rest.trim_end_matches(')');
        if listed.insert(format!("docs/{page}"), line).is_some() {
            findings.push(Finding::new(SUMMARY, line, format!("{page} is listed twice")));
        }
    }
    for file in tree.with_extension(".md") {
        let is_page = file.path.starts_with("docs/") && file.path != SUMMARY;
        if is_page && !listed.contains_key(&file.path) {
            let message = "not in the book: add a line to docs/SUMMARY.md";
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(summary: &str) -> Vec<(String, usize)> {
        let pages = [(SUMMARY, summary), ("docs/a.md", ""), ("docs/b/c.md", ""), ("README.md", "")];
        let findings = check(&Tree::of(&pages)).unwrap();
        findings.into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn every_page_is_listed_once() {
        assert_eq!(found("# S\n\n[a](a.md)\n\n- [b](b/c.md)\n"), []);
        assert_eq!(found("[a](a.md)\n"), [("docs/b/c.md".to_owned(), 0)]);
        assert_eq!(found("[a](a.md)\n- [b](b/c.md)\n- [a](a.md)\n"), [(SUMMARY.to_owned(), 3)]);
    }
}
