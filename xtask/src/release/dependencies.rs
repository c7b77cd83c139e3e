//! The crates that are linked into the programs, as cargo knows them.

use super::{ARCHITECTURES, PROGRAMS};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trials::command::{command, output};
use trials::workspace::root;

/// Crates that name a file instead of a licence, with the licence in it. `deny.toml` has the same.
const LICENSED_BY_FILE: [(&str, &str); 1] = [("webpki", "ISC")];

/// A crate that is linked into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) license: String,
    pub(super) repository: Option<String>,
    /// The folder of its source.
    pub(super) folder: PathBuf,
    /// True for a crate of the workspace.
    pub(super) is_own: bool,
    /// The ids of crates that it needs.
    pub(super) needs: BTreeSet<String>,
}

/// Returns all crates by cargo's ids, those of the workspace included. Crates that only run at build time or only in
/// tests are left out.
pub(super) fn linked() -> Result<BTreeMap<String, Dependency>> {
    let mut linked = BTreeMap::new();
    for architecture in ARCHITECTURES {
        let words = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform"];
        let metadata = output(command(&[&words[..], &[architecture.target]].concat()))?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        add(&metadata, &mut linked).context("metadata of an unknown form")?;
    }
    Ok(linked)
}

/// Adds what the programs of the metadata need.
fn add(metadata: &Value, linked: &mut BTreeMap<String, Dependency>) -> Option<()> {
    let by_id = |list: &Value| -> Option<BTreeMap<String, Value>> {
        let items = list.as_array()?.iter();
        items.map(|item| Some((item["id"].as_str()?.to_owned(), item.clone()))).collect()
    };
    let packages = by_id(&metadata["packages"])?;
    let nodes = by_id(&metadata["resolve"]["nodes"])?;
    let is_program =
        |package: &Value| package["name"].as_str().is_some_and(|name| PROGRAMS.contains(&name));
    let programs = packages.iter().filter(|(_, package)| is_program(package));
    let mut waiting: Vec<String> = programs.map(|(id, _)| id.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        let package = packages.get(&id)?;
        let is_macro = |target: &Value| {
            target["kind"].as_array().is_some_and(|it| it.contains(&"proc-macro".into()))
        };
        if !seen.insert(id.clone()) || package["targets"].as_array()?.iter().any(is_macro) {
            continue;
        }
        let is_linked = |dependency: &&Value| {
            let kinds = dependency["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        let needs = nodes.get(&id)?["deps"].as_array()?.iter().filter(is_linked);
        let needs: BTreeSet<String> =
            needs.map(|it| Some(it["pkg"].as_str()?.to_owned())).collect::<Option<_>>()?;
        waiting.extend(needs.iter().cloned());
        let mut dependency = dependency(package)?;
        if let Some(known) = linked.get(&id) {
            dependency.needs.extend(known.needs.iter().cloned());
        }
        dependency.needs.extend(needs);
        linked.insert(id, dependency);
    }
    Some(())
}

fn dependency(package: &Value) -> Option<Dependency> {
    let text = |key: &str| package[key].as_str().map(str::to_owned);
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
    let name = text("name")?;
    let of_file = || LICENSED_BY_FILE.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
    let license = text("license").or_else(of_file).unwrap_or_default();
    Some(Dependency {
        name,
        version: text("version")?,
        // The older form of `OR`.
        license: license.replace('/', " OR "),
        repository: text("repository"),
        is_own: folder.starts_with(root()),
        folder,
        needs: BTreeSet::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn follows_what_is_linked() {
        let package = |id: &str, kind: &str| {
            json!({
                "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "manifest_path": format!("/crates/{id}/Cargo.toml"), "targets": [{ "kind": [kind] }],
            })
        };
        let needs = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("tidegate", "bin"), package("a", "lib"), package("b", "lib"), package("c", "lib"),
                package("derive", "proc-macro"), package("syn", "lib"),
            ],
            "resolve": { "nodes": [
                { "id": "tidegate", "deps": [
                    needs("a", Value::Null), needs("c", "dev".into()), needs("derive", Value::Null),
                ] },
                { "id": "a", "deps": [needs("b", Value::Null), needs("c", "build".into())] },
                { "id": "b", "deps": [] },
                { "id": "c", "deps": [] },
                { "id": "derive", "deps": [needs("syn", Value::Null)] },
                { "id": "syn", "deps": [] },
            ] },
        });
        let mut linked = BTreeMap::new();
        add(&metadata, &mut linked).unwrap();
        assert_eq!(linked.keys().collect::<Vec<_>>(), ["a", "b", "tidegate"]);
        assert_eq!(linked["a"].license, "MIT OR Apache-2.0");
        assert!(linked["a"].needs.contains("b") && !linked["a"].is_own);
    }
}
