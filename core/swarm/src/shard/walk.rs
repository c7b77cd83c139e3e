//! Walks over all torrents of a shard and their peers, in steps between which the caller can unlock.
//!
//! Plain form: copy everything under one lock. Here anything may happen between two steps, and yet
//! what is there from the beginning of a walk to its end is visited:
//! 1. Torrents go from the last to the first. One that moves takes a lower number, so it is still
//!    ahead. The walk remembers the torrent that it stands in, and begins it anew if another one has
//!    taken its number.
//! 2. Inline peers and dense sets are visited at once. Pages of larger sets go in the order of their
//!    peers' bit-reversed hashes, in which every page, however often it is split or merged, is an
//!    interval. So one number says which peers have been visited.
//!
//! A peer that changes its role meanwhile moves to another set and may be missed, but that is a change
//! (see `changes`).

use primitives::memory::LINE;
use primitives::siphash::siphash;
use replication::block::{GroupWriter, Head, WALK_GROUP_LEN, Word};
use types::{Family, InfoHash, Tick};

use super::Shard;
use super::torrent::peer_hash;
use crate::arena::Arena;
use crate::entry::Entry;
use crate::record::{Records, Sets};
use crate::role::SetRole;
use crate::set::PeerSet;
use crate::store::WalkTime;
#[cfg(test)]
use {
    crate::record::Record,
    replication::PeerMeta,
    types::{PeerId, PeerKey, Role},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Torrents left, including the current one.
    left: u32,
    /// The current torrent, if some of its peers have been visited.
    torrent: Option<InfoHash>,
    /// The next part of the current torrent.
    pub(super) part: Part,
}

/// The part of a torrent that a walk visits next: all inline peers, or some of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The set. Families come in order, and the roles of each.
    pub(super) family: Family,
    pub(super) role: SetRole,
    /// Peers of the set at lower places have been visited; see [`place`].
    from: u64,
}

/// The most peers of a page that are visited at once. Only pages of many peers of one network have
/// more.
const PART_PEERS: usize = 256;
/// Number of torrents ahead of the current one that are prefetched.
const AHEAD: u32 = 3;
/// The lines of cold memory that take as long as looking up a peer id.
const ID_LINES: u32 = 2;

impl Default for Part {
    fn default() -> Self {
        Self { family: Family::V4, role: SetRole::Seeders, from: 0 }
    }
}

impl Part {
    /// Returns the page that a part of a set is in, and the place behind it; `None` behind the last page.
    pub(super) fn page<E: Entry>(self, set: &PeerSet<E>, arena: &Arena) -> (u32, Option<u64>) {
        let (page, last) = set.page_from(arena, (self.from >> 32) as u32);
        (page, (u64::from(last) << 32 | u64::from(u32::MAX)).checked_add(1))
    }

    /// Returns the part behind this one: from that place of the set on, or of the next set. Returns `None` if
    /// the torrent has no more sets.
    pub(super) fn next(self, place: Option<u64>) -> Option<Self> {
        let (family, role, from) = match (place, self.family, self.role) {
            (Some(from), family, role) => (family, role, from),
            (None, family, SetRole::Seeders) => (family, SetRole::Leechers, 0),
            (None, Family::V4, SetRole::Leechers) => (Family::V6, SetRole::Seeders, 0),
            (None, Family::V6, SetRole::Leechers) => return None,
        };
        Some(Self { family, role, from })
    }

    /// Returns the first part of a family from this one on.
    pub(super) fn of_family(self, family: Family) -> Option<Self> {
        match (self.family, family) {
            (Family::V4, Family::V6) => Some(Self { family, ..Self::default() }),
            (Family::V6, Family::V4) => None,
            _ => Some(self),
        }
    }
}

impl Default for Walk {
    fn default() -> Self {
        Self { left: u32::MAX, torrent: None, part: Part::default() }
    }
}

impl Walk {
    /// Returns true if torrents are left.
    pub(crate) fn has_more(&self) -> bool {
        self.left > 0
    }

    /// Returns the number of the current torrent; `None` after the last one.
    pub(super) fn torrent(&mut self, records: &Records) -> Option<u32> {
        let left = self.left.min(records.len());
        let number = left.checked_sub(1);
        let stays = number.is_some_and(|number| self.torrent == Some(records.at(number).info_hash));
        *self = if stays { Self { left, ..*self } } else { Self { left, ..Self::default() } };
        number
    }

    /// Moves on to a part of the current torrent, or to the next torrent.
    pub(super) fn advance(&mut self, info_hash: InfoHash, next: Option<Part>) {
        *self = match next {
            Some(part) => Self { torrent: Some(info_hash), part, ..*self },
            None => Self { left: self.left.saturating_sub(1), ..Self::default() },
        };
    }
}

/// The output of a walk, which appends its groups to `body`.
pub(crate) struct WalkOutput<'a> {
    pub(crate) time: WalkTime,
    /// The most units since the last announce of peers that are visited.
    pub(crate) age_max: Option<u32>,
    pub(crate) body: &'a mut Vec<u8>,
}

/// The torrent and role whose peers are written.
#[derive(Clone, Copy)]
struct Visit {
    info_hash: InfoHash,
    role: SetRole,
    now: Tick,
    /// As in [`WalkOutput`].
    age_max: Option<u32>,
}

impl Shard {
    /// Appends the groups of about the next `lines` lines of a walk to the output. Returns false at the
    /// end of the walk.
    pub(crate) fn walk(&self, walk: &mut Walk, lines: u32, output: &mut WalkOutput<'_>) -> bool {
        let mut left = lines;
        while left > 0
            && let Some(number) = walk.torrent(&self.records)
        {
            number.checked_sub(AHEAD).into_iter().for_each(|ahead| self.prefetch_all(ahead));
            let start = output.body.len();
            left = left.saturating_sub(1 + self.walk_torrent(walk, number, left, output));
            if output.age_max.is_some() && output.body.len() == start + WALK_GROUP_LEN {
                // None of its peers is young enough.
                output.body.truncate(start);
            }
        }
        walk.has_more()
    }

    /// Prefetches the dense sets of a torrent, and the directories of others.
    fn prefetch_all(&self, number: u32) {
        let record = self.records.at(number);
        if record.is_spilled() {
            let sets = record.sets();
            sets.v4.iter().for_each(|set| set.prefetch(&self.arena));
            sets.v6.iter().for_each(|set| set.prefetch(&self.arena));
        }
    }

    /// Visits up to about `lines` lines of a torrent. Returns how many.
    fn walk_torrent(
        &self,
        walk: &mut Walk,
        number: u32,
        lines: u32,
        output: &mut WalkOutput<'_>,
    ) -> u32 {
        let record = self.records.at(number);
        let info_hash = record.info_hash;
        let of = |role| Visit { info_hash, role, now: output.time.now, age_max: output.age_max };
        let born_min = output.time.epoch_min.saturating_add(record.first_seen().0 / 60);
        let head = Head { downloads: record.downloads, born_min };
        let mut group = GroupWriter::new(output.body, info_hash, Some(head));
        if !record.is_spilled() {
            let (seeders, leechers) = record.inline_peers().split_at(record.inline_seeders.into());
            walk.advance(info_hash, None);
            return self.write(&mut group, of(SetRole::Seeders), seeders)
                + self.write(&mut group, of(SetRole::Leechers), leechers);
        }
        let Sets { v4, v6 } = record.sets();
        let mut visited = 0;
        let mut next = Some(walk.part);
        while let Some(part) = next {
            let role = part.role;
            let (lines, place) = match part.family {
                Family::V4 if v4[role].len() == 0 => (0, None),
                Family::V6 if v6[role].len() == 0 => (0, None),
                // Not before empty sets are skipped: else the next step would begin with a group
                // without peers.
                _ if visited >= lines => break,
                Family::V4 => self.walk_part(part, &mut group, of(role), &v4[role]),
                Family::V6 => self.walk_part(part, &mut group, of(role), &v6[role]),
            };
            visited += lines;
            next = part.next(place);
        }
        walk.advance(info_hash, next);
        visited
    }

    /// Visits the next part of a set. Returns the lines visited, and the place behind the part.
    fn walk_part<E: Entry>(
        &self,
        part: Part,
        group: &mut GroupWriter<'_>,
        of: Visit,
        set: &PeerSet<E>,
    ) -> (u32, Option<u64>) {
        let (page, next) = part.page(set, &self.arena);
        let entries = set.entries(&self.arena, page);
        if entries.len() <= PART_PEERS {
            return (self.write(group, of, entries), next);
        }
        let mut ahead: Vec<(u64, E)> =
            entries.iter().map(|entry| (place(&self.key, entry), *entry)).collect();
        ahead.retain(|(place, _)| *place >= part.from);
        if ahead.len() <= PART_PEERS {
            let chosen: Vec<E> = ahead.into_iter().map(|(_, entry)| entry).collect();
            return (self.write(group, of, &chosen), next);
        }
        let (_, &mut (last, _), _) =
            ahead.select_nth_unstable_by_key(PART_PEERS - 1, |(place, _)| *place);
        ahead.retain(|(place, _)| *place <= last);
        let chosen: Vec<E> = ahead.into_iter().map(|(_, entry)| entry).collect();
        (self.write(group, of, &chosen), last.checked_add(1))
    }

    /// Writes peers of a role in a torrent. Returns the lines that reading them took.
    fn write<E: Entry>(&self, group: &mut GroupWriter<'_>, of: Visit, entries: &[E]) -> u32 {
        for entry in entries {
            let (key, meta) = (entry.peer_key(), entry.meta());
            let age = meta.age(of.now);
            if of.age_max.is_none_or(|max| age <= max) {
                let word = Word::present(age, of.role.of_peer(meta), meta.is_counted());
                group.push(key, word, self.ids.as_ref().map(|_| self.id(of.info_hash, key)));
            }
        }
        let lines = size_of_val(entries).div_ceil(LINE) as u32;
        lines + if self.ids.is_some() { entries.len() as u32 * ID_LINES } else { 0 }
    }
}

#[cfg(test)]
impl Shard {
    /// Calls `visit` with every peer in the plain way.
    pub(crate) fn each_peer(
        &self,
        visit: &mut dyn FnMut((InfoHash, PeerKey), (Role, PeerMeta, PeerId)),
    ) {
        let mut visit = |of: &Record, role: SetRole, key: PeerKey, meta: PeerMeta| {
            let id = self.id(of.info_hash, key);
            visit((of.info_hash, key), (role.of_peer(meta), meta, id));
        };
        for record in (0..self.records.len()).map(|number| self.records.at(number)) {
            if !record.is_spilled() {
                for (at, entry) in record.inline_peers().iter().enumerate() {
                    visit(record, record.inline_role(at), entry.peer_key(), entry.meta());
                }
                continue;
            }
            let Sets { v4, v6 } = record.sets();
            for role in SetRole::BOTH {
                for entry in v4[role].iter(&self.arena) {
                    visit(record, role, entry.peer_key(), entry.meta());
                }
                for entry in v6[role].iter(&self.arena) {
                    visit(record, role, entry.peer_key(), entry.meta());
                }
            }
        }
    }
}

/// Returns the place of a peer in the order in which a walk visits a set: by page, and in a page by a
/// hash of its own.
fn place<E: Entry>(key: &[u8; 16], entry: &E) -> u64 {
    let page = peer_hash::<E>(key)(entry.key()).reverse_bits();
    let own = siphash::<1, 3>(key, entry.key().as_ref()) as u32;
    u64::from(page) << 32 | u64::from(own)
}
