//! The naive twin of a store: maps of torrents and peers, which are announced, merged and swept one by one.

use replication::Merged;

use super::merge::{EPOCH_MIN, How, PlainGroup, Reported};
use super::*;
use crate::entry::Entry;
use crate::{PeerInfo, TorrentStats};

const UNIT_S: i64 = 16;

/// The expected contents of a store.
#[derive(Default)]
pub(super) struct Twin {
    pub(super) torrents: BTreeMap<InfoHash, TwinTorrent>,
    /// The times at which peers stopped, in units, if they are remembered.
    pub(super) stopped: Option<BTreeMap<(InfoHash, PeerKey), i64>>,
}

/// The expected state of one torrent.
#[derive(Default)]
pub(super) struct TwinTorrent {
    pub(super) peers: BTreeMap<PeerKey, TwinPeer>,
    downloads: u32,
    born: u32,
}

pub(super) struct TwinPeer {
    pub(super) role: Role,
    counted: bool,
    /// The time of its last announce, in units of age.
    unit: i64,
    pub(super) id: PeerId,
}

fn unit_of(now: u32) -> i64 {
    i64::from(now) / UNIT_S
}

fn oldest() -> i64 {
    i64::from(LIFETIME_S.div_ceil(UNIT_S as u32))
}

impl Twin {
    pub(super) fn announce(&mut self, now: u32, request: &StoreAnnounce) -> Result<(), TooSoon> {
        let unit = unit_of(now);
        let Action::Update { completed } = request.action else {
            if let Some(stopped) = &mut self.stopped {
                stopped.insert((request.info_hash, request.peer), unit);
            }
            let torrent = self.torrents.get_mut(&request.info_hash);
            torrent.and_then(|torrent| torrent.peers.remove(&request.peer));
            return Ok(());
        };
        let new = TwinTorrent { born: now, ..TwinTorrent::default() };
        let torrent = self.torrents.entry(request.info_hash).or_insert(new);
        let known = torrent.peers.get(&request.peer);
        if let Some(same) = known.filter(|known| known.role == request.role) {
            let age = (unit - same.unit) as u32;
            if age < request.min_interval_s / UNIT_S as u32 {
                return Err(TooSoon { age_s: age * UNIT_S as u32 });
            }
        }
        let was_counted = known.is_some_and(|known| known.counted);
        torrent.downloads += u32::from(completed && !was_counted);
        let counted = was_counted || completed;
        let peer = TwinPeer { role: request.role, counted, unit, id: request.peer_id };
        torrent.peers.insert(request.peer, peer);
        Ok(())
    }

    pub(super) fn merge(&mut self, how: How, group: &PlainGroup, has_ids: bool) -> Merged {
        let How { now, cut_ago_s } = how;
        let mut merged = Merged::default();
        let born = group.head.map_or(now, |head| {
            now.min(head.born_min.saturating_sub(EPOCH_MIN).saturating_mul(60).saturating_add(59))
        });
        let was_there = self.torrents.contains_key(&group.torrent);
        let new = TwinTorrent { born, ..TwinTorrent::default() };
        let mut torrent = self.torrents.remove(&group.torrent).unwrap_or(new);
        if let Some(head) = group.head {
            torrent.downloads = torrent.downloads.max(head.downloads);
            torrent.born = torrent.born.min(born);
        }
        let known = torrent.downloads;
        for reported in &group.peers {
            let cut = (i64::from(now) - i64::from(cut_ago_s)).div_euclid(UNIT_S);
            let unit = cut - i64::from(reported.word.age());
            if unit_of(now) - unit > oldest() {
                merged.old += 1;
                continue;
            }
            let peer = (group.torrent, reported.peer);
            let stop = self.stopped.as_ref().and_then(|stopped| stopped.get(&peer));
            if stop.is_none_or(|stop| *stop < unit) {
                let completed = torrent.merge(reported, unit, has_ids, &mut merged);
                torrent.downloads += u32::from(completed);
            }
        }
        if was_there || !torrent.peers.is_empty() || torrent.downloads > known {
            merged.torrents = u64::from(!was_there);
            self.torrents.insert(group.torrent, torrent);
        }
        merged
    }

    pub(super) fn sweep(&mut self, now: u32) {
        for torrent in self.torrents.values_mut() {
            torrent.peers.retain(|_, peer| unit_of(now) - peer.unit <= oldest());
        }
        self.torrents.retain(|_, torrent| !torrent.peers.is_empty());
    }

    /// Everything visible of the store equals the twin.
    pub(super) fn check(&self, store: &Store, now: u32) {
        let mut found = BTreeMap::<InfoHash, TorrentStats>::new();
        store.each_torrent(|stats| {
            assert!(found.insert(stats.info_hash, *stats).is_none(), "shown twice");
        });
        assert_eq!(found.len(), self.torrents.len());
        for (info_hash, torrent) in &self.torrents {
            let stats = found[info_hash];
            assert_eq!(stats.counts, torrent.counts());
            assert_eq!(stats.first_seen.0, torrent.born / 1024 * 1024);
            torrent.check_peers(store, info_hash, now);
        }
        check_sums(store);
        let all = self.torrents.iter().flat_map(|(info_hash, torrent)| {
            torrent.peers.keys().map(|peer| (peer.socket_addr().ip(), (*info_hash, *peer)))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        let mut addresses = Vec::new();
        store.each_address(|ip| addresses.push(ip));
        addresses.sort_unstable();
        assert!(addresses.iter().eq(all.iter().map(|(ip, _)| ip)));
        for (ip, _) in all.iter().take(2) {
            let found = store.peers_at(Tick(now), *ip, usize::MAX).into_iter();
            let found: BTreeSet<_> = found.map(|(hash, peer)| (hash, key_of(&peer))).collect();
            let expected = all.iter().filter(|(of, _)| of == ip).map(|(_, peer)| *peer);
            assert_eq!(found, expected.collect());
        }
    }
}

impl TwinTorrent {
    pub(super) fn counts(&self) -> SwarmCounts {
        let mut counts = SwarmCounts { downloads: self.downloads, ..SwarmCounts::default() };
        for (key, peer) in &self.peers {
            let family = match key.family() {
                Family::V4 => &mut counts.v4,
                Family::V6 => &mut counts.v6,
            };
            match peer.role {
                Role::Seeder => family.seeders += 1,
                _ => family.leechers += 1,
            }
            counts.partial_seeds += u32::from(peer.role == Role::PartialSeed);
        }
        counts
    }

    /// Returns the peers that the answer to `request` may hold.
    fn candidates(&self, request: &StoreAnnounce) -> BTreeMap<PeerKey, PeerId> {
        let is_candidate = |key: &PeerKey, peer: &TwinPeer| {
            let is_useful = request.role == Role::Leecher || peer.role != Role::Seeder;
            let fits = request.families == Families::Both || key.family() == request.peer.family();
            fits && is_useful && *key != request.peer
        };
        let all = self.peers.iter().filter(|(key, peer)| is_candidate(key, peer));
        all.map(|(key, peer)| (*key, peer.id)).collect()
    }

    /// Checks the answer to an announce that was not too soon.
    pub(super) fn check(&self, request: &StoreAnnounce, answer: &Answered) {
        assert_eq!(answer.counts, Some(self.counts()));
        if request.action == Action::Stop {
            assert!(answer.peers.is_empty());
            return;
        }
        let candidates = self.candidates(request);
        let distinct: BTreeSet<_> = answer.peers.iter().collect();
        assert_eq!(distinct.len(), answer.peers.len(), "a peer twice");
        assert_eq!(distinct.len(), candidates.len().min(request.want.into()));
        for (peer, id) in answer.peers.iter().zip(&answer.ids) {
            assert_eq!(candidates.get(peer), Some(id), "a peer that should not be there");
        }
    }

    fn check_peers(&self, store: &Store, info_hash: &InfoHash, now: u32) {
        for peers_max in [3, 1000] {
            let details = store.inspect(Tick(now), info_hash, peers_max).expect("the twin has it");
            assert_eq!(details.peers.len(), self.peers.len().min(peers_max));
            let mut keys = BTreeSet::new();
            for peer in details.peers {
                let known = &self.peers[&key_of(&peer)];
                assert_eq!((peer.role, peer.id), (known.role, Some(known.id)));
                assert_eq!(i64::from(peer.age_s), (unit_of(now) - known.unit) * UNIT_S);
                assert!(keys.insert(key_of(&peer)), "a peer twice");
            }
        }
    }

    /// Returns whether the peer is there and has completed a download that was not counted.
    fn merge(
        &mut self,
        reported: &Reported,
        unit: i64,
        has_ids: bool,
        merged: &mut Merged,
    ) -> bool {
        let Reported { peer, word, id } = *reported;
        let known = self.peers.get_mut(&peer);
        let was_counted = known.as_ref().is_some_and(|known| known.counted);
        let is_stored = match known {
            Some(known) if known.unit > unit => {
                known.counted |= word.is_counted() && !word.is_gone();
                true
            }
            known if word.is_gone() => {
                merged.gone += u64::from(known.is_some());
                self.peers.remove(&peer);
                false
            }
            known => {
                merged.peers += 1;
                let old_id = known.map_or_else(PeerId::default, |known| known.id);
                let id = if has_ids { id } else { old_id };
                let counted = was_counted || word.is_counted();
                self.peers.insert(peer, TwinPeer { role: word.role(), counted, unit, id });
                true
            }
        };
        is_stored && word.is_completed() && !was_counted
    }
}

fn key_of(peer: &PeerInfo) -> PeerKey {
    let address = peer.address.expect("a plain peer has an address");
    PeerKey::new(address.ip(), address.port())
}

/// Checks that everything that a store reports adds up.
pub(super) fn check_sums(store: &Store) {
    let (mut torrents, mut all) = (0, [0; 5]);
    let mut hashes = Vec::new();
    store.each_torrent(|stats| {
        torrents += 1;
        let SwarmCounts { v4, v6, partial_seeds, .. } = stats.counts;
        let these = [v4.seeders, v4.leechers, v6.seeders, v6.leechers, partial_seeds];
        all.iter_mut().zip(these).for_each(|(sum, count)| *sum += u64::from(count));
        hashes.push((stats.info_hash, v4.seeders + v4.leechers + v6.seeders + v6.leechers));
    });
    let Totals { v4, v6, partial_seeds, .. } = store.totals();
    assert_eq!(store.totals().torrents, torrents);
    assert_eq!([v4.seeders, v4.leechers, v6.seeders, v6.leechers, partial_seeds], all);
    let dump = store.dump();
    for (info_hash, count) in hashes {
        let range = (info_hash, PeerKey::V4([0; 6]))..=(info_hash, PeerKey::V6([255; 18]));
        assert_eq!(dump.range(range).count() as u32, count);
    }
    if store.kept_ids() > 0 {
        assert_eq!(store.kept_ids(), dump.len());
    }
    let is_public = |(_, peer): &&(InfoHash, PeerKey)| match *peer {
        PeerKey::V4(key) => PackedV4::network(key).is_some(),
        PeerKey::V6(key) => PackedV6::network(key).is_some(),
    };
    if store.memory_budget().is_some() {
        assert_eq!(store.counted_peers(), dump.keys().filter(is_public).count() as u64);
    }
}
