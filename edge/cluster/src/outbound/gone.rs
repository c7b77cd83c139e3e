//! Peers that dropped blocks reported as gone. A walk does not report them.

use std::collections::BTreeMap;

use replication::AGE_UNIT_S;
use replication::block::{Block, Change, Kind, Word, encode_changes};
use types::{InfoHash, PeerKey};

/// Peers that are remembered, of about 70 bytes each. Those beyond stay at other nodes until their lifetimes end.
const GONE_MAX: usize = 1 << 20;
/// Peers in a block.
const CHUNK: usize = 1000;
/// The greatest age that a word has.
const AGE_MAX: u64 = 8190;

/// Milliseconds of a unit of age.
const UNIT_MS: u64 = AGE_UNIT_S as u64 * 1000;

/// Peers that are gone, and when they went, in units of age since 1970 by this node's wall clock.
#[derive(Debug, Default)]
pub(super) struct Gone {
    peers: BTreeMap<(InfoHash, PeerKey), u64>,
}

impl Gone {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Remembers the removals in a block that is dropped. Call in the order of blocks.
    pub(super) fn absorb(&mut self, block: &Block<'_>) {
        each_change(block, |cut_unit, peer, word| {
            if !word.is_gone() {
                self.peers.remove(&peer);
            } else if self.peers.len() < GONE_MAX {
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
