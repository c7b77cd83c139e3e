//! Files and folders are named for what is in them, and `foo.rs` lies beside `foo/`.

use super::Finding;
use crate::workspace::Tree;
use anyhow::Result;

/// Names that say nothing: whatever is put there belongs somewhere else.
const EMPTY: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "misc", "manager", "service"];

/// No `mod.rs`, and no empty names for Rust files and their folders.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let stem = file.path.trim_end_matches(".rs");
        if stem.ends_with("/mod") {
            findings.push(Finding::new(&file.path, 0, "no mod.rs: `foo.rs` lies beside `foo/`"));
        }
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
    fn names_say_what_is_in_them() {
        assert_eq!(count("core/swarm/src/pick.rs"), 0);
        assert_eq!(count("core/swarm/src/pick/mod.rs"), 1);
        assert_eq!(count("core/swarm/src/utils.rs"), 1);
        assert_eq!(count("core/common/src/lib.rs"), 1);
    }
}
