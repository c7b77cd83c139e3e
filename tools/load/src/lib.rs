//! Load testers: one thread plays many clients of a tracker and counts what it says to them.
//!
//! They see a tracker only over the wire, so that every tracker can be put under the same load. Of a
//! tracker on the same machine, [`Usage`] tells what the load costs it: messages per second of its
//! own CPU time say more than messages per second.
#![forbid(unsafe_code)]

pub mod http;
mod latencies;
mod random;
mod stream;
mod url;
mod usage;
pub mod ws;

pub use latencies::Latencies;
pub use url::Url;
pub use usage::Usage;
