//! One name, one concept: no crate has two public types of the same name.

use super::Finding;
use super::file_length::is_test_file;
use super::source::{Source, line_of, words};
use crate::tree::Tree;
use anyhow::Result;
use std::collections::BTreeMap;

const KEYWORDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// Within a crate, public types have distinct names. `pub(crate)` and `pub(super)` count as public;
/// test modules and the types of function bodies do not count.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for member in tree.members()? {
        let sources = format!("{}/src/", member.folder);
        let files = tree.rust().filter(|file| file.path.starts_with(&sources));
        // Types by name, with the first file and line.
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for file in files.filter(|file| !is_test_file(&file.path)) {
            let code = Source::new(&file.text).code_without_tests();
            for (name, line) in public_types(&code) {
                let place = format!("{}:{line}", file.path);
                if let Some(first) = known.get(name) {
                    let message =
                        format!("`{name}` is also a type at {first}: give the two distinct names");
                    findings.push(Finding::new(&file.path, line, message));
                } else {
                    known.insert(name.to_owned(), place);
                }
            }
        }
    }
    Ok(findings)
}

/// Returns the names of public types and their lines.
fn public_types(code: &str) -> Vec<(&str, usize)> {
    let mut types = Vec::new();
    for at in words(code, "pub") {
        let mut rest = code[at + "pub".len()..].trim_start();
        if rest.starts_with('(') {
            rest = rest.split_once(')').map_or("", |(_, rest)| rest).trim_start();
        }
        let Some((keyword, rest)) = rest.split_once(char::is_whitespace) else { continue };
        if !KEYWORDS.contains(&keyword) {
            continue;
        }
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        // A macro's `$name` is not a name.
        if end > 0 {
            types.push((&rest[..end], line_of(code, at)));
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let manifests = [
            ("Cargo.toml", "[workspace]\nmembers = ['a', 'b']"),
            ("a/Cargo.toml", ""),
            ("b/Cargo.toml", ""),
        ];
        let tree = Tree::of(&[manifests.as_slice(), files].concat());
        check(&tree).unwrap().into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn finds_types_of_any_kind_and_public_visibility() {
        for other in ["pub enum Same {}", "pub(crate) trait Same {}", "pub(in x) type Same<T> = T;"]
        {
            let found = messages(&[("a/src/lib.rs", "pub struct Same;"), ("a/src/x.rs", other)]);
            assert_eq!(found.len(), 1, "{other}");
            assert!(found[0].contains("a/src/lib.rs:1"), "{found:?}");
        }
    }

    #[test]
    fn passes_other_crates_private_types_and_tests() {
        let found = messages(&[
            ("a/src/lib.rs", "pub struct Same;"),
            ("a/src/x.rs", "struct Same; impl X { type Same = u8; }"),
            ("a/src/y.rs", "#[cfg(test)]\nmod tests { pub struct Same; }"),
            ("a/src/y/tests.rs", "pub struct Same;"),
            ("a/tests/z.rs", "pub struct Same;"),
            ("b/src/lib.rs", "pub struct Same; // pub struct Same;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
