//! Torrents and peers: the store.
//!
//! Announces come in batches of [`StoreAnnounce`]s and their answers go, peer by peer, into an
//! [`types::StoreSink`]. The store knows no protocol, clock or source of entropy: the time is a
//! [`types::Tick`], randomness a [`primitives::Random`] that the caller seeds.
//!
//! ```text
//! Store ─▶ Shard (a lock) ─▶ Index (hash -> number) ─▶ Record (a cache line, up to 4 peers)
//!                                   │                    └▶ 4 PeerSets (role × family) ─▶ Arena (lines)
//!                                   └▶ WebSwarm (WebTorrent peers, in a map of their own)
//! ```
#![forbid(unsafe_code)]
// Tests may start threads and read the clock.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod arena;
mod entry;
mod events;
mod index;
mod inspect;
mod job;
mod mark;
mod options;
mod record;
mod set;
mod shard;
mod store;
#[cfg(test)]
mod tests;
mod totals;
mod web;

pub use events::TorrentEvent;
pub use inspect::{PeerInfo, TorrentDetails, TorrentStats};
pub use job::{Action, StoreAnnounce, StoreWebAnnounce};
pub use options::Options;
pub use store::Store;
pub use totals::{FamilyTotals, Totals};
pub use web::{RelayTargets, WebAnnounceSummary};
