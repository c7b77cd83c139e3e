//! The vocabulary of tidegate: one definition for each noun of the field.
//!
//! Everything here is plain data. Codecs (`wire`) fill and read these types, the store (`swarm`)
//! keeps the packed ones, and `tracker` decides about them. This crate knows no protocol's bytes,
//! no clock, no entropy and no I/O.
#![forbid(unsafe_code)]

mod announce;
mod hash;
mod hex;
mod labels;
pub mod limits;
mod notice;
mod peer;
mod refusal;
mod reply;
mod scope;
mod tick;
mod user_key;
mod web;

pub use announce::{Announce, Event, Families, NumWant, Role};
pub use hash::{InfoHash, OfferId, ParseInfoHashError, PeerId};
pub use hex::{from_hex, percent_decoded, to_hex};
pub use notice::Notice;
pub use peer::{Family, PackedV4, PackedV6, PeerKey};
pub use refusal::{Refusal, Retry};
pub use reply::{FamilyCounts, SwarmCounts, TooSoon};
pub use scope::Scope;
pub use tick::Tick;
pub use user_key::{ParseUserKeyError, UserKey, is_secret};
pub use web::{ConnectionKey, WebPeer};
