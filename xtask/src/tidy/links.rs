//! Relative links in documents point to tracked files.

use super::Finding;
use crate::tree::Tree;
use anyhow::Result;

/// Every `](target)` in a Markdown file, except in code, is a file or folder of the tree.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.with_extension(".md") {
        let mut in_block = false;
        for (line, text) in (1..).zip(file.text.lines()) {
            if text.trim_start().starts_with("```") {
                in_block = !in_block;
            }
            if in_block {
                continue;
            }
            for target in targets(text) {
                if !leads_somewhere(tree, &file.path, target) {
                    let message = format!("dead link: {target}");
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    Ok(findings)
}

/// Returns the targets of a line's links, except in inline code.
fn targets(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    let links = outside_code.flat_map(|piece| piece.split("](").skip(1));
    links.map(|link| link.split([')', ' ']).next().unwrap_or_default()).collect()
}

/// Returns whether a link from the file at `from` ends in the tree. External addresses are not checked.
fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return true;
    }
    let mut place: Vec<&str> = from.split('/').collect();
    place.pop();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." if place.pop().is_none() => return false,
            ".." => {}
            name => place.push(name),
        }
    }
    let place = place.join("/");
    let inside = format!("{place}/");
    tree.files.iter().any(|file| file.path == place || file.path.starts_with(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(line: &str) -> usize {
        let tree = Tree::of(&[("docs/a.md", line), ("core/x.rs", ""), ("docs/b/c.md", "")]);
        check(&tree).unwrap().len()
    }

    #[test]
    fn passes_links_to_tracked_files() {
        for good in [
            "[x](../core/x.rs#L3) and [folder](b) and [c](b/c.md)",
            "[`x`](../core/x.rs) [out](https://example.org/x) [here](#head)",
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
    }
}
