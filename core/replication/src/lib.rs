//! Replication: what journal, upgrade and cluster share.
//!
//! An [`Encoder`] cuts a store's changes and walks into blocks, each with the wall-clock time of its cut. A
//! reader, at another place or at a later time, merges them into its own store; a [`ReplayClock`] places the
//! cut on that store's clock. This crate does no I/O: blocks go to a sink of the caller.
#![forbid(unsafe_code)]

mod clock;
mod feed;

pub use clock::{CLOCK_STEP_MS, Clocks, Now, ReplayClock};
pub use feed::{BlockSink, Encoder, Feed, Reservation, Step};
