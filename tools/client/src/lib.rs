//! A client for any BitTorrent tracker. It talks to trackers only over the wire and shares no state
//! with tidegate's server.
//!
//! - [`Session`] announces and scrapes over UDP, HTTP and WebTorrent.
//! - [`check()`] tests everything that clients depend on and returns a verdict on each item.
//! - [`Torrent`] reads `.torrent` files, magnet links and info hashes.
//! - [`codec`] has the client's side of the protocols, without I/O.
//!
//! Every wait has a timeout, and everything that is read from a tracker has a size limit. Calls block; use a session
//! from a thread of its own, or from the pool of blocking tasks of an asynchronous runtime.
//!
//! # Announce
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate_client::{Announce, Event, Session, SessionConfig, Url, peer_id};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url = Url::parse("udp://tracker.example:6969/announce")?;
//! let config = SessionConfig::with_web_roots(Duration::from_secs(15))?;
//! // The first address that answers, of either family.
//! let (mut session, _address) = Session::connect(&url, None, &config)?;
//! let info_hash = "0123456789abcdef0123456789abcdef01234567".parse()?;
//! let response = session.announce(&Announce {
//!     event: Event::Started,
//!     left: Some(1 << 30),
//!     ..Announce::new(info_hash, peer_id(), 6881)
//! })?;
//! println!("{} peers, again in {:?} s", response.peers.len(), response.interval_s);
//! # Ok(())
//! # }
//! ```
//!
//! `Session::scrape` takes several info hashes and returns the counts of each. The folder `examples` has programs for
//! both.
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
/// The vocabulary of requests, from the crate `tidegate-types`.
pub use types::{Announce, Event, Family, InfoHash, NumWant, ParseInfoHashError, PeerId};
pub use url::{Scheme, Url, UrlError};
