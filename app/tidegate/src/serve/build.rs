//! Parts of the start that need nothing but the configuration.

use anyhow::{Context, Result, bail};
use net::process::InheritedSockets;
use tracing::info;
use tracker::{Options, Secrets, SharedSecrets, StoreOptions, Tracker};

use super::handoff::HandoffState;
use config::{Config, worker_count};

/// Checks for inherited sockets of no listener: of the old process, or a mistake of the supervisor's.
pub(super) fn check_leftover(inherited: InheritedSockets, is_upgrade: bool) -> Result<()> {
    let left = inherited.into_unclaimed();
    if left.is_empty() {
        return Ok(());
    }
    let left = left.join(", ");
    if is_upgrade {
        info!(sockets = left, "closed listeners that the configuration no longer has");
        return Ok(());
    }
    bail!(
        "inherited sockets without a listener: {left}: give the socket unit and the configuration the \
         same addresses"
    )
}

/// Returns the tracker. In a cluster, keys that other nodes need derive from its secret: these are `shared`.
pub(super) fn new_tracker(
    config: &Config,
    handoff: &HandoffState,
    shared: Option<SharedSecrets>,
) -> Result<Tracker> {
    let mut secrets = [[0; 16]; 3];
    getrandom::fill(secrets.as_flattened_mut())
        .context("cannot get random numbers from the system")?;
    let [hash_key, offers, limits] = secrets;
    let workers = worker_count(config.udp_workers) + worker_count(config.http_workers);
    let store = StoreOptions {
        // One per thread that announces: two threads seldom need the same shard, and the announces of a
        // batch that share a shard wait for memory together.
        shards: workers,
        hash_key,
        peer_lifetime_s: config.policy.peer_lifetime_s,
        web_lifetime_s: config.policy.web_lifetime_s(),
        keep_peer_ids: config.keep_peer_ids,
        memory_budget: config.memory_budget,
    };
    let HandoffState { connection_ids, sessions, .. } = *handoff;
    let offers = shared.map_or(offers, |shared| shared.offers);
    let keys = Secrets { connection_ids, offers, limits, sessions, previous: None };
    Ok(Tracker::new(&Options { policy: config.policy, store }, &keys))
}
