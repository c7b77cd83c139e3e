//! Sets of info hashes: the lists of files, and those that change entry by entry.
//!
//! Plain form: a hash table. Departures:
//! 1. It is sharded, and each shard has a lock of its own: a change does not wait for lookups in other
//!    shards, and adding a million entries stops no lookup for long.
//! 2. Hashes are keyed: users who add torrents to a list cannot make lookups slow.
//!
//! An entry takes 24 to 48 bytes, as the tables double. Sorted arrays with a directory, one for files and one
//! that changes, took 21 and 25 bytes; they were no faster (`bench/record/2026-11-23-hash-list.md`).

use std::fmt;
use std::io::BufRead;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use parking_lot::RwLock;
use primitives::siphash::{siphash, siphash_128};
use types::{InfoHash, limits};

use crate::lines::{BadLine, read_lines, too_many};

/// A set of info hashes. Changes are in force at once.
#[derive(Default)]
pub struct HashList {
    /// The file or the folder of the entries, for operators; empty for those of the API.
    source: String,
    key: [u8; 16],
    /// Allocated with the first entry.
    shards: OnceLock<Box<[RwLock<HashTable<InfoHash>>]>>,
    len: AtomicUsize,
}

/// A power of two.
const SHARDS: usize = 1024;

impl HashList {
    /// The parts by which all entries can be read.
    pub const PARTS: usize = SHARDS;

    /// Returns an empty list. `key` keeps those who choose entries from aiming at places of the table.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key, ..Self::default() }
    }

    /// Parses a list: one hash per line, of 40 hex digits (v1), or 64 (v2, truncated to 20 bytes as BEP
    /// 52 says), optionally followed by a note. Skips blank lines and everything after `#`. Duplicates
    /// count once.
    ///
    /// # Errors
    ///
    /// Fails at the first bad line: half a list must not come into force.
    pub fn parse(text: impl BufRead) -> Result<Self, BadLine> {
        let mut entries = Vec::new();
        read_lines(text, |line| {
            let entry = InfoHash::from_line(line).map_err(|error| error.to_string())?;
            let Some(entry) = entry else { return Ok(()) };
            if entries.len() == limits::ACCESS_ENTRIES_MAX {
                return Err(too_many(limits::ACCESS_ENTRIES_MAX));
            }
            entries.push(entry);
            Ok(())
        })?;
        Ok(entries.into_iter().collect())
    }

    /// Returns the number of the first line that holds `info_hash`, counted from 1. Lines that [`HashList::parse`]
    /// refuses are skipped.
    pub fn find_line(text: impl BufRead, info_hash: &InfoHash) -> Option<usize> {
        let mut lines = text.split(b'\n').map_while(Result::ok);
        let is_wanted = |line: Vec<u8>| InfoHash::from_line(&line) == Ok(Some(*info_hash));
        lines.position(is_wanted).map(|index| index + 1)
    }

    /// Names the file or the folder that the entries are from.
    #[must_use]
    pub fn with_source(self, source: String) -> Self {
        Self { source, ..self }
    }

    /// Returns the file or the folder that the entries are from; empty for those of the API.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Adds entries, and returns how many are new. Leaves out those over
    /// [`limits::ACCESS_ENTRIES_MAX`].
    pub fn insert(&self, hashes: &[InfoHash]) -> usize {
        let shards = self.shards.get_or_init(|| (0..SHARDS).map(|_| RwLock::default()).collect());
        let mut new = 0;
        for info_hash in hashes {
            if self.len() >= limits::ACCESS_ENTRIES_MAX {
                break;
            }
            let hash = self.hash(info_hash);
            let mut shard = shards[shard_of(hash)].write();
            if shard.find(hash, |entry| entry == info_hash).is_none() {
                shard.insert_unique(hash, *info_hash, |entry| self.hash(entry));
                self.len.fetch_add(1, Ordering::Relaxed);
                new += 1;
            }
        }
        new
    }

    /// Removes entries, and returns how many there were.
    pub fn remove(&self, hashes: &[InfoHash]) -> usize {
        let Some(shards) = self.shards.get() else { return 0 };
        let mut removed = 0;
        for info_hash in hashes {
            let hash = self.hash(info_hash);
            let mut shard = shards[shard_of(hash)].write();
            if let Ok(entry) = shard.find_entry(hash, |entry| entry == info_hash) {
                entry.remove();
                self.len.fetch_sub(1, Ordering::Relaxed);
                removed += 1;
                if shard.len() < shard.capacity() / 4 {
                    shard.shrink_to_fit(|entry| self.hash(entry));
                }
            }
        }
        removed
    }

    /// Returns whether the list contains `info_hash`.
    #[inline]
    pub fn contains(&self, info_hash: &InfoHash) -> bool {
        if self.is_empty() {
            return false;
        }
        let Some(shards) = self.shards.get() else { return false };
        let hash = self.hash(info_hash);
        shards[shard_of(hash)].read().find(hash, |entry| entry == info_hash).is_some()
    }

    /// Returns the entries of one of [`HashList::PARTS`] parts, in no order. Holds the part's lock while it copies.
    pub fn part(&self, part: usize) -> Vec<InfoHash> {
        let shard = self.shards.get().and_then(|shards| shards.get(part));
        shard.map_or_else(Vec::new, |shard| shard.read().iter().copied().collect())
    }

    /// Returns the number of hashes.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn hash(&self, info_hash: &InfoHash) -> u64 {
        siphash::<1, 3>(&self.key, &info_hash.0)
    }
}

/// Chosen by the middle bits: a shard's table uses the lowest and the highest.
#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

impl FromIterator<InfoHash> for HashList {
    /// Makes a list whose key depends on all of its entries: no one can choose an entry by the key.
    fn from_iter<I: IntoIterator<Item = InfoHash>>(hashes: I) -> Self {
        let entries: Vec<InfoHash> = hashes.into_iter().collect();
        let mut key = [0; 16];
        for entry in &entries {
            let [first, second] = siphash_128::<1, 3>(&key, &entry.0);
            key = (u128::from(first) << 64 | u128::from(second)).to_le_bytes();
        }
        let list = Self::new(key);
        list.insert(&entries);
        list
    }
}

impl fmt::Debug for HashList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HashList of {}", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use primitives::Random;

    use super::*;

    fn parse(text: &str) -> Result<HashList, BadLine> {
        HashList::parse(text.as_bytes())
    }

    #[test]
    fn reads_hashes_comments_and_blanks() {
        let (a, b) = ("aA".repeat(20), "0b".repeat(32));
        let list = parse(&format!("# head\n\n {a} # one\r\n{b}\ta note # two\n{a}")).unwrap();
        assert_eq!(list.len(), 2);
        assert!(list.contains(&InfoHash([0xaa; 20])) && list.contains(&InfoHash([0x0b; 20])));
        assert!(!list.contains(&InfoHash([0; 20])) && !list.contains(&InfoHash([0xff; 20])));
        let file = format!("# head\nnonsense\n\n {a} # one\r\n{b}\ta note\n{a}");
        let line = |byte| HashList::find_line(file.as_bytes(), &InfoHash([byte; 20]));
        assert_eq!([line(0xaa), line(0x0b), line(0)], [Some(4), Some(5), None]);
        let parts = (0..HashList::PARTS).flat_map(|part| list.part(part));
        assert_eq!(parts.collect::<BTreeSet<_>>().len(), 2);
        let empty = parse("# nothing\n").unwrap();
        assert!(empty.is_empty() && !empty.contains(&InfoHash::default()));
    }

    #[test]
    fn error_names_the_bad_line() {
        let good = "00".repeat(20);
        let says = |bad: &[u8]| {
            let text = [good.as_bytes(), b"\n#\n", bad, b"\n", good.as_bytes(), b"\n"].concat();
            HashList::parse(&text[..]).unwrap_err().to_string()
        };
        let two = format!("{good} {good}");
        let digit = format!("{}g", &good[1..]);
        for (bad, expected) in [
            (&b"abc"[..], "line 3: expected 40 or 64 hex digits, found 3 characters"),
            (b"\xff\xfe\x00", "line 3: expected 40 or 64 hex digits, found 3 characters"),
            (digit.as_bytes(), "line 3: character 40 is not a hex digit"),
            (&[b'a'; 5000], "line 3: longer than 1024 bytes"),
            (two.as_bytes(), "line 3: expected one info hash per line, found two"),
        ] {
            assert_eq!(says(bad), expected);
        }
    }

    #[test]
    fn agrees_with_a_tree_set() {
        let mut random = Random::new(1);
        for (different, most) in [(4, 4), (300, 60), (20_000, 2000)] {
            let mut hash = || {
                let mut bytes = [7; 20];
                bytes[16..].copy_from_slice(&random.below(different).to_be_bytes());
                InfoHash(bytes)
            };
            let (list, mut twin) = (HashList::new([1; 16]), BTreeSet::new());
            assert_eq!(list.remove(&[hash()]), 0);
            for round in 0..100_u32 {
                let hashes: Vec<_> = (0..round * 37 % most).map(|_| hash()).collect();
                if round % 5 < 3 {
                    let new = hashes.iter().filter(|hash| twin.insert(**hash)).count();
                    assert_eq!(list.insert(&hashes), new);
                } else {
                    let gone = hashes.iter().filter(|hash| twin.remove(*hash)).count();
                    assert_eq!(list.remove(&hashes), gone);
                }
                assert_eq!((list.len(), list.is_empty()), (twin.len(), twin.is_empty()));
                for _ in 0..50 {
                    let probe = hash();
                    assert_eq!(list.contains(&probe), twin.contains(&probe));
                }
            }
            let copy: HashList = twin.iter().copied().collect();
            assert!(twin.iter().all(|hash| copy.contains(hash)) && copy.len() == twin.len());
            let all: Vec<InfoHash> = twin.iter().copied().collect();
            assert_eq!((list.remove(&all), list.len()), (all.len(), 0));
        }
    }
}
