//! Full scrapes: what a tracker answers to a scrape that names no torrent. One bencoded dictionary, which may be
//! larger than the memory.

use std::io::Read;
use std::sync::Arc;

use types::InfoHash;

use crate::error::{ImportError, Place};
use crate::hash_file::{Entry, Take};
use crate::sql::bytes::Bytes;

/// Bytes of a key or hash. Those of other values are passed over.
const KEY_MAX: u64 = 64;
/// Lists and dictionaries in one another.
const DEPTH_MAX: u32 = 16;

/// Returns whether a file that begins with these bytes is a full scrape.
pub(crate) fn is_one(head: &[u8]) -> bool {
    let head = head.get(..1024).unwrap_or(head);
    head.starts_with(b"d") && memchr::memmem::find(head, b"5:filesd").is_some()
}

/// Reads a full scrape, and calls `take` with each torrent and how often it was downloaded.
///
/// # Errors
///
/// Fails at the first byte that is not as expected, and where the file ends too early.
pub(crate) fn read(input: impl Read, file: &Arc<str>, take: Take<'_>) -> Result<(), ImportError> {
    let place = Place::file(file);
    let mut reader = Reader { input: Bytes::new(input, file), at: 0, place: &place };
    reader.expect(b'd')?;
    while let Some(key) = reader.key()? {
        if key == b"files" {
            torrents(&mut reader, take)?;
        } else {
            reader.pass_over()?;
        }
    }
    Ok(())
}

fn torrents<R: Read>(reader: &mut Reader<'_, R>, take: Take<'_>) -> Result<(), ImportError> {
    reader.expect(b'd')?;
    while let Some(hash) = reader.key()? {
        let mut downloads = 0;
        reader.expect(b'd')?;
        while let Some(key) = reader.key()? {
            if key == b"downloaded" {
                reader.expect(b'i')?;
                downloads = reader.number(b'e')?;
            } else {
                reader.pass_over()?;
            }
        }
        let entry = match hash.as_slice().try_into() {
            Ok(hash) => Entry::Downloads(InfoHash(hash), downloads),
            Err(_) => Entry::Invalid(format!("expected a hash of 20 bytes, found {}", hash.len())),
        };
        take(reader.place, entry)?;
    }
    Ok(())
}

/// Reads the parts of bencoded values.
struct Reader<'a, R> {
    input: Bytes<R>,
    /// Bytes before the next one.
    at: u64,
    place: &'a Place,
}

impl<R: Read> Reader<'_, R> {
    fn byte(&mut self) -> Result<u8, ImportError> {
        let byte = self.input.bump()?.ok_or_else(|| self.error("more: the file is cut off"))?;
        self.at += 1;
        Ok(byte)
    }

    fn error(&self, expected: &str) -> ImportError {
        self.place.error(format_args!("byte {} of a full scrape: expected {expected}", self.at))
    }

    fn expect(&mut self, expected: u8) -> Result<(), ImportError> {
        let found = self.byte()?;
        let text = || format!("`{}`, found `{}`", char::from(expected), found.escape_ascii());
        if found == expected { Ok(()) } else { Err(self.error(&text())) }
    }

    /// Reads the digits of a number, and what ends it.
    fn number(&mut self, end: u8) -> Result<u64, ImportError> {
        let first = self.byte()?;
        self.number_from(first, end)
    }

    fn number_from(&mut self, first: u8, end: u8) -> Result<u64, ImportError> {
        let mut number = 0_u64;
        let mut byte = first;
        loop {
            let digit = byte.wrapping_sub(b'0');
            number = match number.checked_mul(10).and_then(|it| it.checked_add(digit.into())) {
                Some(number) if digit < 10 => number,
                _ => return Err(self.error("a number")),
            };
            byte = self.byte()?;
            if byte == end {
                return Ok(number);
            }
        }
    }

    /// Reads a key of a dictionary, or its end.
    fn key(&mut self) -> Result<Option<Vec<u8>>, ImportError> {
        let first = self.byte()?;
        if first == b'e' {
            return Ok(None);
        }
        let len = self.number_from(first, b':')?;
        if len > KEY_MAX {
            return Err(self.error("a short key"));
        }
        (0..len).map(|_| self.byte()).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a value that is not of interest.
    fn pass_over(&mut self) -> Result<(), ImportError> {
        let mut depth = 0_u32;
        loop {
            match self.byte()? {
                b'd' | b'l' if depth < DEPTH_MAX => depth += 1,
                b'e' if depth > 0 => depth -= 1,
                b'i' => while self.byte()? != b'e' {},
                first if first.is_ascii_digit() => {
                    let len = self.number_from(first, b':')?;
                    for _ in 0..len {
                        self.byte()?;
                    }
                }
                _ => return Err(self.error("a value")),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// Checks that a file can be read as a full scrape. Returns how many torrents it has.
///
/// # Errors
///
/// As [`crate::import`].
pub fn check_full_scrape(input: impl Read) -> Result<u64, ImportError> {
    let mut count = 0;
    read(input, &"f".into(), &mut |_, _| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scraped(bytes: &[u8]) -> Result<Vec<String>, ImportError> {
        let mut found = Vec::new();
        read(bytes, &"f".into(), &mut |_, entry| {
            found.push(match entry {
                Entry::Downloads(hash, count) => format!("{hash} {count}"),
                Entry::Invalid(text) => text,
                Entry::Hash(hash) => hash.to_string(),
            });
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn reads_counts_of_downloads() {
        let mut bytes = b"d8:intervali9e5:filesd20:".to_vec();
        bytes.extend([0xab; 20]);
        bytes.extend(b"d8:completei1e10:downloadedi17e10:incompletei0e4:name3:x:ye32:");
        bytes.extend([b'c'; 32]);
        bytes.extend(b"de20:");
        bytes.extend([0xcd; 20]);
        bytes.extend(b"d1:xlli-5eed1:yleeeee5:flagsd20:min_request_intervali5eee\n");
        let expected = [
            format!("{} 17", "ab".repeat(20)),
            "expected a hash of 20 bytes, found 32".into(),
            format!("{} 0", "cd".repeat(20)),
        ];
        assert!(is_one(&bytes));
        assert_eq!(scraped(&bytes).unwrap(), expected);
        for end in 1..bytes.len() - 1 {
            let error = scraped(&bytes[..end]).unwrap_err().0;
            assert!(error.ends_with("expected more: the file is cut off"), "{end}: {error}");
        }
    }

    #[test]
    fn refuses_what_is_none() {
        assert!(!is_one(b"d8:announce") && !is_one(b"") && !is_one(b"5:filesd"));
        for (bytes, expected) in [
            ("le", "f: byte 1 of a full scrape: expected `d`, found `l`"),
            ("d5:filesl", "f: byte 9 of a full scrape: expected `d`, found `l`"),
            ("d65:", "f: byte 4 of a full scrape: expected a short key"),
            ("d1:xe", "f: byte 5 of a full scrape: expected a value"),
            ("dx", "f: byte 2 of a full scrape: expected a number"),
            ("d99999999999999999999:", "f: byte 21 of a full scrape: expected a number"),
            ("d1:x9:short", "f: byte 11 of a full scrape: expected more: the file is cut off"),
        ] {
            assert_eq!(scraped(bytes.as_bytes()).unwrap_err().0, expected, "{bytes}");
        }
        let deep = format!("d1:x{}", "l".repeat(1000));
        assert!(scraped(deep.as_bytes()).unwrap_err().0.ends_with("expected a value"));
    }
}
