//! Replication: what journal, upgrade and cluster share.
//!
//! ```text
//! changes, walks ─▶ Encoder ─▶ blocks ─▶ a disk, a stream, other nodes ─▶ blocks ─▶ merge
//!       ▲                                                                             │
//!   ReplicatedStore                                            ReplayClock, MergeClock, Removals
//! ```
//!
//! An [`Encoder`] cuts what a [`ReplicatedStore`] says into [blocks](block), each with the wall-clock time of its cut. A
//! reader, at another place or at a later time, merges them into its own store: a [`ReplayClock`] places the cut on that
//! store's clock, a [`MergeClock`] decides which of two states of a peer wins, and [`Removals`] remembers peers that are gone.
//!
//! This crate does no I/O and stores no peers: blocks go to a sink of the caller, and verdicts to the store, which applies them.
#![forbid(unsafe_code)]

mod accounts;
pub mod block;
mod clock;
mod feed;
mod merge;
mod meta;
mod refresh;
mod removals;
mod store;

pub use accounts::{AccountBatch, SharedAccounts};
pub use clock::{CLOCK_STEP_MS, Clocks, Now, ReplayClock};
pub use feed::{BlockSink, Encoder, Feed, Reservation, Step};
pub use merge::{MergeClock, MergeTime, Merged, Report, Verdict};
pub use meta::{AGE_UNIT_S, PeerMeta, age_max};
pub use refresh::{WEB_REFRESH_S, is_due, is_web_due, phase, refresh_period_units};
pub use removals::{Removals, removal_hash};
pub use store::{ReplicatedStore, WalkTime, Walked};
