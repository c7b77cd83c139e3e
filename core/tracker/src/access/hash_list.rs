//! A set of info hashes, read from text, frozen once built.

use std::fmt;
use std::io::{self, BufRead, Read};

use primitives::prefetch;
use types::{InfoHash, ParseInfoHashError, limits};

/// An immutable set of info hashes.
#[derive(Debug, Default)]
pub struct HashList {
    /// Sorted, without repeats.
    entries: Box<[InfoHash]>,
    /// Where in `entries` those begin whose leading bits are the index; one more at the end.
    starts: Box<[u32]>,
    /// How far a hash's first 32 bits are shifted to give the index.
    shift: u32,
}

/// A line that is no entry.
#[derive(Debug)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: LineFault,
}

/// What can be wrong with a line.
#[derive(Debug)]
pub enum LineFault {
    /// It holds something that is no info hash.
    Hash(ParseInfoHashError),
    /// It is longer than `LINE_MAX`.
    TooLong,
    /// It is the entry after the last that is allowed.
    TooMany,
    /// It could not be read.
    Io(io::Error),
}

/// Bytes that a line may have, comment included.
const LINE_MAX: usize = 1024;
/// Entries that a look-up finds behind one directory index, on average.
const BUCKET: usize = 8;

impl HashList {
    /// Reads a list: a line each for a hash of 40 hex digits (v1), or 64 (v2, cut to 20 bytes, as
    /// BEP 52 has it). Blank lines and all from `#` on are skipped. Repeats count once. The first
    /// bad line ends the reading: half a list must not come into force.
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
            if let Some(entry) = parse_line(&line).map_err(|error| bad(LineFault::Hash(error)))? {
                if entries.len() == limits::ACCESS_ENTRIES_MAX {
                    return Err(bad(LineFault::TooMany));
                }
                entries.push(entry);
            }
        }
        Ok(entries.into_iter().collect())
    }

    /// Whether `hash` is in it.
    #[inline]
    pub fn contains(&self, hash: &InfoHash) -> bool {
        let bucket = leading_bits(hash).checked_shr(self.shift).unwrap_or(0) as usize;
        let bounds = self.starts.get(bucket).zip(self.starts.get(bucket + 1));
        let entries = bounds.and_then(|(from, to)| self.entries.get(*from as usize..*to as usize));
        entries.is_some_and(|entries| entries.binary_search(hash).is_ok())
    }

    /// Asks for the memory that [`HashList::contains`] will need first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: &InfoHash) {
        let bucket = leading_bits(hash).checked_shr(self.shift).unwrap_or(0) as usize;
        self.starts.get(bucket).into_iter().for_each(prefetch);
    }

    /// How many hashes it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl FromIterator<InfoHash> for HashList {
    /// Sorts, drops repeats, builds the directory.
    fn from_iter<I: IntoIterator<Item = InfoHash>>(hashes: I) -> Self {
        let mut entries: Vec<InfoHash> = hashes.into_iter().collect();
        entries.sort_unstable();
        entries.dedup();
        let bits = (entries.len() / BUCKET).max(1).ilog2();
        let shift = 32 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, entry) in entries.iter().enumerate() {
            let bucket = leading_bits(entry).checked_shr(shift).unwrap_or(0) as usize;
            starts.resize(starts.len().max(bucket + 1), at as u32);
        }
        starts.resize((1 << bits) + 1, entries.len() as u32);
        Self { entries: entries.into(), starts: starts.into(), shift }
    }
}

fn leading_bits(hash: &InfoHash) -> u32 {
    hash.0.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn parse_line(line: &[u8]) -> Result<Option<InfoHash>, ParseInfoHashError> {
    let text = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
    if text.is_empty() { Ok(None) } else { InfoHash::from_hex(text).map(Some) }
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
        let list = parse(&format!("# head\n\n {a} # one\r\n{b}\n{a}")).unwrap();
        assert_eq!(list.len(), 2);
        assert!(list.contains(&InfoHash([0xaa; 20])) && list.contains(&InfoHash([0x0b; 20])));
        assert!(!list.contains(&InfoHash([0; 20])) && !list.contains(&InfoHash([0xff; 20])));
    }

    #[test]
    fn empty_list_holds_nothing() {
        let list = parse("# nothing\n").unwrap();
        assert!(list.is_empty() && !list.contains(&InfoHash::default()));
        assert!(!HashList::default().contains(&InfoHash::default()));
    }

    #[test]
    fn bad_line_is_named() {
        let good = "00".repeat(20);
        let text = |bad: &str| format!("{good}\n#\n{bad}\n{good}\n");
        let says = |bad: &str| parse(&text(bad)).unwrap_err().to_string();
        assert_eq!(says("abc"), "line 3: expected 40 or 64 hex digits, found 3 characters");
        assert_eq!(says(&format!("{}g", &good[1..])), "line 3: character 40 is not a hex digit");
        assert_eq!(says(&"a".repeat(5000)), "line 3: longer than 1024 bytes");
        assert!(says(&format!("{good} {good}")).starts_with("line 3: "));
    }

    #[test]
    fn bytes_that_are_no_text_are_a_bad_line() {
        let error = HashList::parse(&b"\xff\xfe\x00\n"[..]).unwrap_err();
        assert_eq!(error.line, 1);
    }

    #[test]
    fn agrees_with_a_tree_set_at_every_size() {
        // Hashes that share leading bits, and hashes that do not, so that buckets are both full
        // and empty.
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
