//! The length of files, without tests. Clippy limits the length of functions.

use super::Finding;
use super::source::Source;
use crate::tree::{File, Tree};
use anyhow::Result;

const LINES_MAX: usize = 600;

/// Files have at most [`LINES_MAX`] lines, tests not counted.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let long = tree.rust().filter_map(|file| {
        let lines = lines_without_tests(file);
        let message =
            format!("{lines} lines without tests, of at most {LINES_MAX}: split the file");
        (lines > LINES_MAX).then(|| Finding::new(&file.path, 0, message))
    });
    Ok(long.collect())
}

fn lines_without_tests(file: &File) -> usize {
    if is_test_file(&file.path) {
        return 0;
    }
    let source = Source::new(&file.text);
    let lines = |text: &str| text.matches('\n').count();
    let tests: usize =
        source.test_modules().into_iter().map(|range| lines(&source.code[range])).sum();
    lines(&file.text) - tests
}

/// Returns whether a file contains only tests: `tests.rs`, or any file below a folder `tests`.
pub(super) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_files_without_their_tests() {
        let body = "x();\n".repeat(600);
        let tests = format!("{body}#[cfg(test)]\nmod tests {{\n{body}}}");
        let good = Tree::of(&[("a.rs", &tests), ("a/tests.rs", &body.repeat(2))]);
        assert_eq!(check(&good).unwrap(), []);
        let bad = Tree::of(&[("a.rs", &format!("{body}x();\n"))]);
        assert_eq!(check(&bad).unwrap().len(), 1);
    }
}
