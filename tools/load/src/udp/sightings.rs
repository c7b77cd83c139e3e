//! Measures the time until other nodes of a tracker know a peer that has announced to one of them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use client::{Session, SessionConfig, TrackerError, Url};
use types::{Announce, Event, InfoHash, NumWant};

use crate::population::peer_id;
use crate::random::Random;

/// Between two questions to a node that does not know the peer.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// A question is repeated after this time, because it or its answer is lost.
const REPEAT_AFTER: Duration = Duration::from_millis(500);
/// The longest that a node may take for one request.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A client that announces peers at one node and asks others for them. Each peer has a torrent of its own.
pub struct Sightings {
    nodes: Vec<(Url, SocketAddr, Option<Session>)>,
    config: SessionConfig,
    random: Random,
}

impl Sightings {
    /// Returns a client of these nodes.
    ///
    /// # Errors
    ///
    /// If TLS, which is not used, cannot be set up.
    pub fn new(nodes: &[SocketAddr], seed: u64) -> Result<Self> {
        let node =
            |address: &SocketAddr| Ok((Url::parse(&format!("udp://{address}"))?, *address, None));
        Ok(Self {
            nodes: nodes.iter().map(node).collect::<Result<_>>()?,
            config: SessionConfig::with_web_roots(REPEAT_AFTER)?,
            random: Random::new(seed),
        })
    }

    /// Announces a new peer at a node, and asks others until all of them know it. Returns the time from sending the
    /// announce to the last answer; `None` if that takes longer than `patience`. The peer stops at the end.
    ///
    /// # Errors
    ///
    /// If the node does not answer the announce.
    pub fn observe(
        &mut self,
        at: usize,
        others: &[usize],
        patience: Duration,
    ) -> Result<Option<Duration>> {
        // Connection ids are not part of the measured time.
        self.ask(at, |_| Ok(()))?;
        let info_hash = InfoHash(self.random.bytes());
        let started = Announce {
            event: Event::Started,
            left: Some(1),
            want: NumWant::Peers(0),
            ..Announce::new(info_hash, peer_id(self.random.next()), 4242)
        };
        let began = Instant::now();
        self.ask(at, |session| session.announce(&started))?;
        let until = began + patience;
        let is_seen = others.iter().all(|node| self.is_seen_at(*node, info_hash, until));
        let seen = is_seen.then(|| began.elapsed());
        let stopped = Announce { event: Event::Stopped, ..started };
        self.ask(at, |session| session.announce(&stopped))?;
        Ok(seen)
    }

    /// Asks a node whether it knows the peer of a torrent, until it does. Returns false if it does not in time. A node that
    /// does not run knows nothing.
    fn is_seen_at(&mut self, node: usize, info_hash: InfoHash, until: Instant) -> bool {
        while Instant::now() < until {
            let counts = self.ask(node, |session| session.scrape(&[info_hash]));
            let is_known = counts.is_ok_and(|counts| {
                counts.iter().flatten().any(|counts| counts.seeders + counts.leechers > 0)
            });
            if is_known {
                return true;
            }
            thread::sleep(ASK_EVERY);
        }
        false
    }

    /// Sends a request, again if it is not answered.
    fn ask<T>(
        &mut self,
        node: usize,
        request: impl Fn(&mut Session) -> Result<T, TrackerError>,
    ) -> Result<T> {
        let (url, address, session) = self.nodes.get_mut(node).context("no such node")?;
        let end = Instant::now() + ANSWER_MAX;
        loop {
            let opened = match session.take() {
                Some(opened) => Ok(opened),
                None => Session::open(url, *address, &self.config),
            };
            let answered = opened.and_then(|mut opened| {
                let answer = request(&mut opened)?;
                Ok((opened, answer))
            });
            match answered {
                Ok((opened, answer)) => {
                    *session = Some(opened);
                    return Ok(answer);
                }
                Err(error) if Instant::now() > end => {
                    return Err(error).with_context(|| format!("node {node}"));
                }
                Err(_) => thread::sleep(ASK_EVERY),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{honest, tracker};
    use super::*;

    #[test]
    fn peers_are_seen_where_they_are_known() {
        let (first, _) = honest();
        // It knows the peer when it is asked for the third time.
        let mut scrapes = 0;
        let (second, _) = tracker(move |_, request, answer| {
            let mut answer = answer?;
            if request.get(8..12) == Some(&[0, 0, 0, 2]) {
                scrapes += 1;
                let end = answer.len() - 1;
                answer[end] = u8::from(scrapes >= 3);
            }
            Some(vec![answer])
        });
        let nodes = [first.address, second.address];
        let mut sightings = Sightings::new(&nodes, 1).unwrap();
        let seen = sightings.observe(0, &[1], Duration::from_secs(10)).unwrap();
        assert!(seen.is_some_and(|time| time >= 2 * ASK_EVERY), "{seen:?}");
        let seen = sightings.observe(1, &[0], Duration::from_millis(50)).unwrap();
        assert_eq!(seen, None);
    }
}
