//! Every crate of the workspace has its entry in `deny.toml`, which names the crates that may depend
//! on it. cargo-deny checks the entries; this rule finds the crates without one.

use super::Finding;
use crate::tree::{Member, Tree};
use anyhow::{Context, Result};

const PATH: &str = "deny.toml";

/// Crates that nothing may depend on, because they are programs, need no entry.
const PROGRAMS: &[&str] = &["app/tidegate", "xtask"];

/// Every member except programs is in `bans.deny` with `wrappers`.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let Some(file) = tree.file(PATH) else { return Ok(Vec::new()) };
    let table: toml::Table = file.text.parse().context(PATH)?;
    let denied = table.get("bans").and_then(|bans| bans.get("deny"));
    let denied = denied.and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let has_entry = |name: &str| {
        denied.iter().any(|entry| {
            let crate_name = entry.get("crate").and_then(toml::Value::as_str);
            crate_name == Some(name) && entry.get("wrappers").is_some()
        })
    };
    let members = tree.members()?;
    let libraries = members.iter().filter(|member| !PROGRAMS.contains(&member.folder.as_str()));
    let missing = libraries.filter(|member| !has_entry(package(member)));
    Ok(missing
        .map(|member| {
            let name = package(member);
            let message = format!("{name} has no entry in bans.deny: name its dependents there");
            Finding::new(PATH, 0, message)
        })
        .collect())
}

fn package(member: &Member) -> &str {
    let package = member.manifest.get("package").and_then(|package| package.get("name"));
    package.and_then(toml::Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(deny: &str) -> usize {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\nmembers = ['core/types', 'xtask']"),
            ("core/types/Cargo.toml", "[package]\nname = 'tidegate-types'"),
            ("xtask/Cargo.toml", "[package]\nname = 'xtask'"),
            (PATH, deny),
        ]);
        check(&tree).unwrap().len()
    }

    #[test]
    fn every_library_needs_an_entry_with_wrappers() {
        let entry = "[bans]\ndeny = [{ crate = 'tidegate-types', wrappers = ['tidegate-wire'] }]";
        assert_eq!(count(entry), 0);
        assert_eq!(count("[bans]\ndeny = [{ crate = 'tidegate-types' }]"), 1);
        assert_eq!(count(""), 1);
    }
}
