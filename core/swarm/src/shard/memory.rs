//! The memory budget, and each network's share of it.
//!
//! A source that announces a new torrent with every packet could fill the store and keep its peers
//! alive, while new honest peers find no room. So a public network, a v4 /24 or v6 /48, may hold a
//! sixteenth of the budget. When memory is short that bound falls, so that the largest networks lose
//! peers first. Only when this is not enough do all lifetimes shrink.
//!
//! ```text
//! used        bound of a network            lifetimes
//! below 7/8   1/16 of the budget            as configured
//! to 15/16    falls to 1/4096               as configured
//! to 1        1/4096                        shrink to 1/16
//! at 1        nothing new is stored
//! ```
//!
//! Plain form: a map from network to its number of peers. Departure: a count-min sketch, two rows of
//! counters selected by a keyed hash, which takes a fixed 64 KiB. It never counts too few. It counts
//! too many for a network that shares both counters with large ones: beside 64 networks at their
//! bound, for one in 16,000. A map takes 12 bytes a
//! peer (`bench/record/2026-11-23-memory-networks.md`).

use primitives::siphash::siphash;
use replication::PeerMeta;

use super::Shard;
use crate::entry::Entry;
use crate::web::Host;

/// Counters in a row.
const CELLS: usize = 1 << 13;
/// Bytes of the budget for one peer: a torrent with one peer takes 75, with its id 171.
const PEER_BYTES: u64 = 128;
/// Peers as which a WebTorrent peer counts: with a torrent of its own it takes 560 bytes.
const WEB_PEERS: u32 = 4;
/// A network's share of the budget while there is enough memory: the peers of a seedbox host with
/// 256 addresses and 1,000 torrents at each fit 512 MiB.
const SHARE: u64 = 16;
/// The same when memory is shortest.
const SHARE_LEAST: u64 = 4096;

/// The number of peers of each public network, if there is a budget. Local networks are not counted:
/// load tests and private trackers have all their peers there.
pub(crate) struct Networks {
    key: [u8; 16],
    cells: Option<Box<[u32]>>,
}

impl Networks {
    pub(super) fn new(key: [u8; 16], counts: bool) -> Self {
        Self { key, cells: counts.then(|| vec![0; 2 * CELLS].into()) }
    }

    /// Counts a peer that was stored.
    #[inline]
    pub(super) fn add<E: Entry>(&mut self, peer: E::Key) {
        self.change::<E>(peer, |cell| *cell = cell.saturating_add(1));
    }

    #[inline]
    pub(super) fn remove<E: Entry>(&mut self, peer: E::Key) {
        self.change::<E>(peer, |cell| {
            debug_assert!(*cell > 0, "a peer left that never came");
            *cell = cell.saturating_sub(1);
        });
    }

    /// Counts a WebTorrent peer that was stored.
    pub(super) fn add_web(&mut self, host: Host) {
        self.change_at(self.hash_of(host), |cell| *cell = cell.saturating_add(WEB_PEERS));
    }

    /// Counts a WebTorrent peer that was removed.
    pub(super) fn remove_web(&mut self, host: Host) {
        self.change_at(self.hash_of(host), |cell| {
            debug_assert!(*cell >= WEB_PEERS, "a peer left that never came");
            *cell = cell.saturating_sub(WEB_PEERS);
        });
    }

    /// Returns how many peers the network of `host` has.
    pub(super) fn count_of(&self, host: Host) -> u32 {
        self.count_at(self.hash_of(host))
    }

    fn hash_of(&self, host: Host) -> u64 {
        siphash::<1, 3>(&self.key, host.network())
    }

    /// Returns how many peers the network of `peer` has; 0 if it is not counted.
    #[inline]
    pub(super) fn count<E: Entry>(&self, peer: E::Key) -> u32 {
        network_hash::<E>(&self.key, peer).map_or(0, |hash| self.count_at(hash))
    }

    #[inline]
    fn count_at(&self, hash: u64) -> u32 {
        let [first, second] = places(hash);
        self.cells.as_ref().map_or(0, |cells| cells[first].min(cells[second]))
    }

    /// Returns how many peers are counted.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        let cells = self.cells.iter().flat_map(|cells| &cells[..CELLS]);
        cells.map(|count| u64::from(*count)).sum()
    }

    #[inline]
    fn change<E: Entry>(&mut self, peer: E::Key, change: impl Fn(&mut u32)) {
        if self.cells.is_some()
            && let Some(hash) = network_hash::<E>(&self.key, peer)
        {
            self.change_at(hash, change);
        }
    }

    #[inline]
    fn change_at(&mut self, hash: u64, change: impl Fn(&mut u32)) {
        if let Some(cells) = &mut self.cells {
            places(hash).iter().for_each(|place| change(&mut cells[*place]));
        }
    }
}

/// Returns the two counters of a network. Pages of sets use the lower half of the hash.
#[inline]
fn places(hash: u64) -> [usize; 2] {
    let [first, second] = [hash >> 32, hash >> 48].map(|bits| bits as usize % CELLS);
    [first, CELLS + second]
}

/// Returns the hash of a public address's network.
#[inline]
pub(super) fn network_hash<E: Entry>(key: &[u8; 16], peer: E::Key) -> Option<u64> {
    E::network(peer).map(|network| siphash::<1, 3>(key, network.as_ref()))
}

impl Shard {
    /// Returns true if the memory budget is used up.
    pub(super) fn is_full(&self) -> bool {
        self.budget.is_some_and(|budget| self.memory_used() >= budget)
    }

    /// Returns true if the budget is used up, or WebTorrent peers use half of it, the most they may. They
    /// take 40 times the memory of others, and must not fill it.
    fn is_full_for_web(&self) -> bool {
        self.is_full() || self.budget.is_some_and(|budget| self.web_bytes() >= budget / 2)
    }

    /// Returns true if a new peer may be stored. Counts a refusal.
    pub(super) fn admits<E: Entry>(&mut self, peer: E::Key) -> bool {
        let Some(budget) = self.budget else { return true };
        if self.memory_used() >= budget {
            self.totals.refused_for_memory += 1;
            return false;
        }
        let max = network_max(budget, self.memory_used());
        let is_over = self.networks.count::<E>(peer) >= max;
        let ip = || E::new(peer, PeerMeta::default()).peer_key().socket_addr().ip();
        if is_over && !self.is_exempt(ip()) {
            self.totals.refused_for_share += 1;
            return false;
        }
        true
    }

    /// Returns true if a new WebTorrent peer may be stored. Counts a refusal.
    pub(super) fn admits_web(&mut self, host: Option<Host>) -> bool {
        let Some(budget) = self.budget else { return true };
        if self.is_full_for_web() {
            self.totals.refused_for_memory += 1;
            return false;
        }
        let max = network_max(budget, self.web_pressure());
        let is_over = host.is_some_and(|host| self.networks.count_of(host) >= max);
        self.totals.refused_for_share += u64::from(is_over);
        !is_over
    }

    /// Returns true if an unknown WebTorrent peer of another node may be stored. As for other merged peers,
    /// its network's share matters only if memory is short.
    pub(super) fn may_store_web(&self, host: Option<Host>) -> bool {
        let is_over = |max| host.is_some_and(|host| self.networks.count_of(host) >= max);
        !self.is_full_for_web() && !self.evicts_web_above().is_some_and(is_over)
    }

    /// Returns the number of peers above which the sweep removes those of a network, if memory is
    /// short.
    pub(super) fn evicts_above(&self) -> Option<u32> {
        let budget = self.budget.filter(|_| self.is_short())?;
        Some(network_max(budget, self.memory_used()))
    }

    /// Returns the same for WebTorrent peers, which may be short of their half of the memory.
    pub(super) fn evicts_web_above(&self) -> Option<u32> {
        let budget = self.budget?;
        let pressure = self.web_pressure();
        is_high(budget, pressure).then(|| network_max(budget, pressure))
    }

    /// Returns true if more than seven eighths of the budget are used.
    pub(super) fn is_short(&self) -> bool {
        self.budget.is_some_and(|budget| is_high(budget, self.memory_used()))
    }

    /// Returns the lifetime that memory allows. Above 15/16 of the budget it falls in proportion to
    /// the free rest, so that the peers idle for longest go first.
    pub(super) fn lifetime_under_pressure(&self, lifetime_s: u32) -> u32 {
        let Some(budget) = self.budget else { return lifetime_s };
        let left = budget.saturating_sub(self.memory_used());
        let free = budget / 16;
        if left >= free {
            return lifetime_s;
        }
        let allowed = u128::from(lifetime_s) * u128::from(left) / u128::from(free.max(1));
        (allowed as u32).max(lifetime_s / 16)
    }

    /// Returns the bytes in use for new WebTorrent peers, of which all have half of the budget.
    fn web_pressure(&self) -> u64 {
        self.memory_used().max(2 * self.web_bytes())
    }
}

/// Returns true if `pressure` is more than seven eighths of the budget.
fn is_high(budget: u64, pressure: u64) -> bool {
    pressure > budget / 8 * 7
}

/// Returns the most peers that a network may have under a pressure.
fn network_max(budget: u64, pressure: u64) -> u32 {
    let peers = budget / PEER_BYTES;
    let (share, least) = (peers / SHARE, (peers / SHARE_LEAST).max(16));
    // From 7/8 to 15/16 of the budget.
    let room = (budget / 16).max(1);
    let left = (budget / 16 * 15).saturating_sub(pressure).min(room);
    let above = u128::from(share.saturating_sub(least)) * u128::from(left) / u128::from(room);
    u32::try_from(u128::from(least) + above).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use types::PackedV4;

    use super::*;

    #[test]
    fn counts_of_networks_are_exact_without_collisions_and_never_too_low() {
        let mut networks = Networks::new([5; 16], true);
        let peer = |network: u16, host: u8| {
            let [a, b] = network.to_be_bytes();
            [20, a, b, host, 1, 1]
        };
        for host in 0..100 {
            (0..2000).for_each(|network| networks.add::<PackedV4>(peer(network, host)));
        }
        let counts = |networks: &Networks| {
            (0..4000)
                .map(|network| networks.count::<PackedV4>(peer(network, 1)))
                .collect::<Vec<_>>()
        };
        let full = counts(&networks);
        assert!(full[..2000].iter().all(|count| *count >= 100));
        let exact = full[..2000].iter().filter(|count| **count == 100).count();
        let empty = full[2000..].iter().filter(|count| **count == 0).count();
        assert!(exact > 1850 && empty > 1850, "{exact} {empty}");
        for host in 0..100 {
            (0..2000).for_each(|network| networks.remove::<PackedV4>(peer(network, host)));
        }
        assert!(counts(&networks).iter().all(|count| *count == 0));
        // Local networks are not counted, and neither is anything without a budget.
        networks.add::<PackedV4>([10, 0, 0, 1, 1, 1]);
        assert_eq!(networks.count::<PackedV4>([10, 0, 0, 1, 1, 1]), 0);
        let mut off = Networks::new([5; 16], false);
        off.add::<PackedV4>(peer(1, 1));
        assert_eq!(off.count::<PackedV4>(peer(1, 1)), 0);
    }
}
