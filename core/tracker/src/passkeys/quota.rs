//! A key's quota, and what counts against it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use types::{Refusal, Tick};

use super::sessions::QuotaPlace;
use super::{KeyRules, SessionTag};

/// The recent announces of a key: a bucket that a minute empties.
#[derive(Clone, Copy, Default)]
struct AnnounceRate {
    /// The last change.
    at: Tick,
    /// Sixtieths of an announce, so that every second drains a whole number of them.
    debt: u32,
}

/// An announce in sixtieths. A second drains one sixtieth for each announce that a minute allows.
const ANNOUNCE: u32 = 60;

impl AnnounceRate {
    /// Counts an announce. Returns false, and counts nothing, after `per_min` of them in a minute.
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

/// A key's quota and its present use.
///
/// Torrents and addresses are 32 bits of a keyed hash each. If two of a key's have the same bits, which
/// happens to one pair in four billion, one of them does not count.
#[derive(Default)]
pub(super) struct QuotaState {
    pub(super) rules: KeyRules,
    rate: AnnounceRate,
    /// Peers in each torrent.
    torrents: BTreeMap<u32, u32>,
    /// Peers at each address.
    addresses: BTreeMap<u32, u32>,
    /// The client of each peer, by torrent and endpoint: a peer that comes back with another peer id
    /// replaces its session.
    clients: BTreeMap<(u32, u64), u64>,
}

impl QuotaState {
    /// Counts an announce.
    ///
    /// # Errors
    ///
    /// If there were too many in the last minute. Counts nothing then.
    pub(super) fn check_rate(&mut self, now: Tick) -> Result<(), Refusal> {
        let per_min = self.rules.announces_per_minute;
        if per_min > 0 && !self.rate.take(now, per_min) {
            return Err(Refusal::KeyRate);
        }
        Ok(())
    }

    /// Returns the session that a peer has under another peer id.
    pub(super) fn predecessor(&self, torrent: u32, tag: SessionTag) -> Option<SessionTag> {
        let client = *self.clients.get(&(torrent, tag.endpoint))?;
        (client != tag.client).then_some(SessionTag { client, ..tag })
    }

    /// Counts a new peer.
    ///
    /// # Errors
    ///
    /// If it is one too many in its torrent, or its torrent or its address is one too many. Counts nothing then.
    pub(super) fn add_peer(&mut self, tag: SessionTag, place: QuotaPlace) -> Result<(), Refusal> {
        match self.torrents.get(&place.torrent) {
            Some(peers) if is_reached(self.rules.peers_per_torrent.into(), *peers as usize) => {
                return Err(Refusal::KeyPeers);
            }
            None if is_reached(self.rules.torrents, self.torrents.len()) => {
                return Err(Refusal::KeyTorrents);
            }
            _ => {}
        }
        self.check_address(place.address)?;
        let old = self.clients.insert((place.torrent, tag.endpoint), tag.client);
        debug_assert!(old.is_none(), "a peer has two sessions");
        add(&mut self.torrents, place.torrent);
        add(&mut self.addresses, place.address);
        Ok(())
    }

    /// Changes a counted peer's prefix: limits were configured anew.
    ///
    /// # Errors
    ///
    /// If the new one is one too many. The peer keeps the old one then.
    pub(super) fn change_address(&mut self, old: u32, new: u32) -> Result<(), Refusal> {
        subtract(&mut self.addresses, old);
        let checked = self.check_address(new);
        add(&mut self.addresses, if checked.is_ok() { new } else { old });
        checked
    }

    pub(super) fn remove_peer(&mut self, tag: SessionTag, place: QuotaPlace) {
        // A key that was removed and added again has empty counts, while peers from before still leave.
        if let Entry::Occupied(client) = self.clients.entry((place.torrent, tag.endpoint))
            && *client.get() == tag.client
        {
            client.remove();
            subtract(&mut self.torrents, place.torrent);
            subtract(&mut self.addresses, place.address);
        }
    }

    /// Returns the sessions of all counted peers.
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionTag> {
        let tag = |((_, endpoint), client): (&(u32, u64), &u64)| SessionTag {
            client: *client,
            endpoint: *endpoint,
        };
        self.clients.iter().map(tag)
    }

    fn check_address(&self, address: u32) -> Result<(), Refusal> {
        let is_new = !self.addresses.contains_key(&address);
        if is_new && is_reached(self.rules.addresses.into(), self.addresses.len()) {
            return Err(Refusal::KeyAddresses);
        }
        Ok(())
    }
}

/// Returns whether `found` reaches a limit; a limit of 0 is never reached.
fn is_reached(limit: u32, found: usize) -> bool {
    limit > 0 && found >= limit as usize
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
    fn a_minute_allows_its_announces_at_any_pace() {
        for per_min in [1, 2, 7, 60, 61, 1000] {
            for every_s in [1, 2, 7, 61] {
                let mut rate = AnnounceRate::default();
                let taken: Vec<u32> = (0..3600)
                    .filter(|second| second % every_s == 0)
                    .flat_map(|second| (0..per_min).map(move |_| second))
                    .filter(|second| rate.take(Tick(*second), per_min))
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
    fn earlier_clock_drains_nothing() {
        let mut rate = AnnounceRate::default();
        assert!(rate.take(Tick(100), 1));
        assert!(!rate.take(Tick(99), 1) && !rate.take(Tick(159), 1));
        assert!(rate.take(Tick(160), 1));
    }
}
