//! One name, one concept: no crate has two public types of the same name.

use super::Finding;
use super::file_length::lines_without_tests;
use crate::tree::{File, Tree};
use anyhow::Result;
use std::collections::BTreeMap;

const KEYWORDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// Files whose types stand in for others of the same name, of which only one is compiled.
const ALTERNATIVES: &[&str] = &[
    "app/tidegate/src/without/systems.rs",
    "app/tidegate/src/without/token_keys.rs",
    "app/tidegate/src/without/xdp.rs",
    "edge/admin/src/api/operation.rs",
    "edge/net/src/process/unsupported.rs",
    "edge/xdp/src/unsupported.rs",
    "tools/load/src/udp/datagram_io/portable.rs",
];

/// Within a crate, public types have distinct names. `pub(crate)` and `pub(super)` count as public;
/// test modules and the types of function bodies do not count.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (folder, _) in tree.members()? {
        let sources = format!("{folder}/src/");
        // Types by name, with the first file and line.
        let mut known: BTreeMap<&str, String> = BTreeMap::new();
        let is_checked =
            |file: &&File| file.path.starts_with(&sources) && !ALTERNATIVES.contains(&&*file.path);
        for file in tree.rust().filter(is_checked) {
            let types = (1..).zip(lines_without_tests(file));
            for (line, name) in types.filter_map(|(line, text)| Some((line, public_type(text)?))) {
                if let Some(first) = known.get(name) {
                    let message =
                        format!("`{name}` is also a type at {first}: give the two distinct names");
                    findings.push(Finding::new(&file.path, line, message));
                } else {
                    known.insert(name, format!("{}:{line}", file.path));
                }
            }
        }
    }
    Ok(findings)
}

/// Returns the name of the public type that a line defines. rustfmt puts visibility, keyword and name on one
/// line.
fn public_type(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub")?;
    if rest.starts_with('(') {
        rest = rest.split_once(')')?.1;
    }
    let (keyword, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
    // A macro's `$name` is not a name.
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (KEYWORDS.contains(&keyword) && !name.is_empty()).then_some(name)
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
            ("a/src/x.rs", "struct Same;\nimpl X {\n    type Same = u8;\n}"),
            ("a/src/y.rs", "x();\n#[cfg(test)]\nmod tests {\n    pub struct Same;\n}"),
            ("a/src/y/tests.rs", "pub struct Same;"),
            ("a/tests/z.rs", "pub struct Same;"),
            ("b/src/lib.rs", "pub struct Same;\n// pub struct Same;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
