//! The cluster's secret is changed while it serves.

use anyhow::Result;

use super::super::stage::Stage;

/// The operator changes the secret by one command.
pub(super) fn change(stage: &mut Stage) -> Result<String> {
    let said = stage.cluster.change_secret()?;
    stage.hold(20, 5);
    Ok(format!("`tidegate cluster rotate-secret`: {}", said.trim_end()))
}
