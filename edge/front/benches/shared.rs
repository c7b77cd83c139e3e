//! The tracker that the benches serve.

use std::sync::Arc;

use tracker::{Options, Policy, Secrets, StoreOptions, Tracker};

/// The torrents that are announced.
pub(crate) const TORRENTS: usize = 256;
/// The peers of each torrent.
pub(crate) const PEERS: usize = 64;

/// Returns an empty tracker with fixed secrets.
pub(crate) fn tracker() -> Arc<Tracker> {
    let policy = Policy::default();
    let store = StoreOptions {
        shards: 2,
        hash_key: [3; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids: false,
        memory_budget: None,
    };
    let secrets = Secrets {
        connection_ids: [5; 16],
        offers: [6; 16],
        limits: [7; 16],
        sessions: [8; 16],
        previous: None,
    };
    Arc::new(Tracker::new(&Options { policy, store }, &secrets))
}
