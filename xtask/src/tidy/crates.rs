//! Every crate of the workspace is described by ARCHITECTURE.md, and libraries have an entry in `deny.toml`
//! that names the crates that may depend on them. cargo-deny checks the entries; this rule finds crates
//! without one.

use super::Finding;
use crate::tree::Tree;
use anyhow::{Context, Result};

const DENY: &str = "deny.toml";
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Crates that nothing may depend on, because they are programs, need no entry.
const PROGRAMS: &[&str] = &["app/tidegate", "tools/import", "fuzz", "xtask"];

/// Every member is named in ARCHITECTURE.md. Except programs, it is in `bans.deny` with `wrappers`.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let text = |path| tree.file(path).map_or("", |file| &file.text);
    let table: toml::Table = text(DENY).parse().context(DENY)?;
    let denied = table.get("bans").and_then(|bans| bans.get("deny")?.as_array());
    let has_entry = |name: &str| {
        denied.into_iter().flatten().any(|entry| {
            let is_it = entry.get("crate").and_then(toml::Value::as_str) == Some(name);
            is_it && entry.get("wrappers").is_some()
        })
    };
    let mut findings = Vec::new();
    for (folder, name) in tree.members()? {
        if !PROGRAMS.contains(&folder.as_str()) && !has_entry(&name) {
            let message = format!("{name} has no entry in bans.deny: name its dependents there");
            findings.push(Finding::new(DENY, 0, message));
        }
        if !text(ARCHITECTURE).contains(&folder) {
            findings.push(Finding::new(ARCHITECTURE, 0, format!("{folder} is not mentioned")));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(deny: &str, architecture: &str) -> usize {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\nmembers = ['core/types', 'xtask']"),
            ("core/types/Cargo.toml", "[package]\nname = 'tidegate-types'"),
            ("xtask/Cargo.toml", "[package]\nname = 'xtask'"),
            (DENY, deny),
            (ARCHITECTURE, architecture),
        ]);
        check(&tree).unwrap().len()
    }

    #[test]
    fn every_library_needs_an_entry_and_every_crate_a_description() {
        let entry = "[bans]\ndeny = [{ crate = 'tidegate-types', wrappers = ['tidegate-wire'] }]";
        assert_eq!(count(entry, "`core/types`, `xtask`"), 0);
        assert_eq!(count("[bans]\ndeny = [{ crate = 'tidegate-types' }]", "core/types, xtask"), 1);
        assert_eq!(count("", "core/types"), 2);
    }
}
