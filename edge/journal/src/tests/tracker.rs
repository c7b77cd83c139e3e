//! A store with peers, its journal, and another store that reads it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use primitives::Random;
use replication::{Clocks, Merged, Now};
use swarm::{Action, Feed, Options, Store, StoreAnnounce};
use types::{InfoHash, PeerId, PeerKey, Role, Tick, limits};

use super::memory_disk::MemoryDisk;
use crate::disk::Disk;
use crate::log::SegmentLog;
use crate::rounds::{Rounds, Turn};
use crate::{Figures, Journal, Pace, Status};

/// Unix ms at which every test begins.
pub(super) const START_MS: u64 = 1_800_000_000_000;
/// Seconds that peers are kept.
pub(super) const LIFETIME_S: u32 = 2700;
const TURN: Duration = Duration::from_millis(200);

/// A short round: three turns.
pub(super) const PACE: Pace =
    Pace { round: Duration::from_millis(600), sync: Duration::from_secs(1), bytes_max: 0 };

/// Every peer of a store and its role.
pub(super) type Peers = BTreeMap<(InfoHash, SocketAddr), Role>;

/// Returns a store with four shards.
pub(super) fn store(keep_peer_ids: bool) -> Store {
    Store::new(&Options { keep_peer_ids, ..Options::new(4, [7; 16], LIFETIME_S) })
}

pub(super) fn torrent(number: u32) -> InfoHash {
    let mut random = Random::new(number.into());
    let mut hash = [0; 20];
    hash.iter_mut().for_each(|byte| *byte = random.next() as u8);
    InfoHash(hash)
}

/// Returns a peer; one in four is v6.
pub(super) fn peer(number: u32) -> PeerKey {
    let [a, b, c, d] = number.to_be_bytes();
    if number % 4 == 3 {
        PeerKey::new([0x2001, 0xdb8, 0, 0, 0, 0, number as u16, (number >> 16) as u16].into(), 6881)
    } else {
        PeerKey::new([10 + a, b, c, d].into(), 6881)
    }
}

/// Announces a peer of a torrent, or stops it if there is no role.
pub(super) fn announce(store: &Store, now: Tick, torrents: u32, peers: u32, role: Option<Role>) {
    let action = if role.is_some() { Action::Update { completed: false } } else { Action::Stop };
    let announce = StoreAnnounce {
        peer_id: PeerId([peers as u8; 20]),
        action,
        ..StoreAnnounce::update(torrent(torrents), peer(peers), role.unwrap_or(Role::Leecher))
    };
    store.announce(now, &mut Random::new(1), &[announce], &mut |_, _| {});
}

/// Announces, stops or changes the role of a random peer. Returns it, and what it is now.
pub(super) fn announce_random(
    store: &Store,
    now: Tick,
    random: &mut Random,
) -> ((InfoHash, SocketAddr), Option<Role>) {
    let torrents = random.below(40).min(random.below(40));
    let role = match random.below(10) {
        0..4 => Some(Role::Leecher),
        4..7 => Some(Role::Seeder),
        7 => Some(Role::PartialSeed),
        _ => None,
    };
    let number = random.below(400);
    announce(store, now, torrents, number, role);
    ((torrent(torrents), peer(number).socket_addr()), role)
}

pub(super) fn peers_of(store: &Store, now: Tick) -> Peers {
    let mut hashes = Vec::new();
    store.each_torrent(|stats| hashes.push(stats.info_hash));
    let mut peers = Peers::new();
    for info_hash in hashes {
        let details = store.inspect(now, &info_hash, limits::INSPECT_PEERS_MAX).unwrap();
        for peer in details.peers {
            peers.insert((info_hash, peer.address.unwrap()), peer.role);
        }
    }
    peers
}

/// A clock that a test sets. The tracker's clock and the wall clock advance together.
#[derive(Clone, Default)]
pub(super) struct TestClock {
    /// Ms at tick 0.
    epoch_ms: Arc<AtomicU64>,
    ms: Arc<AtomicU64>,
}

impl TestClock {
    pub(super) fn at(unix_ms: u64, tick: u32) -> Self {
        let clock = Self::default();
        clock.epoch_ms.store(unix_ms - u64::from(tick) * 1000, Ordering::Relaxed);
        clock.ms.store(u64::from(tick) * 1000, Ordering::Relaxed);
        clock
    }

    pub(super) fn now(&self) -> Now {
        let ms = self.ms.load(Ordering::Relaxed);
        let unix_ms = self.epoch_ms.load(Ordering::Relaxed) + ms;
        Now { tick: Tick((ms / 1000) as u32), unix_ms }
    }

    pub(super) fn advance(&self, time: Duration) {
        self.ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    pub(super) fn set(&self, by_ms: i64) {
        let epoch_ms = self.epoch_ms.load(Ordering::Relaxed).checked_add_signed(by_ms).unwrap();
        self.epoch_ms.store(epoch_ms, Ordering::Relaxed);
    }

    pub(super) fn clocks(&self) -> Clocks {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// Writes a journal, turn by turn.
pub(super) struct TestWriter<'a> {
    pub(super) rounds: Rounds<'a>,
    pub(super) status: Arc<Status>,
    pub(super) clock: TestClock,
    pub(super) pace: Pace,
    elapsed: Duration,
}

impl<'a> TestWriter<'a> {
    pub(super) fn begin(
        feed: &'a Feed,
        store: &'a Store,
        disk: &MemoryDisk,
        clock: &TestClock,
        pace: Pace,
    ) -> std::io::Result<Self> {
        let status = Arc::new(Status::default());
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        clock.advance(Duration::from_millis(1));
        let boot = clock.now().unix_ms << 8;
        let log = SegmentLog::begin(disk, Arc::clone(&status), boot, clock.now())?;
        let turn = Turn { now: clock.now(), elapsed: Duration::ZERO, pace };
        let rounds = Rounds::begin(feed, store, log, Arc::clone(&status), (boot, turn))?;
        Ok(Self { rounds, status, clock: clock.clone(), pace, elapsed: Duration::ZERO })
    }

    /// Advances the clock by the time of a turn, and does the turn.
    pub(super) fn turn(&mut self) -> std::io::Result<()> {
        self.clock.advance(TURN);
        self.elapsed += TURN;
        let turn = Turn { now: self.clock.now(), elapsed: self.elapsed, pace: self.pace };
        self.rounds.turn(turn)
    }

    pub(super) fn turns(&mut self, turns: u32) {
        (0..turns).for_each(|_| self.turn().unwrap());
    }

    pub(super) fn finish(self) {
        self.rounds.finish(self.clock.now()).unwrap();
    }
}

pub(super) struct Restored {
    /// When it was restored, on the clock that the tracker continues.
    pub(super) now: Tick,
    pub(super) store: Store,
    pub(super) peers: Peers,
    pub(super) merged: Merged,
    pub(super) figures: Figures,
}

/// Restores the journal on `disk` at a wall clock's time, as a tracker that starts does.
pub(super) fn restore(disk: &MemoryDisk, unix_ms: u64, threads: usize) -> Restored {
    let status = Status::default();
    let store = store(false);
    let journal = Journal::open_on(Arc::new(disk.clone()), unix_ms).unwrap();
    let epoch_ms = journal.as_ref().map_or(unix_ms, Journal::epoch_ms);
    let clock = TestClock::at(unix_ms, (unix_ms.saturating_sub(epoch_ms) / 1000) as u32);
    let merged = journal.map_or_else(Merged::default, |journal| {
        journal.restore(&store, &clock.clocks(), threads, &status, &AtomicBool::new(false))
    });
    let now = clock.now().tick;
    let peers = peers_of(&store, now);
    Restored { now, store, peers, merged, figures: status.figures() }
}
