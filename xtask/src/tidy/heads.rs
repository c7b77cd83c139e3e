//! The first words of comments: a comment is a sentence, not a note that begins with a question word.

use super::Finding;
use crate::tree::{File, Tree};
use anyhow::Result;

/// First words that make a note of a comment.
const WORDS: &[&str] = &["What", "Whether", "How", "Which", "Who", "Lets", "Gives"];

/// No comment of a Rust file begins with one of [`WORDS`].
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    Ok(tree.rust().flat_map(check_file).collect())
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        let comment = line.trim_start().strip_prefix("//");
        let text = comment.map_or("", |text| text.trim_start_matches(['/', '!']).trim_start());
        let first = text.split_whitespace().next().unwrap_or_default();
        // Lines that continue a comment may begin with any word.
        if !is_inside && WORDS.contains(&first) {
            let message = format!("a comment begins with \"{first}\": write a sentence");
            findings.push(Finding::new(&file.path, number, message));
        }
        is_inside = !text.is_empty();
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&Tree::of(&[(path, text)])).unwrap();
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_comments_that_are_notes() {
        let text = "//! How it works.\n\n/// Whether it is.\nfn f() {\n    // Lets go.\n}\n";
        assert_eq!(lines("core/a.rs", text), [1, 3, 5]);
        assert_eq!(lines("core/a.rs", "/// Sets\n///\n/// Which of them.\nfn f() {}\n"), [3]);
    }

    #[test]
    fn passes_sentences() {
        let text = "/// Returns true if\n/// What follows is.\nfn f() { \"What\" }\n// Whoever\n";
        assert_eq!(lines("core/a.rs", text), [0; 0]);
    }
}
