//! Peers that this node's blocks reported as gone. A walk does not report them.

use std::collections::BTreeMap;

use replication::AGE_UNIT_S;
use replication::block::{Block, Change, Kind, Word, encode_changes};
use types::{InfoHash, PeerKey};

/// Peers of dropped blocks that are remembered, of about 70 bytes each. Those beyond stay at other nodes until their
/// lifetimes end.
pub(super) const DROPPED_MAX: usize = 1 << 20;
/// The same of stored blocks: the log may lose these.
pub(super) const STORED_MAX: usize = 1 << 18;
/// Peers in a block.
const CHUNK: usize = 1000;
/// The greatest age that a word has.
const AGE_MAX: u64 = 8190;

const UNIT_MS: u64 = AGE_UNIT_S as u64 * 1000;

/// Peers that are gone, and when they went, in units of age since 1970 by this node's wall clock.
#[derive(Debug, Default)]
pub(super) struct Gone {
    peers: BTreeMap<(InfoHash, PeerKey), u64>,
    peers_max: usize,
}

impl Gone {
    /// Returns an empty one that has room for `peers_max` peers.
    pub(super) fn with_room(peers_max: usize) -> Self {
        Self { peers: BTreeMap::new(), peers_max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Remembers the removals in a block. Call in the order of blocks.
    pub(super) fn absorb(&mut self, block: &Block<'_>) {
        each_change(block, |cut_unit, peer, word| {
            if !word.is_gone() {
                self.peers.remove(&peer);
            } else if self.peers.len() < self.peers_max {
                self.peers.insert(peer, cut_unit.saturating_sub(word.age().into()));
            }
        });
    }

    /// Forgets the peers of a later block, which reports them itself.
    pub(super) fn correct(&mut self, block: &Block<'_>) {
        if !self.is_empty() {
            each_change(block, |_, peer, _| {
                self.peers.remove(&peer);
            });
        }
    }

    /// Adds the peers of `other`, as far as there is room.
    pub(super) fn add(&mut self, other: &Self) {
        let room = self.peers_max.saturating_sub(self.peers.len());
        self.peers.extend(other.peers.iter().take(room));
    }

    /// Forgets the peers that went before `since_ms`, by the wall clock, and more of the oldest ones if a quarter of the
    /// room is not free then.
    pub(super) fn forget_before(&mut self, since_ms: u64, now_ms: u64) {
        let now_unit = now_ms / UNIT_MS;
        let mut first_unit = since_ms / UNIT_MS;
        self.peers.retain(|_, unit| *unit >= first_unit);
        while self.peers.len() > self.peers_max / 4 * 3 && first_unit < now_unit {
            first_unit = (first_unit + now_unit).div_ceil(2);
            self.peers.retain(|_, unit| *unit >= first_unit);
        }
    }

    /// Takes some peers. Returns the body of a block of changes, cut at `now_ms` by the wall clock, that reports them as
    /// gone.
    pub(super) fn take_some(&mut self, now_ms: u64) -> Vec<u8> {
        let mut changes = Vec::new();
        while changes.len() < CHUNK
            && let Some(((info_hash, peer), unit)) = self.peers.pop_first()
        {
            let age = (now_ms / UNIT_MS).saturating_sub(unit).min(AGE_MAX) as u16;
            let word = Word(Word::gone().0 | age);
            changes.push(Change { info_hash, peer, word, is_refresh: false });
        }
        let mut body = Vec::new();
        encode_changes(&changes, &[], &mut body);
        body
    }
}

/// Visits the changes in a block of changes, with the time of its cut in units of age since 1970.
fn each_change(block: &Block<'_>, mut visit: impl FnMut(u64, (InfoHash, PeerKey), Word)) {
    if block.header.kind != Kind::CHANGES {
        return;
    }
    let Ok(groups) = block.groups() else { return };
    let cut_unit = block.header.cut_ms / UNIT_MS;
    for group in groups {
        let info_hash = group.info_hash;
        group.v4.for_each(|peer| visit(cut_unit, (info_hash, PeerKey::V4(peer.key)), peer.word));
        group.v6.for_each(|peer| visit(cut_unit, (info_hash, PeerKey::V6(peer.key)), peer.word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_peers_make_room() {
        let mut gone = Gone::with_room(1000);
        for at in 0..1000_u32 {
            let [.., high, low] = at.to_be_bytes();
            let peer = PeerKey::V4([10, 0, high, low, 1, 1]);
            gone.peers.insert((InfoHash([1; 20]), peer), u64::from(at));
        }
        gone.forget_before(100 * UNIT_MS, 1000 * UNIT_MS);
        assert_eq!((gone.peers.len(), gone.peers.values().min()), (450, Some(&550)));
        gone.forget_before(600 * UNIT_MS, 1000 * UNIT_MS);
        assert_eq!((gone.peers.len(), gone.peers.values().min()), (400, Some(&600)));
        let mut told = Gone::with_room(100);
        told.add(&gone);
        assert_eq!(told.peers.len(), 100);
    }
}
