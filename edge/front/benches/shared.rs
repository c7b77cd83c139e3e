//! The tracker that the benches serve.

use std::sync::Arc;

use tracker::{Options, Policy, Secrets, Tracker};

/// The torrents that are announced.
pub(crate) const TORRENTS: usize = 256;
/// The peers of each torrent.
pub(crate) const PEERS: usize = 64;

/// Returns an empty tracker with fixed secrets.
pub(crate) fn tracker() -> Arc<Tracker> {
    Arc::new(Tracker::new(&Options::predictable(Policy::default()), &Secrets::PUBLIC))
}
