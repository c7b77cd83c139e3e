//! Building blocks that know no BitTorrent: memory in huge pages, prefetching, SipHash, random numbers
//! and IP prefixes.
//!
//! With `edge/net` and `edge/xdp` the only home of `unsafe`: two modules here allow it, the rest of the core
//! forbids it. No clock, entropy or I/O: keys and seeds are arguments.
#![deny(unsafe_code)]
// Tests may start threads.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod ip_prefix;
pub mod memory;
mod prefetch;
mod random;
pub mod siphash;

pub use ip_prefix::{IpPrefix, ParseIpPrefixError};
pub use prefetch::{prefetch, prefetch_all};
pub use random::Random;
