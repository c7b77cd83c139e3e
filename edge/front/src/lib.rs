//! The adapters: bytes from an engine become requests, go to the tracker, and come back as bytes.
//!
//! One module for each protocol. Only this crate names a protocol *and* the tracker; what bytes
//! mean is `wire`'s business, what may happen is `tracker`'s, how bytes travel is `net`'s.
#![forbid(unsafe_code)]

mod client;
mod clock;
pub mod http;
mod reject_log;
mod stream;
pub mod udp;
pub mod web;

pub use clock::Clock;
