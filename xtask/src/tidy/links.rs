//! Relative links in documents point to tracked files, and to headings that these have.
//!
//! The book of `docs/` is made of these documents, so its links are checked here, too.

use super::Finding;
use crate::tree::Tree;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Every `](target)` in a Markdown file, except in code, is a file or folder of the tree. An anchor is that of a heading
/// in a Markdown file.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let documents = tree.with_extension(".md");
    let headings: BTreeMap<&str, BTreeSet<String>> =
        documents.map(|file| (&*file.path, anchors(&file.text))).collect();
    let mut findings = Vec::new();
    for file in tree.with_extension(".md") {
        for (line, text) in lines_outside_code(&file.text) {
            for target in targets(text) {
                if !leads_somewhere(tree, &headings, &file.path, target) {
                    let message = format!("dead link: {target}");
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    Ok(findings)
}

/// Returns the lines of a Markdown text with their numbers, except those of fenced blocks.
fn lines_outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// Returns the anchors of a document's headings, as mdBook and code hosts name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in lines_outside_code(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading.trim());
        // Headings with the same text are numbered.
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// Returns the anchor of a heading: its visible words in lower case, with hyphens between them.
fn anchor(heading: &str) -> String {
    let targets = targets(heading);
    let visible = targets.iter().fold(heading.to_owned(), |text, target| text.replace(target, ""));
    let is_part = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let part = |c: char| if c == ' ' { '-' } else { c.to_ascii_lowercase() };
    visible.chars().filter(is_part).map(part).collect()
}

/// Returns the targets of a line's links, except in inline code.
fn targets(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    let links = outside_code.flat_map(|piece| piece.split("](").skip(1));
    links.map(|link| link.split([')', ' ']).next().unwrap_or_default()).collect()
}

/// Returns true if a link from the file at `from` ends in the tree. External addresses are not checked.
fn leads_somewhere(
    tree: &Tree,
    headings: &BTreeMap<&str, BTreeSet<String>>,
    from: &str,
    target: &str,
) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let place = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
    let Some(place) = place else { return false };
    if let Some(anchors) = headings.get(&*place) {
        return anchor.is_empty() || anchors.contains(anchor);
    }
    let inside = format!("{place}/");
    tree.files.iter().any(|file| file.path == place || file.path.starts_with(&inside))
}

/// Returns the path that a link from the file `from` leads to, or `None` if that is above the root.
pub(crate) fn resolve(from: &str, target: &str) -> Option<String> {
    let mut place: Vec<&str> = from.split('/').collect();
    place.pop();
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(place.pop()?),
            name => place.push(name),
        }
    }
    Some(place.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(line: &str) -> usize {
        let tree = Tree::of(&[
            ("docs/a.md", line),
            ("core/x.rs", ""),
            ("docs/b/c.md", "# A `b`: [c](../a.md)\n# A b c\n"),
        ]);
        check(&tree).unwrap().len()
    }

    #[test]
    fn passes_links_to_tracked_files() {
        for good in [
            "[x](../core/x.rs#L3) and [folder](b) and [c](b/c.md)",
            "[`x`](../core/x.rs) [out](https://example.org/x)",
            "## He_ad two\n[here](#he_ad-two) [c](b/c.md#a-b-c) [once more](b/c.md#a-b-c-1)",
            "`[not](a/link)`",
            "```\n[not](a/link)\n```",
        ] {
            assert_eq!(dead(good), 0, "{good}");
        }
    }

    #[test]
    fn finds_dead_links() {
        assert_eq!(dead("[x](core/x.rs)"), 1);
        assert_eq!(dead("[`x`](../../../x.rs \"title\") [y](b/d.md)"), 2);
        assert_eq!(dead("```\n# no\n```\n[x](#no) [c](b/c.md#d)"), 2);
    }
}
