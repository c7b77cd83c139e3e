//! How long functions and files may be, and how many parameters a function may take.
//!
//! Half of all functions in good code have under ten lines whatever the limit; the limit is for the
//! tail, which is where readers get lost.

use super::Finding;
use super::source::Source;
use crate::workspace::{File, Tree};
use anyhow::Result;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const PARAMETERS_MAX: usize = 5;

/// Functions are short enough.
pub(super) fn functions(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in Source::new(&file.text).functions() {
            if function.lines > FUNCTION_LINES_MAX {
                let (name, lines) = (function.name, function.lines);
                let message =
                    format!("`{name}` has {lines} lines of {FUNCTION_LINES_MAX}: split it");
                findings.push(Finding::new(&file.path, function.line, message));
            }
        }
    }
    Ok(findings)
}

/// Functions take few enough parameters.
pub(super) fn parameters(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in Source::new(&file.text).functions() {
            if function.parameters > PARAMETERS_MAX {
                let (name, count) = (function.name, function.parameters);
                let message =
                    format!("`{name}` takes {count} of {PARAMETERS_MAX} parameters: take a struct");
                findings.push(Finding::new(&file.path, function.line, message));
            }
        }
    }
    Ok(findings)
}

/// Files are short enough, tests not counted.
pub(super) fn files(tree: &Tree) -> Result<Vec<Finding>> {
    let long = tree.rust().filter_map(|file| {
        let lines = lines_without_tests(file);
        let message =
            format!("{lines} lines of {FILE_LINES_MAX} without tests: split it by concept");
        (lines > FILE_LINES_MAX).then(|| Finding::new(&file.path, 0, message))
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

/// Whether a file holds nothing but tests: `tests.rs`, or anything below a `tests` folder.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(inner_lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    x();\n".repeat(inner_lines))
    }

    #[test]
    fn a_function_may_have_70_lines() {
        let good = Tree::of(&[("a.rs", &function(68))]);
        assert_eq!(functions(&good).unwrap(), []);
        let bad = Tree::of(&[("a.rs", &function(69))]);
        assert_eq!(functions(&bad).unwrap()[0].line, 1);
    }

    #[test]
    fn a_function_may_take_5_parameters() {
        let good = Tree::of(&[("a.rs", "fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8) {}")]);
        assert_eq!(parameters(&good).unwrap(), []);
        let bad = Tree::of(&[("a.rs", "fn f(a: u8, b: u8, c: u8, d: u8, e: u8, g: u8) {}")]);
        assert_eq!(parameters(&bad).unwrap().len(), 1);
    }

    #[test]
    fn a_file_may_have_600_lines_and_its_tests() {
        let body = "x();\n".repeat(600);
        let tests = format!("{body}#[cfg(test)]\nmod tests {{\n{body}}}");
        let good = Tree::of(&[("a.rs", &tests), ("a/tests.rs", &body.repeat(2))]);
        assert_eq!(files(&good).unwrap(), []);
        let bad = Tree::of(&[("a.rs", &format!("{body}x();\n"))]);
        assert_eq!(files(&bad).unwrap().len(), 1);
    }
}
