//! Files with one info hash a line: access lists, and opentracker's `statedump`, which has counts behind each.

use std::io::Read;
use std::sync::Arc;

use types::InfoHash;

use crate::error::{ImportError, Place};
use crate::sql::bytes::Bytes;

/// Bytes of a line. Notes behind a hash may be longer.
const LINE_MAX: usize = 1024;

/// A line of the file.
pub(crate) enum Entry {
    /// An info hash.
    Hash(InfoHash),
    /// An info hash, and how often the torrent was downloaded.
    Downloads(InfoHash, u64),
    /// Something else, and what was expected.
    Invalid(String),
}

/// Takes entries one by one.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&Place, Entry) -> Result<(), ImportError>;

/// Reads lines, and calls `take` with what each one has. Empty lines and comments are passed.
pub(crate) fn read(input: impl Read, file: &Arc<str>, take: Take<'_>) -> Result<(), ImportError> {
    let mut bytes = Bytes::new(input, file);
    loop {
        let place = bytes.place();
        let Some(line) = bytes.line(LINE_MAX)? else { return Ok(()) };
        take_line(&place, &line, take)?;
    }
}

fn take_line(place: &Place, line: &[u8], take: Take<'_>) -> Result<(), ImportError> {
    if let Some(entry) = downloads(line) {
        return take(place, entry);
    }
    match InfoHash::from_line(line) {
        Ok(None) => Ok(()),
        Ok(Some(hash)) => take(place, Entry::Hash(hash)),
        Err(error) => take(place, Entry::Invalid(error.to_string())),
    }
}

/// Parses `HASH:BASE:DOWNLOADS`.
fn downloads(line: &[u8]) -> Option<Entry> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let mut parts = text.split(':');
    let hash = parts.next()?.parse().ok()?;
    let (_base, count): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(Entry::Downloads(hash, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_and_statedumps() {
        let (a, b) = ("ab".repeat(20), "CD".repeat(20));
        let text = format!("{a}\r\n\n# note\n{b} a note\n{a}:29388:17\nnothing\n{a}:x:1\n{b}");
        let mut found = Vec::new();
        read(text.as_bytes(), &"f".into(), &mut |place, entry| {
            found.push(match entry {
                Entry::Hash(hash) => format!("{} {hash}", place.line),
                Entry::Downloads(hash, count) => format!("{} {hash} {count}", place.line),
                Entry::Invalid(text) => format!("{} {text}", place.line),
            });
            Ok(())
        })
        .unwrap();
        let b = b.to_lowercase();
        assert_eq!(found[..3], [format!("1 {a}"), format!("4 {b}"), format!("5 {a} 17")]);
        assert!(found[3].starts_with("6 expected 40 or 64 hex digits"), "{found:?}");
        assert!(found[4].starts_with("7 expected 40 or 64 hex digits"), "{found:?}");
        assert_eq!(found[5..], [format!("8 {b}")]);
    }

    #[test]
    fn a_huge_line_takes_no_memory() {
        let input = std::io::repeat(b'a').take(10_000_000);
        let mut count = 0;
        read(input, &"f".into(), &mut |_, entry| {
            count += u32::from(matches!(entry, Entry::Invalid(_)));
            Ok(())
        })
        .unwrap();
        assert_eq!(count, 1);
    }
}
