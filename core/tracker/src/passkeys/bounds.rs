//! What counts against a key's bounds.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use types::{Refusal, Tick};

use super::KeyRules;

/// How often a key has announced of late: what a bucket holds that a minute empties.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// When it was last changed.
    at: Tick,
    /// Sixtieths of an announce, so that a second takes a whole number of them.
    debt: u32,
}

/// An announce, and what a second takes for each that a minute has.
const ANNOUNCE: u32 = 60;

impl Pace {
    /// Counts an announce, unless there were `per_min` already in the last minute.
    fn take(&mut self, now: Tick, per_min: u16) -> bool {
        let per_min = u32::from(per_min);
        let debt = self.debt.saturating_sub(now.since(self.at).saturating_mul(per_min));
        *self = Self { at: self.at.max(now), debt };
        if debt + ANNOUNCE > per_min * ANNOUNCE {
            return false;
        }
        self.debt += ANNOUNCE;
        true
    }
}

/// What a key's holder may do, and does. Torrents and addresses of his peers are known by 32 bits of a keyed
/// hash each: of two that have the same bits, which is one pair in four billion, one does not count.
#[derive(Default)]
pub(super) struct Bounded {
    pub(super) rules: KeyRules,
    pace: Pace,
    /// How many peers each torrent has.
    torrents: BTreeMap<u32, u32>,
    /// How many peers each address has.
    addresses: BTreeMap<u32, u32>,
}

impl Bounded {
    /// Whether it matters which peers there are.
    pub(super) fn counts_peers(&self) -> bool {
        let KeyRules { peers_per_torrent, torrents, addresses, .. } = self.rules;
        peers_per_torrent > 0 || torrents > 0 || addresses > 0
    }

    /// Counts an announce, unless there are too many.
    pub(super) fn keep_pace(&mut self, now: Tick) -> Result<(), Refusal> {
        let per_min = self.rules.announces_per_minute;
        if per_min > 0 && !self.pace.take(now, per_min) {
            return Err(Refusal::KeyRate);
        }
        Ok(())
    }

    /// Counts a peer, unless it is one too many.
    pub(super) fn enter(&mut self, torrent: u32, address: u32) -> Result<(), Refusal> {
        match self.torrents.get(&torrent) {
            Some(peers) if is_reached(self.rules.peers_per_torrent.into(), *peers as usize) => {
                return Err(Refusal::KeyPeers);
            }
            None if is_reached(self.rules.torrents, self.torrents.len()) => {
                return Err(Refusal::KeyTorrents);
            }
            _ => {}
        }
        self.admit_address(address)?;
        add(&mut self.torrents, torrent);
        add(&mut self.addresses, address);
        Ok(())
    }

    /// Counts a known peer at its other address, unless that is one too many.
    pub(super) fn change_address(&mut self, old: u32, new: u32) -> Result<(), Refusal> {
        subtract(&mut self.addresses, old);
        let admitted = self.admit_address(new);
        add(&mut self.addresses, if admitted.is_ok() { new } else { old });
        admitted
    }

    /// A peer is there no more.
    pub(super) fn leave(&mut self, torrent: u32, address: u32) {
        subtract(&mut self.torrents, torrent);
        subtract(&mut self.addresses, address);
    }

    fn admit_address(&self, address: u32) -> Result<(), Refusal> {
        let is_new = !self.addresses.contains_key(&address);
        if is_new && is_reached(self.rules.addresses.into(), self.addresses.len()) {
            return Err(Refusal::KeyAddresses);
        }
        Ok(())
    }
}

/// Whether `found` are as many as there may be; 0 is no bound.
fn is_reached(bound: u32, found: usize) -> bool {
    bound > 0 && found >= bound as usize
}

fn add(counts: &mut BTreeMap<u32, u32>, of: u32) {
    let count = counts.entry(of).or_default();
    *count = count.saturating_add(1);
}

fn subtract(counts: &mut BTreeMap<u32, u32>, of: u32) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_as_many_announces_as_it_may_at_any_pace() {
        for per_min in [1, 2, 7, 60, 61, 1000] {
            for every_s in [1, 2, 7, 61] {
                let mut pace = Pace::default();
                let taken: Vec<u32> = (0..3600)
                    .filter(|second| second % every_s == 0)
                    .flat_map(|second| (0..per_min).map(move |_| second))
                    .filter(|second| pace.take(Tick(*second), per_min))
                    .collect();
                // An empty bucket gives a minute's worth at once, and then as much each minute.
                let most = usize::from(per_min) * 61;
                assert!(taken.len() <= most, "{} of {most}", taken.len());
                let offered = 3600 / every_s as usize * usize::from(per_min);
                assert!(taken.len() >= offered.min(usize::from(per_min) * 58), "{}", taken.len());
            }
        }
    }

    #[test]
    fn an_earlier_clock_gives_nothing_away() {
        let mut pace = Pace::default();
        assert!(pace.take(Tick(100), 1));
        assert!(!pace.take(Tick(99), 1) && !pace.take(Tick(159), 1));
        assert!(pace.take(Tick(160), 1));
    }
}
