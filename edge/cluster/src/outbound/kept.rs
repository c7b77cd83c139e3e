//! What blocks said that are dropped, as far as a walk will not say it: which peers are gone, and which
//! downloads completed.

use std::collections::BTreeMap;

use replication::AGE_UNIT_S;
use replication::block::{Block, Change, Kind, Word, encode_changes};
use types::{InfoHash, PeerKey, Role};

/// Peers that are remembered, of about 70 bytes each. Of more, those that are gone stay at other nodes until
/// their lifetimes end.
const KEPT_MAX: usize = 1 << 20;
/// Peers in a block.
const CHUNK: usize = 1000;

/// Milliseconds of a unit of age.
const UNIT_MS: u64 = AGE_UNIT_S as u64 * 1000;

/// What is known of a peer that blocks mentioned which were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    /// The role in which it completed its download.
    completed: Option<Role>,
    /// When it went, in units of age since 1970, unless it has come again.
    gone: Option<u64>,
}

/// Peers that blocks mentioned which were dropped.
#[derive(Debug, Default)]
pub(super) struct Kept {
    peers: BTreeMap<(InfoHash, PeerKey), Fate>,
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Remembers what a block says that is about to be dropped. Call in the order of blocks.
    pub(super) fn absorb(&mut self, block: &[u8]) {
        each_change(block, |cut_unit, change| self.note(cut_unit, change));
    }

    /// Forgets that peers are gone which a later block says are there. Call for blocks that are not dropped.
    pub(super) fn correct(&mut self, block: &[u8]) {
        if self.is_empty() {
            return;
        }
        each_change(block, |_, change| {
            if let Some(fate) = self.peers.get_mut(&(change.info_hash, change.peer)) {
                fate.gone = None;
            }
        });
    }

    fn note(&mut self, cut_unit: u64, change: Change) {
        let peer = (change.info_hash, change.peer);
        let is_to_be_kept = change.word.is_gone() || change.word.is_completed();
        if is_to_be_kept && self.peers.len() < KEPT_MAX {
            self.peers.entry(peer).or_default();
        }
        let Some(fate) = self.peers.get_mut(&peer) else { return };
        if change.word.is_completed() {
            fate.completed = Some(change.word.role());
        }
        fate.gone =
            change.word.is_gone().then(|| cut_unit.saturating_sub(change.word.age().into()));
    }

    /// Takes some peers, and returns bodies of blocks of changes that say what happened to them: the
    /// downloads that completed, and then, for a block cut at `now_ms`, who is gone.
    pub(super) fn take_some(&mut self, now_ms: u64) -> [Vec<u8>; 2] {
        let now_unit = now_ms / UNIT_MS;
        let (mut completed, mut gone) = (Vec::new(), Vec::new());
        while completed.len().max(gone.len()) < CHUNK
            && let Some(((info_hash, peer), fate)) = self.peers.pop_first()
        {
            let change = |word| Change { info_hash, peer, word, is_refresh: false };
            completed.extend(fate.completed.map(|role| change(Word::completed(role))));
            gone.extend(fate.gone.map(|unit| {
                let age = now_unit.saturating_sub(unit).min(8190) as u16;
                change(Word(Word::gone().0 | age))
            }));
        }
        [completed, gone].map(|changes| {
            let mut body = Vec::new();
            encode_changes(&changes, &[], &mut body);
            body
        })
    }
}

/// Calls `visit` with the changes of a block of changes, and when it was cut, in units of age since 1970.
pub(super) fn each_change(block: &[u8], mut visit: impl FnMut(u64, Change)) {
    // Blocks that come here were read before.
    let Ok((block, _)) = Block::read(block) else { return };
    if block.header.kind != Kind::CHANGES {
        return;
    }
    let Ok(groups) = block.groups() else { return };
    let cut_unit = block.header.cut_ms / UNIT_MS;
    for group in groups {
        let info_hash = group.info_hash;
        let mut visit =
            |peer, word| visit(cut_unit, Change { info_hash, peer, word, is_refresh: false });
        group.v4.for_each(|peer| visit(PeerKey::V4(peer.key), peer.word));
        group.v6.for_each(|peer| visit(PeerKey::V6(peer.key), peer.word));
    }
}
