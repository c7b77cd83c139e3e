//! Announces and scrapes over the protocol that the URL names.

use std::net::SocketAddr;

use types::{Announce, Family, InfoHash};

use crate::http::Http;
use crate::udp::Udp;
use crate::webtorrent::WebTorrent;
use crate::{AnnounceResponse, FailureKind, Scheme, ScrapeStats, SessionConfig, TrackerError, Url};

/// An open session with a tracker at one of its addresses.
pub struct Session(pub(crate) Protocol);

pub(crate) enum Protocol {
    Udp(Udp),
    Http(Http),
    WebTorrent(WebTorrent),
}

/// Torrents per scrape request: slightly below the limits of opentracker and Chihaya.
const SCRAPE_MAX: usize = 50;

impl Session {
    /// Connects to `address`, one of the tracker's, and completes the handshakes: that of TLS, the connection id over
    /// UDP, the WebSocket's for WebTorrent.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing listens there, if a handshake fails, or if one takes longer than
    /// [`SessionConfig::timeout`].
    pub fn open(
        url: &Url,
        address: SocketAddr,
        config: &SessionConfig,
    ) -> Result<Self, TrackerError> {
        let mut session = Self::connect_transport(url, address, config)?;
        session.handshake()?;
        Ok(session)
    }

    /// Opens the socket and, for `https` and `wss`, completes the TLS handshake.
    pub(crate) fn connect_transport(
        url: &Url,
        address: SocketAddr,
        config: &SessionConfig,
    ) -> Result<Self, TrackerError> {
        Ok(Self(match url.scheme {
            Scheme::Udp => Protocol::Udp(Udp::open(url, address, config)?),
            Scheme::Http | Scheme::Https => Protocol::Http(Http::open(url, address, config)?),
            Scheme::Ws | Scheme::Wss => {
                Protocol::WebTorrent(WebTorrent::open(url, address, config)?)
            }
        }))
    }

    /// Completes what the protocol requires before the first request: over UDP the connection id,
    /// for WebTorrent the WebSocket handshake.
    pub(crate) fn handshake(&mut self) -> Result<(), TrackerError> {
        match &mut self.0 {
            Protocol::Udp(udp) => udp.connect().map(drop),
            Protocol::Http(_) => Ok(()),
            Protocol::WebTorrent(web) => web.handshake(),
        }
    }

    /// Connects to the first reachable address of the tracker, optionally of one family only.
    /// Returns the session and that address.
    ///
    /// # Errors
    ///
    /// Returns the failure of the last address that was tried.
    pub fn connect(
        url: &Url,
        family: Option<Family>,
        config: &SessionConfig,
    ) -> Result<(Self, SocketAddr), TrackerError> {
        let mut failure = None;
        for address in url.addresses(config.timeout)? {
            if family.is_some_and(|only| only != Family::of(address.ip())) {
                continue;
            }
            match Self::open(url, address, config) {
                Ok(session) => return Ok((session, address)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            let text = format!("{} has no address of that family", url.name);
            TrackerError::new(FailureKind::Unreachable, text)
        }))
    }

    /// Announces and waits for the response.
    ///
    /// # Errors
    ///
    /// Returns an error if the tracker refuses the announce, if its response is invalid or does not come within
    /// [`SessionConfig::timeout`], or if the connection is lost.
    pub fn announce(&mut self, announce: &Announce) -> Result<AnnounceResponse, TrackerError> {
        match &mut self.0 {
            Protocol::Udp(udp) => udp.announce(announce),
            Protocol::Http(http) => http.announce(announce),
            Protocol::WebTorrent(web) => web.announce(announce, &[]),
        }
    }

    /// Scrapes torrents. Returns one entry per hash in the same order, `None` for torrents that the
    /// tracker omits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`announce`](Self::announce), and one if the URL of an HTTP tracker supports no scrapes.
    pub fn scrape(
        &mut self,
        hashes: &[InfoHash],
    ) -> Result<Vec<Option<ScrapeStats>>, TrackerError> {
        let mut all = Vec::new();
        for hashes in hashes.chunks(SCRAPE_MAX) {
            all.extend(match &mut self.0 {
                Protocol::Udp(udp) => udp.scrape(hashes)?,
                Protocol::Http(http) => http.scrape(hashes)?,
                Protocol::WebTorrent(web) => web.scrape(hashes)?,
            });
        }
        Ok(all)
    }

    /// Returns the socket's local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Protocol::Udp(udp) => udp.local_addr(),
            Protocol::Http(http) => http.local_addr(),
            Protocol::WebTorrent(web) => web.local_addr(),
        }
    }
}
