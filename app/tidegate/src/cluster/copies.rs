//! Copies of a node's records: `tidegate cluster backup` and `restore`.

use std::path::{Path, PathBuf};

use admin::records;
use anyhow::{Context, Result, anyhow};

/// Writes a copy of the records of the node with the configuration in `config`.
pub(super) fn backup(config: Option<&Path>, to: &Path) -> Result<String> {
    let folder = folder(config)?;
    let counts = records::backup(&folder, to)?;
    Ok(format!("backed up to {}: {counts}\n", to.display()))
}

/// Puts a copy in place of the records of a node that does not run.
pub(super) fn restore(config: Option<&Path>, from: &Path) -> Result<String> {
    let folder = folder(config)?;
    let (counts, replaced) = records::restore(from, &folder)?;
    let mut text = format!("restored {}: {counts}\n", from.display());
    if let Some(replaced) = replaced {
        let before = replaced.counts.map_or_else(|| "damaged".into(), |counts| counts.to_string());
        text += &format!("the records from before are in {}: {before}\n", replaced.file.display());
    }
    text += "when the node starts, it fetches what other nodes have changed since: of each row, the later change holds\n";
    Ok(text)
}

/// Returns the folder with the records.
fn folder(config: Option<&Path>) -> Result<PathBuf> {
    let (_, config) =
        crate::load(config).map_err(|problems| anyhow!(problems.join("\ntidegate: ")))?;
    config.state_dir.context("state.dir is empty: name the configuration of the node by --config")
}
