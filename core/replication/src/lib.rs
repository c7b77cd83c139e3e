//! Replication: what journal, upgrade and cluster share.
//!
//! ```text
//! changes, walks of a store ─▶ blocks ─▶ a disk, a stream, other nodes ─▶ blocks ─▶ merge
//!                                                                                   │
//!                                                  ReplayClock, MergeClock, Removals
//! ```
//!
//! A store's encoder cuts its changes and walks into [blocks](block), each with the wall-clock time of its cut. A
//! reader, at another place or at a later time, merges them into its own store: a [`ReplayClock`] places the cut on that
//! store's clock, a [`MergeClock`] decides which of two states of a peer wins, and [`Removals`] remembers peers that are gone.
//!
//! This crate does no I/O and stores no peers: verdicts go to the store, which applies them.
#![forbid(unsafe_code)]

mod accounts;
pub mod block;
mod clock;
mod merge;
mod meta;
mod refresh;
mod removals;

pub use accounts::{AccountBatch, SharedAccounts};
pub use clock::{CLOCK_STEP_MS, Clocks, Now, ReplayClock};
pub use merge::{MergeClock, MergeTime, Merged, Report, Verdict};
pub use meta::{AGE_UNIT_S, PeerMeta, age_max};
pub use refresh::{WEB_REFRESH_S, is_due, is_web_due, phase, refresh_period_units};
pub use removals::{Removals, removal_hash};
