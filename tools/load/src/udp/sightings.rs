//! Measures the time until other nodes of a tracker know a peer that has announced to one of them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use client::codec::udp::{self as codec, Reply, decode_reply};
use types::{Announce, Event, InfoHash, NumWant};

use super::lanes;
use crate::population::peer_id;
use crate::random::Random;

/// Between two questions to a node that does not know the peer.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// A question is repeated after this time, because it or its answer is lost.
const REPEAT_AFTER: Duration = Duration::from_millis(500);
/// The longest that a node may take for one request.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Between two looks at sockets.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// Renew connection ids before the minute for which BEP 15 allows their use.
const CONNECTION_ID_AGE_MAX: Duration = Duration::from_secs(45);

/// A client that announces peers at one node and asks others for them. Each peer has a torrent of its own.
#[derive(Debug)]
pub struct Sightings {
    /// One for each node.
    sockets: Vec<UdpSocket>,
    /// A connection id that is good for all nodes, and when it was issued.
    connection_id: Option<(u64, Instant)>,
    transaction_id: u32,
    random: Random,
}

impl Sightings {
    /// Opens a socket for each node. Each node accepts the connection ids of all.
    ///
    /// # Errors
    ///
    /// If `source` is no address of this host.
    pub fn new(nodes: &[SocketAddr], source: IpAddr, seed: u64) -> Result<Self> {
        let open = |node: &SocketAddr| lanes::connect(Some(source), *node);
        let sockets = nodes.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { sockets, connection_id: None, transaction_id: 0, random: Random::new(seed) })
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
        let id = self.connection_id(at)?;
        let info_hash = InfoHash(self.random.bytes());
        let (began, peer) = (Instant::now(), self.random.next());
        self.exchange(at, |out, number| {
            codec::announce(out, id, number, &announce(info_hash, Event::Started, peer), b"");
        })?;
        let until = began + patience;
        let is_seen = others.iter().all(|node| self.is_seen_at(*node, id, info_hash, until));
        let seen = is_seen.then(|| began.elapsed());
        self.exchange(at, |out, number| {
            codec::announce(out, id, number, &announce(info_hash, Event::Stopped, peer), b"");
        })?;
        Ok(seen)
    }

    /// Returns a connection id, which a node issues if there is none.
    fn connection_id(&mut self, node: usize) -> Result<u64> {
        if let Some((id, since)) = self.connection_id
            && since.elapsed() < CONNECTION_ID_AGE_MAX
        {
            return Ok(id);
        }
        let answer = self.exchange(node, codec::connect)?;
        let Some((_, Reply::Connect { connection_id })) = decode_reply(&answer) else {
            bail!("no connection id");
        };
        self.connection_id = Some((connection_id, Instant::now()));
        Ok(connection_id)
    }

    /// Asks a node whether it knows the peer of a torrent, until it does. Returns false if it does not in time. A node that
    /// does not run knows nothing.
    fn is_seen_at(&mut self, node: usize, id: u64, info_hash: InfoHash, until: Instant) -> bool {
        while Instant::now() < until {
            let answer = self.exchange(node, |out, number| {
                codec::scrape(out, id, number, &[info_hash]);
            });
            let is_known = answer.is_ok_and(|answer| match decode_reply(&answer) {
                Some((_, Reply::Scrape(counts))) => counts.iter().any(|byte| *byte != 0),
                _ => false,
            });
            if is_known {
                return true;
            }
            thread::sleep(ASK_EVERY);
        }
        false
    }

    /// Sends a request until its answer comes, which is returned.
    fn exchange(&mut self, node: usize, write: impl Fn(&mut Vec<u8>, u32)) -> Result<Vec<u8>> {
        let socket = self.sockets.get(node).context("no such node")?;
        self.transaction_id += 1;
        let (number, mut request) = (self.transaction_id, Vec::new());
        write(&mut request, number);
        let (began, mut answer) = (Instant::now(), [0; 2048]);
        let mut next = began;
        loop {
            if Instant::now() >= next {
                let _ = socket.send(&request);
                next = Instant::now() + REPEAT_AFTER;
            }
            while let Some(len) = received(socket, &mut answer) {
                let answer = answer.get(..len).unwrap_or_default();
                match decode_reply(answer) {
                    Some((found, Reply::Error(text))) if found == number => {
                        self.connection_id = None;
                        bail!("refused: {}", String::from_utf8_lossy(text));
                    }
                    Some((found, _)) if found == number => return Ok(answer.to_vec()),
                    _ => {}
                }
            }
            if began.elapsed() > ANSWER_MAX {
                self.connection_id = None;
                bail!("node {node} has not answered for {ANSWER_MAX:?}");
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Returns an announce of a leecher.
fn announce(info_hash: InfoHash, event: Event, peer: u64) -> Announce {
    Announce {
        event,
        left: Some(1),
        want: NumWant::Peers(0),
        ..Announce::new(info_hash, peer_id(peer), 4242)
    }
}

/// Receives a datagram if there is one. Returns its length.
fn received(socket: &UdpSocket, answer: &mut [u8]) -> Option<usize> {
    socket.recv(answer).ok()
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
        let mut sightings = Sightings::new(&nodes, [127, 0, 0, 1].into(), 1).unwrap();
        let seen = sightings.observe(0, &[1], Duration::from_secs(10)).unwrap();
        assert!(seen.is_some_and(|time| time >= 2 * ASK_EVERY), "{seen:?}");
        let seen = sightings.observe(1, &[0], Duration::from_millis(50)).unwrap();
        assert_eq!(seen, None);
    }
}
