//! Scrapes of all torrents of a roster.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use client::{ScrapeStats, Session, SessionConfig, Url};
use types::InfoHash;

use super::Roster;

/// Time until a response counts as missing. A request that is lost is sent again after 15 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

impl Roster {
    /// Scrapes all torrents at a node.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer.
    pub fn scrape(&self, tracker: SocketAddr) -> Result<Vec<ScrapeStats>> {
        let url = Url::parse(&format!("udp://{tracker}"))?;
        let config = SessionConfig::with_web_roots(RESPONSE_TIMEOUT)?;
        let hashes: Vec<InfoHash> = (0..self.torrents()).map(|it| self.info_hash(it)).collect();
        let counts = Session::open(&url, tracker, &config)?.scrape(&hashes)?;
        counts.into_iter().collect::<Option<_>>().context("expected the counts of all torrents")
    }
}
