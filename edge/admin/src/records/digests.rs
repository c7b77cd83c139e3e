//! Digests: of each kind of rows and each of 1,024 ranges of keys, the wrapping sum of its rows' hashes.
//!
//! Nodes compare them to find which rows differ. They are written in the transaction that changes the rows, and
//! held in memory besides.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use primitives::siphash::siphash;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::Kind;

/// Ranges of each kind. A range is the first ten bits of keys.
pub(super) const RANGES: u16 = 1024;

/// Returns the range of a key, which has two bytes at least.
fn range_of(key: &[u8]) -> u16 {
    key.first_chunk().map_or(0, |first| u16::from_be_bytes(*first) >> 6)
}

/// Returns the first key of a range and the first key behind it.
pub(super) fn bounds(range: u16) -> (Vec<u8>, Vec<u8>) {
    let first = |range: u16| (range << 6).to_be_bytes().to_vec();
    // Longer than an info hash; and names are UTF-8, which has no such bytes.
    let end = if range + 1 < RANGES { first(range + 1) } else { vec![0xff; 21] };
    (first(range), end)
}

pub(super) fn hash(kind: Kind, key: &[u8], values: &[i64]) -> u64 {
    let mut bytes = vec![kind as u8];
    bytes.extend_from_slice(key);
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_be_bytes()));
    siphash::<1, 3>(&[0; 16], &bytes)
}

/// The sums that a transaction adds to digests.
#[derive(Clone, Debug, Default)]
pub(super) struct DigestChanges(BTreeMap<(Kind, u16), u64>);

impl DigestChanges {
    /// Replaces the hash of a row; 0 stands for no row.
    pub(super) fn replace(&mut self, kind: Kind, key: &[u8], old: u64, new: u64) {
        let change = self.0.entry((kind, range_of(key))).or_default();
        *change = change.wrapping_sub(old).wrapping_add(new);
    }

    pub(super) fn absorb(&mut self, other: Self) {
        for (range, added) in other.0 {
            let change = self.0.entry(range).or_default();
            *change = change.wrapping_add(added);
        }
    }

    /// Writes the digests in the present transaction. Returns them for [`Digests::set`], to be called after the
    /// commit.
    pub(super) fn write(&self, db: &Connection) -> Result<Vec<RangeDigest>, rusqlite::Error> {
        let mut get =
            db.prepare_cached("SELECT digest FROM ranges WHERE kind = ?1 AND range = ?2")?;
        let mut put = db.prepare_cached("INSERT OR REPLACE INTO ranges VALUES (?1, ?2, ?3)")?;
        let changed = self.0.iter().filter(|(_, added)| **added != 0);
        let write = |((kind, range), added): (&(Kind, u16), &u64)| {
            let place = params![*kind as u8, range];
            let old: Option<i64> = get.query_row(place, |row| row.get(0)).optional()?;
            let digest = old.unwrap_or_default().cast_unsigned().wrapping_add(*added);
            put.execute(params![*kind as u8, range, digest.cast_signed()])?;
            Ok(RangeDigest { kind: *kind as u8, range: *range, digest })
        };
        changed.map(write).collect()
    }
}

/// The digest of a range.
pub(super) struct RangeDigest {
    kind: u8,
    range: u16,
    digest: u64,
}

/// The digests of all ranges, in memory.
#[derive(Debug)]
pub(super) struct Digests(Mutex<Vec<Vec<u64>>>);

impl Default for Digests {
    fn default() -> Self {
        Self(Mutex::new(vec![vec![0; usize::from(RANGES)]; Kind::ALL.len()]))
    }
}

impl Digests {
    /// Reads all from the table.
    pub(super) fn load(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        let mut rows = db.prepare("SELECT kind, range, digest FROM ranges")?;
        let read = rows.query_map([], |row| {
            let digest = row.get::<_, i64>(2)?.cast_unsigned();
            Ok(RangeDigest { kind: row.get(0)?, range: row.get(1)?, digest })
        })?;
        self.set(&read.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }

    pub(super) fn set(&self, digests: &[RangeDigest]) {
        let mut kinds = self.0.lock();
        for RangeDigest { kind, range, digest } in digests {
            let kind = kinds.get_mut(usize::from(*kind));
            if let Some(known) = kind.and_then(|ranges| ranges.get_mut(usize::from(*range))) {
                *known = *digest;
            }
        }
    }

    /// Returns the digest of each kind: a hash of those of its ranges.
    pub(super) fn of_kinds(&self) -> Vec<u64> {
        let of_kind = |ranges: &Vec<u64>| {
            let bytes: Vec<u8> = ranges.iter().flat_map(|digest| digest.to_be_bytes()).collect();
            siphash::<1, 3>(&[0; 16], &bytes)
        };
        self.0.lock().iter().map(of_kind).collect()
    }

    /// Returns the digests of the ranges of a kind; none of an unknown kind.
    pub(super) fn of_ranges(&self, kind: u8) -> Vec<u64> {
        self.0.lock().get(usize::from(kind)).cloned().unwrap_or_default()
    }
}
