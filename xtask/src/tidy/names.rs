//! Files and folders are named for their content. Clippy forbids `mod.rs`.

use super::Finding;
use crate::tree::Tree;
use anyhow::Result;

/// Names that say nothing about the content.
const EMPTY: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "misc", "manager", "service"];

/// No Rust file or folder of one has an empty name.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let stem = file.path.trim_end_matches(".rs");

        if let Some(name) = stem.split('/').find(|name| EMPTY.contains(name)) {
            let message = format!("`{name}` says nothing: name the concept");
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str) -> usize {
        check(&Tree::of(&[(path, "")])).unwrap().len()
    }

    #[test]
    fn finds_empty_names() {
        assert_eq!(count("core/swarm/src/pick.rs"), 0);
        assert_eq!(count("core/swarm/src/utils.rs"), 1);
        assert_eq!(count("core/common/src/lib.rs"), 1);
    }
}
