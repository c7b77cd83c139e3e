//! Numbers of torrents that no site numbers: those of the feed.

use hashbrown::HashMap;
use parking_lot::RwLock;
use types::InfoHash;

use crate::batch::TorrentName;

/// Torrents that can have a number.
const NAMES_MAX: usize = 50_000_000;

#[derive(Default)]
pub(crate) struct Names(RwLock<Tables>);

#[derive(Default)]
struct Tables {
    numbers: HashMap<InfoHash, u32>,
    hashes: HashMap<u32, InfoHash>,
    next: u32,
    /// Names that no batch has yet.
    new: Vec<TorrentName>,
}

impl Names {
    /// Returns the number of a torrent, or `None` if there are too many.
    pub(crate) fn number(&self, info_hash: InfoHash) -> Option<u32> {
        if let Some(number) = self.0.read().numbers.get(&info_hash) {
            return Some(*number);
        }
        let mut tables = self.0.write();
        if let Some(number) = tables.numbers.get(&info_hash) {
            return Some(*number);
        }
        if tables.numbers.len() >= NAMES_MAX {
            return None;
        }
        let torrent = tables.next;
        tables.add(TorrentName { torrent, info_hash });
        tables.new.push(TorrentName { torrent, info_hash });
        Some(torrent)
    }

    pub(crate) fn info_hash(&self, number: u32) -> Option<InfoHash> {
        self.0.read().hashes.get(&number).copied()
    }

    /// Takes over a name from a snapshot or batch.
    pub(crate) fn learn(&self, name: TorrentName) {
        self.0.write().add(name);
    }

    /// Takes the names that no batch has yet. Call after the records were taken: these have no other names then.
    pub(crate) fn take_new(&self) -> Vec<TorrentName> {
        std::mem::take(&mut self.0.write().new)
    }

    pub(crate) fn all(&self) -> Vec<TorrentName> {
        let tables = self.0.read();
        let name = |(info_hash, torrent): (&InfoHash, &u32)| TorrentName {
            torrent: *torrent,
            info_hash: *info_hash,
        };
        tables.numbers.iter().map(name).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().hashes.len()
    }
}

impl Tables {
    fn add(&mut self, name: TorrentName) {
        self.numbers.insert(name.info_hash, name.torrent);
        self.hashes.insert(name.torrent, name.info_hash);
        self.next = self.next.max(name.torrent + 1);
    }
}
