//! Leftovers of unfinished work that clippy does not find.

use super::Finding;
use super::source::{Source, line_of, words};
use crate::tree::Tree;
use anyhow::Result;

/// In code. An ignored test tests nothing; a test that should panic passes with any panic.
const CODE: &[(&str, &str)] = &[
    ("#[ignore", "run the test, or remove it"),
    ("#[should_panic", "return an error and check that"),
];

/// In comments. Issues are not forgotten, comments are.
const COMMENTS: &[&str] = &["FIXME", "XXX", "TODO", "HACK"];

/// Rust files and scripts have no leftovers.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut marks = |path: &str, comments: &str| {
        for mark in COMMENTS {
            for at in words(comments, mark) {
                let message = format!("{mark} in a comment: do it, or open an issue");
                findings.push(Finding::new(path, line_of(comments, at), message));
            }
        }
    };
    for file in tree.rust() {
        marks(&file.path, &Source::new(&file.text).comments);
    }
    for end in [".py", ".sh", ".toml", ".yml"] {
        tree.with_extension(end).for_each(|file| marks(&file.path, &file.text));
    }
    for file in tree.rust() {
        let code = Source::new(&file.text).code;
        for (left, instead) in CODE {
            let places = words(&code, left).into_iter();
            findings.extend(places.map(|at| {
                Finding::new(
                    &file.path,
                    line_of(&code, at),
                    format!("`{left}` left over: {instead}"),
                )
            }));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).unwrap().len()
    }

    #[test]
    fn finds_leftovers() {
        assert_eq!(count("a.rs", "#[ignore = \"slow\"]\nfn f() {}"), 1);
        assert_eq!(count("a.rs", concat!("// TO", "DO: later\n")), 1);
        assert_eq!(count("a.py", concat!("# FIX", "ME\n")), 1);
    }

    #[test]
    fn passes_names_and_literals() {
        assert_eq!(count("a.rs", "let mastodon = \"#[ignore]\";"), 0);
        assert_eq!(count("a.md", concat!("TO", "DO")), 0);
    }
}
