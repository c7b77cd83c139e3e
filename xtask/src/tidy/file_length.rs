//! The length of Rust files, without tests, and of the README. Clippy limits the length of functions.

use super::Finding;
use crate::tree::{File, Tree};
use anyhow::{Context, Result};

const LINES_MAX: usize = 600;
/// The table of the configuration's keys is one statement, and is looked up rather than read.
const KEYS: &str = "app/config/src/keys.rs";
const KEYS_LINES_MAX: usize = 800;
const README: &str = "README.md";
const README_LINES_MAX: usize = 120;

/// Rust files have at most [`LINES_MAX`] lines, tests not counted, the table of keys [`KEYS_LINES_MAX`] and the README
/// [`README_LINES_MAX`].
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let lines_max = |file: &File| if file.path == KEYS { KEYS_LINES_MAX } else { LINES_MAX };
    let rust = tree.rust().map(|file| (file, lines_without_tests(file).count(), lines_max(file)));
    let readme = tree.file(README).context("README.md is missing")?;
    let files = rust.chain([(readme, readme.text.lines().count(), README_LINES_MAX)]);
    let long = files.filter(|(_, lines, max)| lines > max).map(|(file, lines, max)| {
        let message = format!("{lines} lines without tests, of at most {max}: split the file");
        Finding::new(&file.path, 0, message)
    });
    Ok(long.collect())
}

/// Returns a Rust file's lines up to its inline test module, which comes last (clippy:
/// `items_after_test_module`). A file named `tests.rs`, or below a folder `tests`, contains only tests.
pub(super) fn lines_without_tests(file: &File) -> impl Iterator<Item = &str> {
    let is_test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    let end = file.text.find("\n#[cfg(test)]\nmod ").map_or(file.text.len(), |end| end + 1);
    let has_body = file.text[end..].lines().nth(1).is_none_or(|line| line.ends_with('{'));
    let end = if has_body { end } else { file.text.len() };
    file.text[..if is_test { 0 } else { end }].lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_files_without_their_tests() {
        let body = "x();\n".repeat(600);
        let tests = format!("{body}#[cfg(test)]\nmod tests {{\n{body}}}");
        let readme = (README, "x\n");
        let good = Tree::of(&[readme, ("a.rs", &tests), ("a/tests.rs", &body.repeat(2))]);
        assert_eq!(check(&good).unwrap(), []);
        assert_eq!(check(&Tree::of(&[(README, &"x\n".repeat(121))])).unwrap().len(), 1);
        for bad in [format!("{body}x();\n"), format!("x();\n#[cfg(test)]\nmod tests;\n{body}")] {
            assert_eq!(check(&Tree::of(&[readme, ("a.rs", &bad)])).unwrap().len(), 1);
        }
    }
}
