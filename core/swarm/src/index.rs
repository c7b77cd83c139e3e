//! Maps hashes to record numbers: open addressing that grows and shrinks in small steps.
//!
//! Plain form: a sorted array of (tag, record) with gaps. A tag's home slot is proportional to its
//! value; an entry whose home is taken moves up. Departures:
//! 1. Entries of a run stay sorted by tag, so an unsuccessful search ends as soon as a successful
//!    one.
//! 2. To resize, the index fills a second table beside the first, a few slots with each change, in
//!    the order of tags: tags below the cursor are in the new table, the rest in the old one. So a
//!    search looks into one table, the new table's memory is touched from one end to the other (no
//!    batch pays for many fresh pages), and no operation visits the whole table.
//!
//! It holds 32 bits of a keyed hash for each record and does not compare info hashes: its callers
//! do.
//!
//! While the store grew to 5 M torrents, 3 of 5 M announces took longer than 1 ms, as many as in a
//! control without growth (`bench/record/2026-11-21-store.txt`). A torrent takes 10 to 15 bytes of
//! the index (`2026-11-21-store-memory.txt`). Its speed has not been measured against a
//! `hashbrown::HashTable`.

use primitives::memory::{HUGE_LINES, Line, Region, view, view_mut};
use primitives::prefetch;

/// Slots past the last home, for entries that moved up. At the loads used here a run exceeds this
/// with a probability below 10^-20 for each table, and without the key it cannot be provoked.
const TAIL: usize = 128;
/// Homes of the smallest table, which takes 4 KiB with its tail.
const HOMES_MIN: usize = 384;
/// Slots migrated with each change during a resize.
const STEP: usize = 32;

/// Record numbers by tag.
pub(crate) struct Index {
    table: Table,
    /// During a resize: the old table, and the first of its slots that is not migrated.
    migrating: Option<(Table, usize)>,
    len: usize,
    /// Prepared memory of the next larger table.
    spare: Option<Region>,
    released: Vec<Region>,
}

struct Table {
    region: Region,
    homes: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        let table = Table { region: Region::new(lines_of(HOMES_MIN)), homes: HOMES_MIN };
        Self { table, migrating: None, len: 0, spare: None, released: Vec::new() }
    }

    /// Prefetches the lines where the search for `tag` begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, tag: u32) {
        let table = self.table_of(tag);
        let lines = table.region.lines();
        let home = table.home(tag);
        prefetch(&lines[home / 8]);
        // Most searches end within four slots.
        prefetch(&lines[(home + 4) / 8]);
    }

    /// Returns the first record with that tag for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let table = self.table_of(tag);
        let wanted = entry(tag, 0);
        for found in table.slots().iter().skip(table.home(tag)) {
            if *found == 0 || *found >> 32 > u64::from(tag) {
                return None;
            }
            if *found >= wanted && is_it(record_of(*found)) {
                return Some(record_of(*found));
            }
        }
        None
    }

    /// Inserts a record. Returns false if there is no free slot, which happens only in a table that
    /// was not allowed to grow.
    pub(crate) fn insert(&mut self, tag: u32, record: u32) -> bool {
        self.migrate(STEP);
        let is_in = self.table_of_mut(tag).insert(entry(tag, record));
        self.len += usize::from(is_in);
        is_in
    }

    /// Removes a record, which must be present.
    pub(crate) fn remove(&mut self, tag: u32, record: u32) {
        let was_in = self.table_of_mut(tag).remove(entry(tag, record));
        debug_assert!(was_in);
        self.len -= usize::from(was_in);
        self.migrate(STEP);
    }

    /// Changes the number of a record, which must be present.
    pub(crate) fn renumber(&mut self, tag: u32, old: u32, new: u32) {
        let table = self.table_of_mut(tag);
        let at = table.position(entry(tag, old));
        debug_assert!(at.is_some());
        if let Some(at) = at {
            table.slots_mut()[at] = entry(tag, new);
        }
    }

    /// Starts a resize if needed: to 1.5 times the homes above a load of 4/5, to half below 1/5.
    /// `may_grow` is false when memory is short; the table then fills up completely.
    pub(crate) fn resize_if_needed(&mut self, may_grow: bool) {
        let homes = self.table.homes;
        if self.migrating.is_some() {
            return;
        }
        let homes = if self.len * 5 > homes * 4 && may_grow {
            homes + homes / 2
        } else if self.len * 5 < homes && homes > HOMES_MIN {
            (homes / 2).max(HOMES_MIN)
        } else {
            return;
        };
        let fits = |region: &mut Region| region.lines().len() == lines_of(homes);
        let region = self.spare.take_if(fits).unwrap_or_else(|| Region::new(lines_of(homes)));
        self.released.extend(self.spare.take());
        let old = std::mem::replace(&mut self.table, Table { region, homes });
        self.migrating = Some((old, 0));
    }

    /// Returns how many prepared lines will be needed soon: those of the next larger table, if it
    /// is large.
    pub(crate) fn wants_lines(&self) -> Option<usize> {
        let lines = lines_of(self.table.homes + self.table.homes / 2);
        // Soon means about one pass of the sweep: the spare table takes half as much memory again,
        // and many stores stop growing before that load.
        let is_soon = self.len * 40 > self.table.homes * 31 && lines >= HUGE_LINES / 2;
        (is_soon && self.migrating.is_none() && self.spare.is_none()).then_some(lines)
    }

    /// Keeps prepared lines for the next resize.
    pub(crate) fn supply(&mut self, lines: Region) {
        self.spare = Some(lines);
    }

    /// Migrates `slots` slots and the rest of their run to the new table, if a resize is in
    /// progress.
    pub(crate) fn migrate(&mut self, slots: usize) {
        let Some((old, cursor)) = &mut self.migrating else { return };
        let end = old.slots().len();
        let target = cursor.saturating_add(slots).min(end);
        for found in old.slots().iter().skip(*cursor) {
            if *found == 0 && *cursor >= target {
                return;
            }
            if *found != 0 {
                let is_in = self.table.insert(*found);
                debug_assert!(is_in);
            }
            *cursor += 1;
        }
        self.released.extend(self.migrating.take().map(|(old, _)| old.region));
    }

    /// Returns true if the load is below 15/16, the highest load of a table that may not grow.
    pub(crate) fn has_room(&self) -> bool {
        self.len * 16 < self.table.homes * 15
    }

    /// Returns the bytes of the next larger table, or 0 if a resize is in progress.
    pub(crate) fn growth_bytes(&self) -> u64 {
        let homes = self.table.homes + self.table.homes / 2;
        if self.migrating.is_some() { 0 } else { (lines_of(homes) * size_of::<Line>()) as u64 }
    }

    /// Returns by how much the load exceeds 4/5, from where on the index grows, as a part of what
    /// lies between that and 15/16.
    pub(crate) fn overload(&self) -> (u64, u64) {
        let (len, homes) = (self.len as u64, self.table.homes as u64);
        ((80 * len).saturating_sub(64 * homes), 11 * homes)
    }

    /// Returns the bytes of its tables.
    pub(crate) fn bytes(&self) -> u64 {
        let old = self.migrating.as_ref().map_or(0, |(old, _)| size_of_val(old.region.lines()));
        (size_of_val(self.table.region.lines()) + old) as u64
    }

    /// Returns the bytes of the prepared memory.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare.as_ref().map_or(0, |spare| size_of_val(spare.lines()) as u64)
    }

    /// Returns released memory. Drop it after unlocking: that takes long.
    pub(crate) fn take_released(&mut self) -> Vec<Region> {
        // A table this empty will not grow soon: release the spare.
        if self.len * 10 < self.table.homes * 7 {
            self.released.extend(self.spare.take());
        }
        std::mem::take(&mut self.released)
    }

    #[inline(always)]
    fn table_of(&self, tag: u32) -> &Table {
        match &self.migrating {
            Some((old, cursor)) if old.home(tag) >= *cursor => old,
            _ => &self.table,
        }
    }

    fn table_of_mut(&mut self, tag: u32) -> &mut Table {
        match &mut self.migrating {
            Some((old, cursor)) if old.home(tag) >= *cursor => old,
            _ => &mut self.table,
        }
    }
}

impl Table {
    #[inline(always)]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.homes as u64) >> 32) as usize
    }

    #[inline(always)]
    fn slots(&self) -> &[u64] {
        view(self.region.lines())
    }

    fn slots_mut(&mut self) -> &mut [u64] {
        view_mut(self.region.lines_mut())
    }

    fn insert(&mut self, new: u64) -> bool {
        let home = self.home(tag_of(new));
        let slots = self.slots_mut();
        let mut at = home;
        while slots[at] != 0 && slots[at] < new {
            at += 1;
            if at + 1 >= slots.len() {
                return false;
            }
        }
        // The last slot stays empty: it ends every search.
        let rest = &slots[at..slots.len() - 1];
        let Some(gap) = rest.iter().position(|slot| *slot == 0) else { return false };
        slots.copy_within(at..at + gap, at + 1);
        slots[at] = new;
        true
    }

    fn remove(&mut self, old: u64) -> bool {
        let Some(at) = self.position(old) else { return false };
        let homes = self.homes as u64;
        let home = |entry: u64| (((entry >> 32) * homes) >> 32) as usize;
        let slots = self.slots_mut();
        let mut end = at + 1;
        // Entries behind it that are not at home move down.
        while slots[end] != 0 && home(slots[end]) < end {
            end += 1;
        }
        slots.copy_within(at + 1..end, at);
        slots[end - 1] = 0;
        true
    }

    fn position(&self, wanted: u64) -> Option<usize> {
        let home = self.home(tag_of(wanted));
        let run = self.slots().iter().skip(home);
        let same_tag = |slot: &u64| *slot != 0 && tag_of(*slot) <= tag_of(wanted);
        run.take_while(|slot| same_tag(slot)).position(|slot| *slot == wanted).map(|at| home + at)
    }
}

/// Returns the lines of a table with that many homes.
fn lines_of(homes: usize) -> usize {
    (homes + TAIL).div_ceil(8)
}

/// Tags are never 0 (see [`tag`]), so an entry never is.
fn entry(tag: u32, record: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(record)
}

fn tag_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

fn record_of(entry: u64) -> u32 {
    entry as u32
}

/// Returns the tag of a hash: its upper half, but not 0, which marks a gap.
#[inline(always)]
pub(crate) fn tag(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(1)
}

const _: () = assert!(size_of::<Line>() == size_of::<[u64; 8]>());

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::Random;
    use std::collections::BTreeMap;

    /// The index beside a map, while it grows and shrinks; some tags repeat.
    #[test]
    fn agrees_with_a_map_while_it_grows_and_shrinks() {
        let (mut index, mut twin) = (Index::new(), BTreeMap::<u32, u32>::new());
        let mut random = Random::new(7);
        let tag = |record: u32| tag(u64::from(record / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut tables = std::collections::BTreeSet::new();
        for round in 0..400_000u32 {
            let growing = round % 200_000 < 120_000;
            if random.below(8) < if growing { 7 } else { 1 } {
                let record = random.next() as u32 >> 8;
                if twin.insert(record, record).is_none() {
                    assert!(index.insert(tag(record), record));
                }
            } else {
                let from = random.next() as u32 >> 8;
                let next = twin.range(from..).next().map(|(record, _)| *record);
                if let Some(record) = next {
                    twin.remove(&record);
                    index.remove(tag(record), record);
                    assert_eq!(index.find(tag(record), |found| found == record), None);
                }
            }
            index.resize_if_needed(true);
            tables.insert(index.table.homes);
            assert_eq!(index.len, twin.len());
            if round % 50_000 == 49_999 {
                for record in twin.keys() {
                    let found = index.find(tag(*record), |found| found == *record);
                    assert_eq!(found, Some(*record));
                }
            }
        }
        assert!(tables.len() > 10, "{tables:?}");
        assert!(!index.take_released().is_empty());
    }

    #[test]
    fn renumbers_in_both_tables() {
        let mut index = Index::new();
        for record in 0..308 {
            assert!(index.insert(record * 10_000_000 + 1, record));
        }
        index.resize_if_needed(true);
        assert!(index.migrating.is_some());
        index.migrate(100);
        for record in 0..308 {
            index.renumber(record * 10_000_000 + 1, record, record + 1000);
            assert_eq!(index.find(record * 10_000_000 + 1, |_| true), Some(record + 1000));
        }
    }

    #[test]
    fn does_not_grow_when_memory_is_short() {
        let mut index = Index::new();
        let mut entered = 0;
        for record in 0..1000u32 {
            index.resize_if_needed(false);
            entered += usize::from(index.insert(record * 4_000_000 + 1, record));
        }
        assert!(entered < HOMES_MIN + TAIL);
        assert!(!index.has_room());
        assert_eq!(index.bytes(), 4096);
    }

    #[test]
    fn uses_a_prepared_table() {
        let (mut index, mut random) = (Index::new(), Random::new(9));
        let mut supplied = 0;
        for record in 0..200_000 {
            assert!(index.insert(tag(random.next()), record));
            if let Some(lines) = index.wants_lines() {
                index.supply(Region::huge(lines));
                supplied += 1;
            }
            let was_supplied = index.spare.is_some();
            let was_one = index.migrating.is_none();
            index.resize_if_needed(true);
            if was_one && index.migrating.is_some() && index.table.homes > 200_000 {
                assert!(was_supplied);
                assert!(index.spare.is_none());
            }
        }
        assert!(supplied > 1, "{supplied}");
    }

    #[test]
    fn releases_a_prepared_table_when_load_falls() {
        let (mut index, mut random) = (Index::new(), Random::new(9));
        let mut tags = Vec::new();
        let lines = loop {
            if let Some(lines) = index.wants_lines() {
                break lines;
            }
            tags.push(tag(random.next()));
            index.resize_if_needed(true);
            assert!(index.insert(tags[tags.len() - 1], tags.len() as u32));
            assert_eq!(index.spare_bytes(), 0);
        };
        index.supply(Region::new(lines));
        index.take_released();
        assert_eq!(index.spare_bytes(), lines as u64 * 64);
        while index.len * 10 >= index.table.homes * 7 {
            let record = tags.len() as u32;
            index.remove(tags.pop().unwrap(), record);
        }
        assert_eq!((index.take_released().len(), index.spare_bytes()), (1, 0));
    }
}
