//! A client of trackers, whichever they are: it sees them only over the wire, and knows nothing of
//! ours.
//!
//! What it shares with `tools/load` is where a tracker is ([`Url`]) and whom TLS believes ([`tls`]).
#![forbid(unsafe_code)]

mod fault;
pub mod tls;
mod url;

pub use fault::{Fault, Kind};
pub use url::{BadUrl, Scheme, Url};
