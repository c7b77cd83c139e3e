//! Announces and scrapes, over whichever protocol the URL says.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use types::{Announce, Family, InfoHash};

use crate::http::Http;
use crate::udp::Udp;
use crate::web::Web;
use crate::{Fault, Kind, Scheme, Url, random};

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

/// Which protocol it speaks.
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
    /// Connects to one of the tracker's addresses, until it can be asked.
    pub fn open(url: &Url, address: SocketAddr, manner: &Manner) -> Result<Self, Fault> {
        let mut session = Self::dial(url, address, manner)?;
        session.greet()?;
        Ok(session)
    }

    /// Connects, and goes through TLS.
    pub(crate) fn dial(url: &Url, address: SocketAddr, manner: &Manner) -> Result<Self, Fault> {
        Ok(Self(match url.scheme {
            Scheme::Udp => Protocol::Udp(Udp::open(url, address, manner)?),
            Scheme::Http | Scheme::Https => Protocol::Http(Http::open(url, address, manner)?),
            Scheme::Ws | Scheme::Wss => Protocol::Web(Web::open(url, address, manner)?),
        }))
    }

    /// Does what must be done before anything can be asked: a WebSocket's handshake, a connection id.
    pub(crate) fn greet(&mut self) -> Result<(), Fault> {
        match &mut self.0 {
            Protocol::Udp(udp) => udp.connect().map(drop),
            Protocol::Http(_) => Ok(()),
            Protocol::Web(web) => web.shake_hands(),
        }
    }

    /// Connects to the first of the tracker's addresses that can be reached, of one family if only that
    /// is wanted, and says which it is.
    pub fn reach(
        url: &Url,
        family: Option<Family>,
        manner: &Manner,
    ) -> Result<(Self, SocketAddr), Fault> {
        let mut failure = None;
        for address in url.addresses(manner.timeout)? {
            if family.is_some_and(|only| only != Family::of(address.ip())) {
                continue;
            }
            match Self::open(url, address, manner) {
                Ok(session) => return Ok((session, address)),
                Err(fault) => failure = Some(fault),
            }
        }
        Err(failure.unwrap_or_else(|| {
            let text = format!("{} has no address of that family", url.name);
            Fault::new(Kind::Unreachable, text)
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
