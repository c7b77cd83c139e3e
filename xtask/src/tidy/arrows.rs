//! Which room may know which: the arrows of ARCHITECTURE.md, read from the `Cargo.toml` files.
//!
//! A new arrow is a decision: it needs a record in `docs/decisions/` before it gets its place here.

use super::Finding;
use crate::workspace::{Member, Tree};
use anyhow::Result;

/// Every room with the rooms that it may depend on, dev-dependencies included.
const ARROWS: &[(&str, &[&str])] = &[
    ("core/primitives", &[]),
    ("core/types", &[]),
    ("core/wire", &["core/types"]),
    ("core/swarm", &["core/primitives", "core/types"]),
    ("core/tracker", &["core/primitives", "core/types", "core/swarm"]),
    ("edge/net", &["core/primitives"]),
    ("edge/front", &["core/types", "core/wire", "core/tracker", "edge/net", "testing/harness"]),
    ("edge/admin", &["core/types", "core/tracker"]),
    ("tools/client", &["core/types", "core/wire"]),
    ("tools/load", &["core/types", "core/wire", "tools/client"]),
    ("tools/compare", &["tools/load"]),
    (
        "app/tidegate",
        &[
            "core/primitives",
            "core/types",
            "core/wire",
            "core/swarm",
            "core/tracker",
            "edge/net",
            "edge/front",
            "edge/admin",
            "tools/client",
            "tools/load",
            "tools/compare",
            "testing/harness",
        ],
    ),
    ("testing/harness", &[]),
    ("xtask", &["testing/harness"]),
];

const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Every member has its line in the table and keeps to it.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let members = tree.members()?;
    let mut findings = Vec::new();
    for member in &members {
        let path = format!("{}/Cargo.toml", member.folder);
        let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| *room == member.folder) else {
            let message = "this room has no line in xtask/src/tidy/arrows.rs: say what it may know";
            findings.push(Finding::new(&path, 0, message));
            continue;
        };
        for other in members.iter().filter(|other| depends(member, other)) {
            if !allowed.contains(&other.folder.as_str()) {
                let message = format!(
                    "{} may not know {}: a new arrow needs a decision record",
                    member.folder, other.folder
                );
                findings.push(Finding::new(&path, 0, message));
            }
        }
    }
    Ok(findings)
}

/// Whether `member` names `other`, in whatever table and under whatever name.
fn depends(member: &Member, other: &Member) -> bool {
    let package = package(other);
    let short = other.folder.rsplit('/').next().unwrap_or_default();
    let names = |table: &toml::Table| {
        table.iter().any(|(key, value)| {
            let renamed = value.get("package").and_then(toml::Value::as_str);
            key == short || key == package || renamed == Some(package)
        })
    };
    tables(&member.manifest).into_iter().any(names)
}

fn package(member: &Member) -> &str {
    let package = member.manifest.get("package").and_then(|package| package.get("name"));
    package.and_then(toml::Value::as_str).unwrap_or_default()
}

/// All dependency tables of a manifest, those for single targets too.
fn tables(manifest: &toml::Table) -> Vec<&toml::Table> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets =
        targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| TABLES.iter().filter_map(|name| table.get(*name)?.as_table()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(wire: &str) -> Vec<String> {
        let root = "[workspace]\nmembers = ['core/types', 'core/wire', 'core/swarm']";
        let tree = Tree::of(&[
            ("Cargo.toml", root),
            ("core/types/Cargo.toml", "[package]\nname = 'tidegate-types'"),
            ("core/swarm/Cargo.toml", "[package]\nname = 'tidegate-swarm'"),
            ("core/wire/Cargo.toml", wire),
        ]);
        check(&tree).unwrap().into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_arrow_of_the_table_is_fine() {
        assert_eq!(findings("[dependencies]\ntypes.workspace = true"), [""; 0]);
    }

    #[test]
    fn any_other_arrow_is_not() {
        for bad in [
            "[dependencies]\nswarm.workspace = true",
            "[dev-dependencies]\nstore = { package = 'tidegate-swarm', path = '../swarm' }",
            "[target.'cfg(unix)'.dependencies]\ntidegate-swarm = { path = '../swarm' }",
        ] {
            assert_eq!(findings(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_new_room_must_say_what_it_may_know() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\nmembers = ['core/new']"),
            ("core/new/Cargo.toml", "[package]\nname = 'new'"),
        ]);
        assert_eq!(check(&tree).unwrap().len(), 1);
    }
}
