//! The peers of a roster: what the tracker has acknowledged of each, and what each announces next.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use types::{Announce, Event, InfoHash, NumWant};

use super::RosterOptions;
use crate::population::peer_id;
use crate::random::{Random, hash};
use crate::spread::Spread;

/// The state of a peer by its last announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerState {
    /// It has stopped, or never started.
    #[default]
    Absent,
    /// It has a part of the torrent.
    Leecher,
    /// It has all of it.
    Seeder,
}

/// 16 bytes, because there may be ten millions.
#[derive(Clone, Copy, Default)]
pub(super) struct RosterPeer {
    pub(super) torrent: u32,
    /// Milliseconds from the start to the last acknowledged announce.
    pub(super) heard_ms: u32,
    /// The same for the last one that changed the state.
    pub(super) changed_ms: u32,
    pub(super) state: PeerState,
    /// A change was sent and has not been acknowledged.
    pub(super) is_uncertain: bool,
    /// An announce was sent and not acknowledged, and none after it was.
    pub(super) may_be_younger: bool,
    /// A request has been sent and may still be answered.
    pub(super) is_waiting: bool,
}

impl RosterPeer {
    /// Returns whether its last announce is so long ago that it may change its state.
    fn has_rested(&self, rest_ms: u32, now_ms: u32) -> bool {
        if self.may_be_younger && self.state != PeerState::Absent && rest_ms > 0 {
            // A node may take the announce that was not answered at any time, also after others have answered.
            return false;
        }
        self.heard_ms == 0 || now_ms.saturating_sub(self.heard_ms) >= rest_ms
    }
}

/// A completed download that a peer has announced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Download {
    /// The torrent's number.
    pub torrent: u32,
    /// When the tracker acknowledged it, or when the roster gave the request up.
    pub at: Instant,
    /// False if the tracker did not acknowledge it: it may have counted it.
    pub is_acknowledged: bool,
    /// True if it is the first one of its peer. A tracker may know the peer of a later one as a seeder, and then it does not
    /// count.
    pub is_first: bool,
}

/// An announce that was sent: of which peer, and what it makes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) number: u32,
    pub(super) state: PeerState,
}

/// All peers. Peer `number` belongs to lane `number % lanes`.
pub(super) struct Peers {
    pub(super) options: RosterOptions,
    /// The moment from which times are counted.
    pub(super) start: Instant,
    pub(super) all: Vec<RosterPeer>,
    /// Peers that are not absent.
    pub(super) present: u32,
    /// Downloads in the order of their ends.
    pub(super) downloads: Vec<Download>,
    /// Peers that have announced one.
    completers: HashSet<u32>,
    random: Random,
}

/// Leechers of a hundred peers that start.
const LEECHERS_PERCENT: u64 = 60;
/// A random peer that waits for an answer is passed over this often.
const TRIES: u32 = 8;
/// The first port of a peer.
const PORT_MIN: u16 = 1024;
const TORRENTS: u64 = 0x726f_7374_6572;
const STARTS: u64 = 0x7374_6172_7473;

impl Peers {
    pub(super) fn new(options: &RosterOptions) -> Self {
        let mut random = Random::new(options.seed);
        let torrents = options.torrents.max(1) as usize;
        let mut sizes = vec![0_u32; torrents];
        let mut torrent = || {
            let drawn = Spread::Real.draw(torrents, &mut random);
            // The largest torrents are full at some point; their other peers go anywhere.
            let has_room = |torrent: usize| {
                sizes.get(torrent).is_some_and(|size| *size < options.torrent_peers_max)
            };
            let torrent = if has_room(drawn) { drawn } else { random.below(torrents) };
            sizes.iter_mut().skip(torrent).take(1).for_each(|size| *size += 1);
            torrent as u32
        };
        let all = (0..options.peers.max(1))
            .map(|_| RosterPeer { torrent: torrent(), ..RosterPeer::default() });
        let all = all.collect();
        Self {
            options: options.clone(),
            start: Instant::now(),
            all,
            present: 0,
            downloads: Vec::new(),
            completers: HashSet::new(),
            random,
        }
    }

    /// Returns the moment this many milliseconds after the start.
    pub(super) fn moment(&self, ms: u32) -> Instant {
        self.start + Duration::from_millis(ms.into())
    }

    /// Returns how many peers a lane has.
    pub(super) fn of_lane(&self, lane: u32) -> u32 {
        let (all, lanes) = (self.all.len() as u32, self.options.lanes());
        all.saturating_sub(lane).div_ceil(lanes)
    }

    pub(super) fn address(&self, number: u32) -> (IpAddr, u16) {
        let lanes = self.options.lanes();
        (self.options.source(number % lanes), PORT_MIN + (number / lanes) as u16)
    }

    pub(super) fn info_hash(&self, torrent: u32) -> InfoHash {
        InfoHash(Random::new(hash(self.options.seed ^ TORRENTS, torrent.into())).bytes())
    }

    /// Returns a random peer of a lane that waits for no answer, and may start if it is absent.
    pub(super) fn any(&mut self, lane: u32, now_ms: u32) -> Option<u32> {
        let (lanes, count) = (self.options.lanes(), self.of_lane(lane) as usize);
        if count == 0 {
            return None;
        }
        let mut draw = || lane + lanes * self.random.below(count) as u32;
        let (all, rest_ms) = (&self.all, self.options.rest_ms);
        let is_idle = |peer: &RosterPeer| {
            let is_present = peer.state != PeerState::Absent;
            !peer.is_waiting && (is_present || peer.has_rested(rest_ms, now_ms))
        };
        (0..TRIES).map(|_| draw()).find(|number| all.get(*number as usize).is_some_and(is_idle))
    }

    /// Chooses what a peer announces next, and marks it as waiting for the answer.
    pub(super) fn announce(&mut self, number: u32, now_ms: u32) -> (Announce, Sent) {
        let (_, port) = self.address(number);
        let want = NumWant::Peers(self.options.want);
        let placeholder = &mut RosterPeer::default();
        let peer = self.all.get_mut(number as usize).unwrap_or(placeholder);
        let has_rested = peer.has_rested(self.options.rest_ms, now_ms);
        let permille = if has_rested { self.options.changes_permille as usize } else { 0 };
        // Each time the same: an announce that was not answered may be taken later than the next one.
        let is_leecher = hash(self.options.seed ^ STARTS, number.into()) % 100 < LEECHERS_PERCENT;
        let random = &mut self.random;
        let (state, event) = match peer.state {
            PeerState::Absent if is_leecher => (PeerState::Leecher, Event::Started),
            PeerState::Absent => (PeerState::Seeder, Event::Started),
            same if random.below(1000) >= permille => (same, Event::None),
            // One half of the changes of leechers are completed downloads.
            PeerState::Leecher if random.percent(50) => (PeerState::Seeder, Event::Completed),
            _ => (PeerState::Absent, Event::Stopped),
        };
        peer.is_waiting = true;
        peer.is_uncertain |= state != peer.state;
        let torrent = peer.torrent;
        let peer_id = peer_id(hash(self.options.seed, number.into()));
        let announce = Announce {
            event,
            left: Some(if state == PeerState::Leecher { 1 << 30 } else { 0 }),
            want,
            ..Announce::new(self.info_hash(torrent), peer_id, port)
        };
        (announce, Sent { number, state })
    }

    /// The tracker has acknowledged an announce.
    pub(super) fn acknowledge(&mut self, sent: Sent, now_ms: u32) {
        self.note_download(sent, now_ms, true);
        let Some(peer) = self.all.get_mut(sent.number as usize) else { return };
        (peer.is_waiting, peer.may_be_younger, peer.heard_ms) = (false, false, now_ms);
        if peer.state != sent.state {
            peer.changed_ms = now_ms;
        }
        self.correct(sent.number, sent.state);
    }

    /// Notes the download if an announce has completed one.
    fn note_download(&mut self, sent: Sent, at_ms: u32, is_acknowledged: bool) {
        let Some(peer) = self.all.get(sent.number as usize) else { return };
        if peer.state == PeerState::Leecher && sent.state == PeerState::Seeder {
            let is_first = self.completers.insert(sent.number);
            let torrent = peer.torrent;
            let at = self.moment(at_ms);
            self.downloads.push(Download { torrent, at, is_acknowledged, is_first });
        }
    }

    /// The tracker knows this of a peer.
    pub(super) fn correct(&mut self, number: u32, state: PeerState) {
        let Some(peer) = self.all.get_mut(number as usize) else { return };
        self.present += u32::from(state != PeerState::Absent);
        self.present -= u32::from(peer.state != PeerState::Absent);
        (peer.state, peer.is_uncertain) = (state, false);
    }

    /// An announce will not be acknowledged. What became of a change is uncertain.
    pub(super) fn give_up(&mut self, sent: Sent, now_ms: u32) {
        self.note_download(sent, now_ms, false);
        if let Some(peer) = self.all.get_mut(sent.number as usize) {
            (peer.is_waiting, peer.may_be_younger) = (false, true);
        }
    }
}

impl RosterOptions {
    /// Returns the number of sockets.
    pub(super) fn lanes(&self) -> u32 {
        self.sockets.max(1) + u32::from(self.has_v6)
    }

    /// Returns a lane's source address, that for IPv6 for the last lane if there is one.
    pub(super) fn source(&self, lane: u32) -> IpAddr {
        if self.has_v6 && lane == self.sockets.max(1) {
            return self.source_v6.into();
        }
        IpAddr::from((u32::from(self.first_source) + lane).to_be_bytes())
    }
}
