//! The state of the check of one address, and the verdicts that all protocols share.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use types::{Announce, Event, InfoHash, NumWant};

use super::{CheckOptions, Findings, Verdict, describe};
use crate::{FailureKind, ScrapeStats, Session, SessionConfig, Url, counted, peer_id, random};

/// The check of one address.
pub(super) struct AddressCheck<'a> {
    pub(super) url: &'a Url,
    pub(super) address: SocketAddr,
    pub(super) options: &'a CheckOptions,
    pub(super) config: SessionConfig,
    pub(super) findings: &'a mut Findings,
    /// True if the torrent was made up, so that no other peer has it.
    pub(super) own_torrent: bool,
    /// The first client's announce.
    pub(super) first: Announce,
    /// The second client's announce.
    pub(super) second: Announce,
}

impl<'a> AddressCheck<'a> {
    pub(super) fn new(
        url: &'a Url,
        address: SocketAddr,
        options: &'a CheckOptions,
        findings: &'a mut Findings,
    ) -> Self {
        let info_hash = options.torrent.unwrap_or_else(|| InfoHash(random()));
        let [high, low] = random();
        // Below the ephemeral port ranges, so that no other client has it by chance.
        let port = 10_000 + u16::from_be_bytes([high, low]) % 20_000;
        let peer = |port| Announce {
            event: Event::Started,
            left: Some(1),
            want: NumWant::Peers(50),
            ..Announce::new(info_hash, peer_id(), port)
        };
        Self {
            url,
            address,
            options,
            config: SessionConfig::new(options.timeout, options.tls.clone()),
            findings,
            own_torrent: options.torrent.is_none(),
            first: peer(port),
            second: peer(port + 1),
        }
    }

    /// Scrapes, and checks that the counts match the `peers` that have announced.
    pub(super) fn scrape(&mut self, session: &mut Session, peers: u64) -> Option<ScrapeStats> {
        let (name, start) = ("scrape", Instant::now());
        match session.scrape(&[self.first.info_hash]).map(|all| all.first().copied().flatten()) {
            Ok(Some(figures)) => {
                let ScrapeStats { seeders, leechers, .. } = figures;
                let took = milliseconds(start.elapsed());
                let [of_seeders, of_leechers] = [(seeders, "seeder"), (leechers, "leecher")]
                    .map(|(n, it)| counted(Some(n), it));
                let text = format!("in {took}: {of_seeders}, {of_leechers}");
                if self.own_torrent && (seeders, leechers) != (0, peers) {
                    let text = format!("{text}, expected {}", counted(Some(peers), "leecher"));
                    self.findings.add(name, Verdict::Warning, text);
                } else {
                    self.findings.add(name, Verdict::Ok, text);
                }
                Some(figures)
            }
            Ok(None) => {
                self.findings.add(
                    name,
                    Verdict::Warning,
                    "the torrent is missing from the response",
                );
                None
            }
            // Not every tracker supports scrapes.
            Err(error) if error.kind == FailureKind::Refused => {
                self.findings.add(name, Verdict::Warning, describe(&error));
                None
            }
            Err(error) => {
                self.findings.fail(name, &error);
                None
            }
        }
    }

    /// Announces that a client stops. Returns how many peers it receives, or `None` after a failure.
    pub(super) fn leave(&mut self, session: &mut Session, client: &Announce) -> Option<usize> {
        let stopped = Announce { event: Event::Stopped, want: NumWant::Peers(0), ..*client };
        match session.announce(&stopped) {
            Ok(announced) => Some(announced.peers.len()),
            Err(error) => {
                self.findings.fail("stopped", &error);
                None
            }
        }
    }

    /// Checks that peers which have stopped are no longer counted, if the tracker answers scrapes, and that they have
    /// received no peers.
    pub(super) fn check_gone(&mut self, session: &mut Session, scrapes: bool, told_of: usize) {
        let left = if scrapes && self.own_torrent {
            session.scrape(&[self.first.info_hash]).ok().and_then(|all| *all.first()?)
        } else {
            None
        };
        let still = left.map_or(0, |it| it.leechers + it.seeders);
        let (verdict, text) = if still > 0 {
            (Verdict::Warning, format!("{still} peers are still counted after they stopped"))
        } else if told_of > 0 {
            (Verdict::Warning, format!("stopping peers still receive {told_of} peers"))
        } else if left.is_some() {
            (Verdict::Ok, "the swarm is empty".into())
        } else {
            (Verdict::Ok, "accepted".into())
        };
        self.findings.add("stopped", verdict, text);
    }
}

pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
