//! The protocol adapters: input from an engine becomes requests, goes to the tracker, and comes back as
//! output.
//!
//! There is one module for each protocol. Only this crate names a protocol *and* the tracker: `wire`
//! parses and writes bytes, `tracker` decides, `net` moves bytes.
#![forbid(unsafe_code)]

mod buffer;
mod client;
mod clock;
mod connection_error;
mod connections;
pub mod http;
mod listener;
mod reject_log;
mod stream;
mod tasks;
pub mod udp;
pub mod webtorrent;
mod worker;

pub use clock::Clock;
