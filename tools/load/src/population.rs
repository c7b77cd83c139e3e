//! Torrents and peers, generated from a seed: equal seeds generate equal ones, however many workers
//! share them.

use types::{Announce, Event, InfoHash, NumWant, PeerId};

use crate::random::{Random, hash};
use crate::spread::Spread;

/// The torrents, and the behavior of peers.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Seed; equal seeds generate equal torrents and peers.
    pub seed: u64,
    /// Number of torrents; at least 1.
    pub torrents: u32,
    /// Concurrent peers, all workers together; at least 1.
    pub peers: u32,
    /// Distribution of peers over torrents.
    pub spread: Spread,
    /// Percentage of peers that start as seeders.
    pub seeders_percent: u8,
    /// Percentage of leecher announces with event `completed`.
    pub completes_percent: u8,
    /// Percentage of announces with event `stopped`; another peer replaces each.
    pub churn_percent: u8,
    /// Peers that each announce requests; `None` for the tracker's default.
    pub want: Option<u16>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            seed: 1,
            torrents: 10_000,
            peers: 100_000,
            spread: Spread::Real,
            seeders_percent: 50,
            completes_percent: 0,
            churn_percent: 0,
            want: Some(50),
        }
    }
}

impl Workload {
    /// Returns a torrent's info hash.
    pub fn info_hash(&self, torrent: u32) -> InfoHash {
        let mut random = Random::new(hash(self.seed ^ TORRENTS, torrent.into()));
        InfoHash(random.bytes())
    }

    /// Returns the info hashes of all torrents that a run may announce.
    pub fn info_hashes(&self) -> impl Iterator<Item = InfoHash> {
        (0..self.torrents).map(|torrent| self.info_hash(torrent))
    }

    /// Returns whether peers of this torrent may have this port, which one port in eight may. So
    /// unknown peers are mostly recognized without a list of all peers.
    pub(crate) fn admits(&self, torrent: u32, port: u16) -> bool {
        port >= PORT_MIN && port % PORTS == self.port_class(torrent)
    }

    fn port_class(&self, torrent: u32) -> u16 {
        (hash(self.seed ^ PORT_CLASSES, torrent.into()) % u64::from(PORTS)) as u16
    }

    /// Returns the port of one of the torrent's peers.
    pub(crate) fn port(&self, torrent: u32, random: u64) -> u16 {
        let classes = (u16::MAX - PORT_MIN) / PORTS;
        let number = (random % u64::from(classes)) as u16;
        PORT_MIN + number * PORTS + self.port_class(torrent)
    }
}

// Distinct seeds for distinct kinds of numbers.
const TORRENTS: u64 = 0x746f_7272_656e_7473;
const PORT_CLASSES: u64 = 0x706f_7274_7321;
const LIVES: u64 = 0x6c69_7665_7321;

const PORT_MIN: u16 = 1024;
/// Each torrent uses one in this many ports.
const PORTS: u16 = 8;

/// One worker's share of all peers.
pub(crate) struct Population {
    workload: Workload,
    first: u32,
    peers: Vec<Peer>,
}

/// Eight bytes, because millions of them are accessed in random order.
#[derive(Clone, Copy)]
struct Peer {
    torrent: u32,
    /// The number of peers that had this place before, modulo 2^16.
    life: u16,
    is_seeder: bool,
    has_started: bool,
}

/// A peer's identity within a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TorrentPeer {
    pub(crate) torrent: u32,
    pub(crate) port: u16,
}

impl Population {
    pub(crate) fn new(workload: &Workload, share: u32, shares: u32) -> Self {
        let at = |share: u32| {
            (u64::from(workload.peers) * u64::from(share) / u64::from(shares.max(1))) as u32
        };
        let (first, end) = (at(share), at(share + 1).max(at(share) + 1));
        let peers = (first..end).map(|number| Peer::new(workload, number, 0, None)).collect();
        Self { workload: workload.clone(), first, peers }
    }

    pub(crate) fn len(&self) -> u32 {
        self.peers.len() as u32
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns the number of the peer at this place among those of all shares.
    pub(crate) fn number(&self, place: u32) -> u32 {
        self.first + place
    }

    pub(crate) fn torrent(&self, place: u32) -> u32 {
        debug_assert!(place < self.len(), "place {place} of {} peers", self.len());
        self.peers.get(place as usize).map_or(0, |peer| peer.torrent)
    }

    /// Returns the next announce of the peer at this place, and the peer's identity.
    pub(crate) fn announce(&mut self, place: u32, random: &mut Random) -> (Announce, TorrentPeer) {
        let Self { workload, first, peers } = self;
        let number = *first + place;
        let mut placeholder = Peer { torrent: 0, life: 0, is_seeder: false, has_started: false };
        debug_assert!((place as usize) < peers.len(), "place {place} of {} peers", peers.len());
        let peer = peers.get_mut(place as usize).unwrap_or(&mut placeholder);
        let who = hash(workload.seed ^ LIVES ^ (u64::from(peer.life) << 48), number.into());
        let torrent_peer =
            TorrentPeer { torrent: peer.torrent, port: workload.port(peer.torrent, who) };
        let info_hash = workload.info_hash(torrent_peer.torrent);
        let event = peer.event(workload, random);
        let announce = Announce {
            event,
            left: Some(if peer.is_seeder { 0 } else { 123_456_789 }),
            want: workload.want.map_or(NumWant::Default, NumWant::Peers),
            ..Announce::new(info_hash, peer_id(who), torrent_peer.port)
        };
        if event == Event::Stopped {
            *peer = Peer::new(workload, number, peer.life.wrapping_add(1), Some(peer.torrent));
        }
        (announce, torrent_peer)
    }
}

impl Peer {
    /// Creates a peer, in its predecessor's torrent if there is one, so that swarms keep their
    /// sizes.
    fn new(workload: &Workload, number: u32, life: u16, torrent: Option<u32>) -> Self {
        let mut random =
            Random::new(hash(workload.seed, u64::from(number) << 16 | u64::from(life)));
        let is_seeder = random.percent(workload.seeders_percent);
        let mut draw =
            || workload.spread.draw(workload.torrents.max(1) as usize, &mut random) as u32;
        let torrent = torrent.unwrap_or_else(&mut draw);
        Self { torrent, life, is_seeder, has_started: false }
    }

    fn event(&mut self, workload: &Workload, random: &mut Random) -> Event {
        if !std::mem::replace(&mut self.has_started, true) {
            Event::Started
        } else if workload.churn_percent > 0 && random.percent(workload.churn_percent) {
            Event::Stopped
        } else if !self.is_seeder && random.percent(workload.completes_percent) {
            self.is_seeder = true;
            Event::Completed
        } else {
            Event::None
        }
    }
}

/// Returns a peer id in Azureus style with URL-safe characters.
pub(crate) fn peer_id(random: u64) -> PeerId {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut id = *b"-TG0001-000000000000";
    let mut left = random;
    for place in id.iter_mut().skip(8) {
        *place = DIGITS.get((left % 32) as usize).copied().unwrap_or(b'a');
        left /= 32;
    }
    PeerId(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn workload() -> Workload {
        Workload {
            torrents: 50,
            peers: 1000,
            completes_percent: 10,
            churn_percent: 20,
            ..Workload::default()
        }
    }

    #[test]
    fn shares_make_up_the_whole() {
        let first = |share, shares| {
            let mut population = Population::new(&workload(), share, shares);
            let places = 0..population.len();
            let mut random = Random::new(9);
            places.map(|place| population.announce(place, &mut random).0).collect::<Vec<_>>()
        };
        assert_eq!([first(0, 3), first(1, 3), first(2, 3)].concat(), first(0, 1));
    }

    #[test]
    fn a_peer_starts_completes_once_and_stops() {
        let workload = workload();
        let mut population = Population::new(&workload, 0, 1);
        let mut random = Random::new(1);
        let mut events = Vec::new();
        let mut previous: Option<(Announce, TorrentPeer)> = None;
        for _ in 0..10_000 {
            let (announce, peer) = population.announce(7, &mut random);
            match previous {
                Some((before, old)) if before.event != Event::Stopped => {
                    assert_eq!((peer, announce.peer_id), (old, before.peer_id));
                    assert_ne!(announce.event, Event::Started);
                    assert!(before.left != Some(0) || announce.event != Event::Completed);
                    assert!(before.left != Some(0) || announce.left == Some(0));
                }
                _ => assert_eq!(announce.event, Event::Started),
            }
            if let Some((before, _)) = previous.filter(|_| announce.event == Event::Started) {
                assert_ne!(announce.peer_id, before.peer_id);
                assert_eq!(announce.info_hash, before.info_hash);
            }
            assert!(workload.admits(peer.torrent, peer.port));
            events.push(announce.event);
            previous = Some((announce, peer));
        }
        let count = |event| events.iter().filter(|found| **found == event).count();
        assert!((1500..2500).contains(&count(Event::Stopped)), "{}", count(Event::Stopped));
        assert!(count(Event::Completed) > 100);
    }

    #[test]
    fn most_unknown_ports_are_recognized() {
        let workload = workload();
        let admitted = (0..=u16::MAX).filter(|port| workload.admits(3, *port)).count();
        assert_eq!(admitted, (65536 - 1024) / 8);
        let mut random = Random::new(1);
        let ports: HashSet<u16> = (0..100_000).map(|_| workload.port(3, random.next())).collect();
        assert!(ports.iter().all(|port| workload.admits(3, *port)));
        assert!(ports.len() > 8000);
    }
}
