//! What `bench/cluster.toml` defines: trackers of which several nodes are one. Its comments explain each key.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::lab::Definition;

/// A system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "systems are started on Linux only")
)]
pub(super) struct SystemDefinition {
    pub(super) name: String,
    #[serde(default)]
    pub(super) limitations: String,
    /// A command that each node's host needs before.
    #[serde(default)]
    pub(super) prepare: Vec<String>,
    pub(super) node: Definition,
    pub(super) shared: Option<Definition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definitions {
    system: Vec<SystemDefinition>,
}

/// Reads them from the folder of definitions.
pub(super) fn read(folder: &Path) -> Result<Vec<SystemDefinition>> {
    let path = folder.join("cluster.toml");
    let shown = path.display();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let all: Definitions = toml::from_str(&text).with_context(|| shown.to_string())?;
    Ok(all.system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_repository_s_definitions() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
        let names: Vec<String> = read(&folder).unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["opentracker, livesync", "chihaya, Redis"]);
    }
}
