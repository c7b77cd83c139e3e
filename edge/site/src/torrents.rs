//! The site's torrents, by number and by info hash.

use std::hash::BuildHasher;
use std::sync::atomic::AtomicU32;

use hashbrown::{DefaultHashBuilder, HashTable};
use types::InfoHash;

use crate::credit::Factors;
use crate::id_map::IdMap;

/// The decision of moderators about a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moderation {
    Pending,
    Approved,
    Rejected,
    Postponed,
}

#[derive(Debug)]
pub(crate) struct Torrent {
    pub(crate) info_hash: InfoHash,
    pub(crate) moderation: Moderation,
    pub(crate) is_deleted: bool,
    /// True if no bytes count, sent or received.
    pub(crate) is_neutral: bool,
    pub(crate) factors: Factors,
    pub(crate) completed: AtomicU32,
}

/// All torrents. Of several with the same info hash, one is found by it.
#[derive(Debug, Default)]
pub(crate) struct Torrents {
    rows: IdMap<Torrent>,
    /// Positions of rows, by their info hashes.
    hashes: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Moderation {
    /// Returns the state with this number in the database.
    pub(crate) fn of(number: i64) -> Option<Self> {
        let all = [Self::Pending, Self::Approved, Self::Rejected, Self::Postponed];
        all.get(usize::try_from(number).ok()?).copied()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Approved => "Approved",
            Self::Rejected => "Rejected",
            Self::Postponed => "Postponed",
        }
    }
}

impl Torrent {
    /// Returns 0 if it is served, 1 if moderators have not approved it, 2 if it is deleted.
    fn rank(&self) -> u8 {
        match (self.is_deleted, self.moderation) {
            (true, _) => 2,
            (_, Moderation::Approved) => 0,
            _ => 1,
        }
    }
}

impl Torrents {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Makes room, as [`IdMap::reserve`] does.
    pub(crate) fn reserve(&mut self) {
        let more = self.rows.len() / 8 + 1_000;
        self.rows.reserve();
        let Self { rows, hashes, hasher, .. } = self;
        hashes.reserve(more, |position| hash_at(rows, *position, hasher));
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Torrent> {
        self.rows.get(id)
    }

    /// The same, to change everything but its info hash.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Torrent> {
        self.rows.get_mut(id)
    }

    /// Returns all torrents with their numbers, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Torrent)> {
        self.rows.iter()
    }

    /// Returns the number of the torrent that is found by an info hash.
    pub(crate) fn id_of(&self, hash: &InfoHash) -> Option<u32> {
        self.find(hash).map(|(id, _)| id)
    }

    /// Returns the number and the torrent that are found by an info hash.
    pub(crate) fn find(&self, hash: &InfoHash) -> Option<(u32, &Torrent)> {
        let has_hash = |position: &u32| has_hash(&self.rows, *position, hash);
        let position = self.hashes.find(self.hasher.hash_one(hash), has_hash)?;
        self.rows.at(*position)
    }

    /// Inserts or replaces a torrent. Of torrents with the same info hash, one that is served comes first. Returns true
    /// if there was another one.
    pub(crate) fn put(&mut self, id: u32, torrent: Torrent) -> bool {
        let hash = torrent.info_hash;
        let old = self.rows.get(id).map(|old| old.info_hash);
        if let Some(old) = old.filter(|old| *old != hash && self.id_of(old) == Some(id)) {
            self.forget_hash(&old);
        }
        let holder = self.id_of(&hash).filter(|holder| *holder != id);
        self.rows.insert(id, torrent);
        let rank = |id: u32| self.rows.get(id).map_or(3, Torrent::rank);
        let keeps = holder.is_some_and(|holder| (rank(holder), holder) < (rank(id), id));
        if !keeps {
            self.set_hash(hash, id);
        }
        holder.is_some()
    }

    /// Removes the torrent that is found by an info hash.
    pub(crate) fn remove(&mut self, hash: &InfoHash) {
        let Some(id) = self.id_of(hash) else { return };
        self.forget_hash(hash);
        // The last row takes the place of the removed one.
        let last = (self.rows.len() - 1) as u32;
        if let Some(position) = self.rows.position(id)
            && let Some((_, moved)) = self.rows.at(last)
        {
            let hash = self.hasher.hash_one(moved.info_hash);
            let found = self.hashes.find_mut(hash, |it| *it == last);
            found.into_iter().for_each(|it| *it = position);
        }
        self.rows.remove(id);
    }

    /// Makes an info hash find the torrent whose row has it.
    fn set_hash(&mut self, hash: InfoHash, id: u32) {
        self.forget_hash(&hash);
        let Self { rows, hashes, hasher, .. } = self;
        let position = rows.position(id).expect("the torrent was inserted");
        let rehash = |position: &u32| hash_at(rows, *position, hasher);
        hashes.insert_unique(hasher.hash_one(hash), position, rehash);
    }

    /// Makes an info hash find no torrent.
    fn forget_hash(&mut self, hash: &InfoHash) {
        let Self { rows, hashes, hasher, .. } = self;
        let has_hash = |position: &u32| has_hash(rows, *position, hash);
        if let Ok(found) = hashes.find_entry(hasher.hash_one(hash), has_hash) {
            found.remove();
        }
    }
}

fn has_hash(rows: &IdMap<Torrent>, position: u32, hash: &InfoHash) -> bool {
    rows.at(position).is_some_and(|(_, torrent)| torrent.info_hash == *hash)
}

/// Returns the hash by which the row at a position is found.
fn hash_at(rows: &IdMap<Torrent>, position: u32, hasher: &DefaultHashBuilder) -> u64 {
    let (_, torrent) = rows.at(position).expect("a torrent that is found has a row");
    hasher.hash_one(torrent.info_hash)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn torrent(hash: u8, moderation: Moderation, is_deleted: bool) -> Torrent {
        Torrent {
            info_hash: InfoHash([hash; 20]),
            moderation,
            is_deleted,
            is_neutral: false,
            factors: Factors::PLAIN,
            completed: AtomicU32::new(7),
        }
    }

    #[test]
    fn of_torrents_with_the_same_hash_the_one_that_is_served_counts() {
        let mut torrents = Torrents::default();
        assert!(!torrents.put(1, torrent(1, Moderation::Approved, true)));
        assert!(torrents.put(3, torrent(1, Moderation::Approved, false)));
        assert!(torrents.put(2, torrent(1, Moderation::Pending, false)));
        assert_eq!(torrents.id_of(&InfoHash([1; 20])), Some(3));
        assert!(!torrents.put(3, torrent(9, Moderation::Approved, false)));
        assert_eq!(torrents.id_of(&InfoHash([9; 20])), Some(3));
        assert_eq!(torrents.id_of(&InfoHash([1; 20])), None, "the old hash is free");
        assert_eq!(torrents.len(), 3);
    }

    #[test]
    fn a_thousand_torrents_are_found_after_removals() {
        let hash = |id: u32| {
            let mut hash = [0; 20];
            hash[..4].copy_from_slice(&id.to_le_bytes());
            InfoHash(hash)
        };
        let mut torrents = Torrents::default();
        for id in 0..2_000 {
            let it = torrent(0, Moderation::Approved, false);
            torrents.put(id, Torrent { info_hash: hash(id), ..it });
        }
        (0..2_000).filter(|id| id % 2 == 0).for_each(|id| torrents.remove(&hash(id)));
        let found = (0..2_000).filter(|id| torrents.id_of(&hash(*id)) == Some(*id));
        assert!(found.eq((0..2_000).filter(|id| id % 2 == 1)));
    }
}
