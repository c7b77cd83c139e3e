//! Parts that all tests share: a tracker, servers, clients, and waiting.

mod client;
mod http_server;
pub(crate) mod udp;
mod web_client;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tracker::{Access, ListenerPolicy, Options, Policy, Secrets, SharedSecrets, Tracker};

pub(crate) use client::*;
pub(crate) use harness::{PATIENCE, wait_until};
pub(crate) use http_server::*;
pub(crate) use web_client::*;

/// A tracker with an empty store and fixed secrets, which hands out up to 1,000 peers.
pub(crate) fn tracker(keep_peer_ids: bool) -> Arc<Tracker> {
    tracker_of(keep_peer_ids, [6; 16], None)
}

/// The same, with another secret of offers, and a previous one.
pub(crate) fn tracker_of(
    keep_peer_ids: bool,
    offers: [u8; 16],
    previous: Option<SharedSecrets>,
) -> Arc<Tracker> {
    let secrets = Secrets { offers, previous, ..Secrets::PUBLIC };
    let policy = Policy { numwant_max: 1000, ..Policy::default() };
    let mut options = Options::predictable(policy);
    options.store.keep_peer_ids = keep_peer_ids;
    Arc::new(Tracker::new(&options, &secrets))
}

/// Returns the tick of a clock that stands still until a test changes it. Every server has its own.
pub(crate) fn manual_tick() -> &'static AtomicU32 {
    Box::leak(Box::default())
}

/// Puts a policy in force for the only listener of a test.
pub(crate) fn set_policy(tracker: &Tracker, policy: ListenerPolicy) {
    tracker.replace_listeners(&[policy]);
}

/// Changes the credentials that the only listener of a test asks for.
pub(crate) fn set_access(tracker: &Tracker, access: Access) {
    set_policy(tracker, ListenerPolicy { access, ..ListenerPolicy::default() });
}
