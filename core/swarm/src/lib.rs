//! Torrents and peers: the store.
//!
//! Announces come in batches of [`Job`]s and their answers go, peer by peer, into an
//! [`types::AnnounceSink`]. The store knows no protocol, clock or source of entropy: the time is a
//! [`types::Tick`], randomness a [`Random`] that the caller seeds.
#![forbid(unsafe_code)]

mod job;
mod options;
mod random;
pub mod siphash;
mod store;
mod totals;

pub use job::{Action, Job};
pub use options::Options;
pub use random::Random;
pub use store::Store;
pub use totals::{FamilyTotals, Totals};
