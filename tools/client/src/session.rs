//! Announces and scrapes, over whichever protocol the URL says.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use types::{Announce, InfoHash};

use crate::http::Http;
use crate::udp::Udp;
use crate::web::Web;
use crate::{Fault, Scheme, Url, random};

/// How a tracker is talked to.
#[derive(Clone, Debug)]
pub struct Manner {
    /// How long each answer, and each connection, is waited for.
    pub timeout: Duration,
    /// For URLs that ask for it.
    pub tls: Arc<ClientConfig>,
    /// A client's own number, by which a tracker may know it at another address.
    pub key: u32,
}

/// A tracker that can be asked, at one of its addresses.
pub struct Session(pub(crate) Protocol);

pub(crate) enum Protocol {
    Udp(Udp),
    Http(Http),
    Web(Web),
}

/// The answer to an announce. What a protocol has no place for, or a tracker leaves out, is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Seconds until the next announce.
    pub interval_s: Option<u64>,
    /// Seconds before which there must be none.
    pub min_interval_s: Option<u64>,
    /// Peers that have everything.
    pub seeders: Option<u64>,
    /// Peers that miss something.
    pub leechers: Option<u64>,
    /// Downloads completed.
    pub downloads: Option<u64>,
    /// Other peers. WebTorrent's have no addresses, and are not here.
    pub peers: Vec<SocketAddr>,
    /// Where the tracker sees us.
    pub external_ip: Option<IpAddr>,
    /// What the tracker wants a person to read.
    pub warning: Option<String>,
    /// What clients may stumble over.
    pub departure: Option<String>,
}

/// A torrent's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Peers that have everything.
    pub seeders: u64,
    /// Downloads completed; some trackers do not say.
    pub downloads: Option<u64>,
    /// Peers that miss something.
    pub leechers: u64,
}

/// Torrents in one request: opentracker's and Chihaya's limits are not far above.
const SCRAPE_MAX: usize = 50;

impl Session {
    /// Connects to one of the tracker's addresses. Over UDP, that is left to the first request.
    pub fn open(url: &Url, address: SocketAddr, manner: &Manner) -> Result<Self, Fault> {
        Ok(Self(match url.scheme {
            Scheme::Udp => Protocol::Udp(Udp::open(url, address, manner)?),
            Scheme::Http | Scheme::Https => Protocol::Http(Http::open(url, address, manner)?),
            Scheme::Ws | Scheme::Wss => Protocol::Web(Web::open(url, address, manner)?),
        }))
    }

    /// Announces, and waits for the answer.
    pub fn announce(&mut self, announce: &Announce) -> Result<Announced, Fault> {
        match &mut self.0 {
            Protocol::Udp(udp) => udp.announce(announce),
            Protocol::Http(http) => http.announce(announce),
            Protocol::Web(web) => web.announce(announce, &[]),
        }
    }

    /// The figures of torrents, in their order; none of those that the tracker leaves out.
    pub fn scrape(&mut self, hashes: &[InfoHash]) -> Result<Vec<Option<Figures>>, Fault> {
        let mut all = Vec::new();
        for hashes in hashes.chunks(SCRAPE_MAX) {
            all.extend(match &mut self.0 {
                Protocol::Udp(udp) => udp.scrape(hashes)?,
                Protocol::Http(http) => http.scrape(hashes)?,
                Protocol::Web(web) => web.scrape(hashes)?,
            });
        }
        Ok(all)
    }

    /// Our own address, as far as this machine knows it.
    pub fn local(&self) -> Option<SocketAddr> {
        match &self.0 {
            Protocol::Udp(udp) => udp.local(),
            Protocol::Http(http) => http.local(),
            Protocol::Web(web) => web.local(),
        }
    }
}

impl Manner {
    /// With a key that nobody else has.
    pub fn new(timeout: Duration, tls: Arc<ClientConfig>) -> Self {
        Self { timeout, tls, key: u32::from_ne_bytes(random()) }
    }
}
