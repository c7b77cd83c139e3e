//! A client for any BitTorrent tracker. It talks to trackers only over the wire and shares no state
//! with tidegate's server.
//!
//! - [`Session`] announces and scrapes over UDP, HTTP and WebTorrent.
//! - [`check()`] tests everything that clients depend on and returns a verdict on each item.
//! - [`Torrent`] reads `.torrent` files, magnet links and info hashes.
//! - [`codec`] has the client's side of the protocols, without I/O.
//!
//! Every wait has a timeout, and everything that is read from a tracker has a size limit.
//!
//! `tools/load` shares [`codec`], [`Url`] and [`tls`]; tests of servers use [`codec`].
#![forbid(unsafe_code)]

mod check;
pub mod codec;
mod config;
pub mod dns;
mod entropy;
mod error;
mod http;
mod response;
mod session;
mod stream;
pub mod tls;
mod torrent;
mod udp;
mod url;
mod webtorrent;

pub use check::{
    CheckItem, CheckOptions, CheckReport, DnsRecord, RecordPort, Transport, Verdict, check,
};
pub use config::SessionConfig;
pub use entropy::{peer_id, random};
pub use error::{FailureKind, TrackerError};
pub use response::{AnnounceResponse, ScrapeEntry, ScrapeStats, counted};
pub use session::Session;
pub use torrent::{Torrent, TorrentError};
pub use url::{Scheme, Url, UrlError};
