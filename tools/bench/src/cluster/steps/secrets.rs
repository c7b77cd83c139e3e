//! The cluster's secret is changed while it serves.

use anyhow::Result;

use super::super::arrangement::SECRETS;
use super::super::stage::Stage;

/// The old secret is removed this much later. A node that starts reads what the log has of the last two minutes:
/// if it could read only the later half of it, a peer of the first half could come back. Connection ids of clients
/// expire sooner.
const OLD_IS_READ_S: u32 = 130;

/// The new secret is accepted by all, then issued by all, then the old one is removed, each by upgrades.
pub(super) fn change(stage: &mut Stage) -> Result<String> {
    let [old, new] = SECRETS;
    for secrets in [&[old, new][..], &[new, old], &[new]] {
        if secrets.len() == 1 {
            stage.hold(OLD_IS_READ_S, OLD_IS_READ_S);
        }
        for node in stage.cluster.numbers() {
            stage.cluster.set_secrets(node, secrets)?;
            stage.cluster.tracker(node)?.upgrade()?;
        }
        stage.hold(5, 1);
    }
    Ok("a second secret added, made the first, the old one removed, by three upgrades of each node"
        .into())
}
