//! The cluster's secret is changed while it serves.

use anyhow::Result;

use super::super::arrangement::SECRETS;
use super::super::stage::Stage;

/// Clients use a connection id for a minute; those of the load, for 45 s. No node starts afterwards, which would
/// need the old secret to read the log.
const IDS_EXPIRE_S: [u32; 2] = [130, 50];

/// The new secret is accepted by all, then issued by all, then the old one is removed, each by upgrades.
pub(super) fn change(stage: &mut Stage) -> Result<String> {
    let [old, new] = SECRETS;
    for secrets in [&[old, new][..], &[new, old], &[new]] {
        if secrets.len() == 1 {
            let [full_s, short_s] = IDS_EXPIRE_S;
            stage.hold(full_s, short_s);
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
