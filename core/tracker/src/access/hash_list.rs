//! A set of info hashes, parsed from text and immutable.
//!
//! Plain form: a sorted array. Departure: a directory over the hashes' leading bits, half a byte for each
//! entry of 20, finds the few entries to search: a lookup reads a few cache lines. A hash table would be
//! two to four times as fast and twice as large; operators' lists have millions of entries
//! (`bench/record/2026-11-22-key-tables.md`).

use std::fmt;
use std::io::{self, BufRead, Read};

use primitives::prefetch;
use types::{InfoHash, ParseInfoHashError, limits};

/// An immutable set of info hashes.
#[derive(Debug, Default)]
pub struct HashList {
    /// Sorted, without duplicates.
    entries: Box<[InfoHash]>,
    /// For each value of the leading bits, the index of its first entry; and the number of entries.
    starts: Box<[u32]>,
    /// By how many bits to shift a hash's first 32 bits to get the index into `starts`.
    shift: u32,
}

/// A line of a list is invalid.
#[derive(Debug)]
pub struct BadLine {
    /// Its number, counted from 1.
    pub line: usize,
    /// Its fault.
    pub fault: LineFault,
}

/// A fault in a line.
#[derive(Debug)]
pub enum LineFault {
    /// It holds something that is not an info hash.
    Hash(ParseInfoHashError),
    /// It is longer than `LINE_MAX`.
    TooLong,
    /// It is one entry more than a list may have.
    TooMany,
    /// It could not be read.
    Io(io::Error),
}

/// Maximum length of a line in bytes, comment included.
const LINE_MAX: usize = 1024;
/// Entries for each index of the directory, on average.
const BUCKET: usize = 8;

impl HashList {
    /// Parses a list: one hash per line, of 40 hex digits (v1), or 64 (v2, truncated to 20 bytes as BEP
    /// 52 says), optionally followed by a note. Skips blank lines and everything after `#`. Duplicates
    /// count once.
    ///
    /// # Errors
    ///
    /// Fails at the first bad line: half a list must not come into force.
    pub fn parse(mut text: impl BufRead) -> Result<Self, BadLine> {
        let mut entries = Vec::new();
        let mut line = Vec::new();
        for number in 1.. {
            let bad = |fault| BadLine { line: number, fault };
            line.clear();
            let mut limited = text.by_ref().take(LINE_MAX as u64 + 1);
            let read = limited.read_until(b'\n', &mut line);
            if read.map_err(|error| bad(LineFault::Io(error)))? == 0 {
                break;
            }
            if line.len() > LINE_MAX {
                return Err(bad(LineFault::TooLong));
            }
            let entry = InfoHash::from_line(&line).map_err(|error| bad(LineFault::Hash(error)))?;
            if let Some(entry) = entry {
                if entries.len() == limits::ACCESS_ENTRIES_MAX {
                    return Err(bad(LineFault::TooMany));
                }
                entries.push(entry);
            }
        }
        Ok(entries.into_iter().collect())
    }

    /// Returns whether the list contains `hash`.
    #[inline]
    pub fn contains(&self, hash: &InfoHash) -> bool {
        let bucket = bucket(hash, self.shift);
        let bounds = self.starts.get(bucket).zip(self.starts.get(bucket + 1));
        let entries = bounds.and_then(|(from, to)| self.entries.get(*from as usize..*to as usize));
        entries.is_some_and(|entries| entries.binary_search(hash).is_ok())
    }

    /// Prefetches what [`HashList::contains`] reads first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: &InfoHash) {
        let bucket = bucket(hash, self.shift);
        self.starts.get(bucket).into_iter().for_each(prefetch);
    }

    /// Returns the number of hashes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl FromIterator<InfoHash> for HashList {
    /// Sorts the hashes, drops duplicates, and builds the directory.
    fn from_iter<I: IntoIterator<Item = InfoHash>>(hashes: I) -> Self {
        let mut entries: Vec<InfoHash> = hashes.into_iter().collect();
        entries.sort_unstable();
        entries.dedup();
        let bits = (entries.len() / BUCKET).max(1).ilog2();
        let shift = 32 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, entry) in entries.iter().enumerate() {
            let bucket = bucket(entry, shift);
            starts.resize(starts.len().max(bucket + 1), at as u32);
        }
        starts.resize((1 << bits) + 1, entries.len() as u32);
        Self { entries: entries.into(), starts: starts.into(), shift }
    }
}

/// Returns a hash's index into the directory.
#[inline]
fn bucket(hash: &InfoHash, shift: u32) -> usize {
    let [a, b, c, d, ..] = hash.0;
    // With a single bucket the shift is 32, and all bits go.
    u32::from_be_bytes([a, b, c, d]).checked_shr(shift).unwrap_or(0) as usize
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.fault {
            LineFault::Hash(error) => write!(f, "{error}"),
            LineFault::TooLong => write!(f, "longer than {LINE_MAX} bytes"),
            LineFault::TooMany => write!(f, "more than {} entries", limits::ACCESS_ENTRIES_MAX),
            LineFault::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for BadLine {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    }

    #[test]
    fn empty_list_contains_nothing() {
        let list = parse("# nothing\n").unwrap();
        assert!(list.is_empty() && !list.contains(&InfoHash::default()));
        assert!(!HashList::default().contains(&InfoHash::default()));
    }

    #[test]
    fn error_names_the_bad_line() {
        let good = "00".repeat(20);
        let text = |bad: &str| format!("{good}\n#\n{bad}\n{good}\n");
        let says = |bad: &str| parse(&text(bad)).unwrap_err().to_string();
        assert_eq!(says("abc"), "line 3: expected 40 or 64 hex digits, found 3 characters");
        assert_eq!(says(&format!("{}g", &good[1..])), "line 3: character 40 is not a hex digit");
        assert_eq!(says(&"a".repeat(5000)), "line 3: longer than 1024 bytes");
        let two = "line 3: expected one info hash per line, found two";
        assert_eq!(says(&format!("{good} {good}")), two);
    }

    #[test]
    fn rejects_bytes_that_are_not_text() {
        let error = HashList::parse(&b"\xff\xfe\x00\n"[..]).unwrap_err();
        assert_eq!(error.line, 1);
    }

    #[test]
    fn agrees_with_a_tree_set_at_every_size() {
        // Some hashes share leading bits, so that there are full and empty buckets.
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        for size in [0, 1, 2, 7, 8, 9, 100, 1000, 20_000] {
            let mut hash = || {
                let mut bytes = [0; 20];
                let lead = if random() % 2 == 0 { random() } else { 0xfff0_0000 | (random() % 9) };
                bytes[..4].copy_from_slice(&lead.to_be_bytes());
                bytes[19] = (random() % 3) as u8;
                InfoHash(bytes)
            };
            let twin: BTreeSet<InfoHash> = (0..size).map(|_| hash()).collect();
            let list: HashList = twin.iter().rev().copied().collect();
            assert_eq!(list.len(), twin.len());
            assert!(twin.iter().all(|entry| list.contains(entry)));
            for _ in 0..1000 {
                let probe = hash();
                assert_eq!(list.contains(&probe), twin.contains(&probe));
            }
        }
    }
}
