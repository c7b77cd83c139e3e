//! A client of trackers, whichever they are: it sees them only over the wire, and knows nothing of
//! ours.
//!
//! A [`Session`] announces and scrapes over any of the protocols; [`check()`] goes through all that a
//! tracker should do, and says of each thing whether it does. [`Torrent`] reads what people have of a
//! torrent: a file, a magnet link, a hash. Nothing waits for longer than it is told, and nothing that
//! a tracker sends can fill the memory.
//!
//! `tools/load` shares where a tracker is ([`Url`]) and whom TLS believes ([`tls`]).
#![forbid(unsafe_code)]

mod check;
mod entropy;
mod fault;
mod http;
mod session;
mod stream;
pub mod tls;
mod torrent;
mod udp;
mod url;
mod web;

pub use check::{Item, Options, Report, Verdict, check};
pub use entropy::random;
pub use fault::{Fault, Kind};
pub use session::{Announced, Figures, Manner, Session};
pub use torrent::{BadTorrent, Torrent};
pub use url::{BadUrl, Scheme, Url};
