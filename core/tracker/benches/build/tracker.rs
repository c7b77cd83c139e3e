//! The tracker of benches, and of tests that use the crate as others do.

use tidegate_tracker::{Options, Policy, Secrets, StoreOptions, Tracker};

/// Returns an empty tracker with the default policy and fixed secrets. `memory_budget` is that of its store, bytes.
pub(crate) fn tracker(shards: usize, keep_peer_ids: bool, memory_budget: Option<u64>) -> Tracker {
    let policy = Policy::default();
    let store = StoreOptions {
        shards,
        hash_key: [1; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids,
        memory_budget,
    };
    let secrets = Secrets {
        connection_ids: [2; 16],
        offers: [3; 16],
        limits: [4; 16],
        sessions: [8; 16],
        previous: None,
    };
    Tracker::new(&Options { policy, store }, &secrets)
}
