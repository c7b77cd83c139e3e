//! Relative links in documents lead to something that is tracked.

use super::Finding;
use crate::workspace::Tree;
use anyhow::Result;

/// Every `](target)` in a Markdown file, code aside, is a file or folder of the tree.
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

/// What the links of a line point at, inline code aside.
fn targets(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    let links = outside_code.flat_map(|piece| piece.split("](").skip(1));
    links.map(|link| link.split([')', ' ']).next().unwrap_or_default()).collect()
}

/// Whether a link from the file at `from` ends in the tree. Addresses outside are not looked at.
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
    fn links_that_lead_somewhere() {
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
    fn links_that_do_not() {
        assert_eq!(dead("[x](core/x.rs)"), 1);
        assert_eq!(dead("[`x`](../../../x.rs \"title\") [y](b/d.md)"), 2);
    }
}
