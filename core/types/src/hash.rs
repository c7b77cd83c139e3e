//! The 20-byte identifiers: of torrents, of clients, and of WebTorrent offers.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use bytemuck::{Pod, Zeroable};

use crate::from_hex;

/// Identifies a torrent: SHA-1 of its info dictionary (BEP 3), or a v2 SHA-256 truncated to 20
/// bytes (BEP 52).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct InfoHash(pub [u8; 20]);

/// Identifies a client: 20 bytes of its own choice (BEP 3, BEP 20). Clients can copy it, so it
/// never identifies a peer in plain swarms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PeerId(pub [u8; 20]);

/// Identifies one offer of a WebTorrent client: 20 bytes of its own choice, which the answer
/// repeats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct OfferId(pub [u8; 20]);

/// Why a text is not an info hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseInfoHashError {
    /// The text has neither 40 (v1) nor 64 (v2) bytes; holds the number found.
    Length(usize),
    /// A byte is not a hex digit; holds its position, from 0.
    Digit(usize),
    /// A line of a list has a second info hash.
    Several,
}

impl FromStr for InfoHash {
    type Err = ParseInfoHashError;

    /// Reads 40 hex digits, or 64 of a v2 hash, which is truncated to its first 20 bytes (BEP 52).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_hex(text.as_bytes())
    }
}

impl InfoHash {
    /// Reads 40 or 64 ASCII hex digits of either case; see [`FromStr`].
    ///
    /// # Errors
    ///
    /// Fails if the text has another length or another character.
    pub fn from_hex(text: &[u8]) -> Result<Self, ParseInfoHashError> {
        if text.len() != 40 && text.len() != 64 {
            return Err(ParseInfoHashError::Length(text.len()));
        }
        if let Some(at) = text.iter().position(|digit| !digit.is_ascii_hexdigit()) {
            return Err(ParseInfoHashError::Digit(at));
        }
        let (digits, _) = text.split_at(40);
        let hash = from_hex(digits);
        debug_assert!(hash.is_some(), "expected 40 digits");
        Ok(Self(hash.unwrap_or_default()))
    }

    /// Reads a line of a list: an info hash, optionally followed by blanks and a note. `#` starts a
    /// comment. Returns `None` if there is nothing else in the line.
    ///
    /// # Errors
    ///
    /// If the line begins with something else, or if the note begins with a second info hash: such a
    /// list has several hashes per line, and all but the first would be lost.
    pub fn from_line(line: &[u8]) -> Result<Option<Self>, ParseInfoHashError> {
        let entry = line.split(|byte| *byte == b'#').next().unwrap_or(line);
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(hash) = words.next().map(Self::from_hex).transpose()? else { return Ok(None) };
        match words.next() {
            Some(second) if Self::from_hex(second).is_ok() => Err(ParseInfoHashError::Several),
            _ => Ok(Some(hash)),
        }
    }
}

impl InfoHash {
    /// Returns the hash as three numbers that sort as its bytes do.
    #[inline]
    fn words(&self) -> (u64, u64, u32) {
        let [a, b, c, d, e] = bytemuck::cast::<_, [u32; 5]>(self.0).map(u32::from_be);
        let join = |high, low| u64::from(high) << 32 | u64::from(low);
        (join(a, b), join(c, d), e)
    }
}

impl Ord for InfoHash {
    /// Compares byte by byte. It compares numbers, because a call to memcmp for each comparison
    /// would take most of a binary search's time.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.words().cmp(&other.words())
    }
}

impl PartialOrd for InfoHash {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ParseInfoHashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "expected 40 or 64 hex digits, found {n} characters"),
            Self::Digit(at) => write!(f, "character {} is not a hex digit", at + 1),
            Self::Several => write!(f, "expected one info hash per line, found two"),
        }
    }
}

impl std::error::Error for ParseInfoHashError {}

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_as_its_bytes_do() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            // Two hashes that agree up to some byte.
            let mut pair = [InfoHash([random() as u8; 20]); 2];
            (0..3).for_each(|_| pair[random() % 2].0[random() % 20] = random() as u8);
            assert_eq!(pair[0].cmp(&pair[1]), pair[0].0.cmp(&pair[1].0), "{pair:?}");
        }
    }

    #[test]
    fn reports_what_is_wrong() {
        assert_eq!("00".parse::<InfoHash>(), Err(ParseInfoHashError::Length(2)));
        let bad = format!("0000x{}", "0".repeat(35));
        assert_eq!(bad.parse::<InfoHash>(), Err(ParseInfoHashError::Digit(4)));
        let sign = format!("+1{}", "0".repeat(38));
        assert_eq!(sign.parse::<InfoHash>(), Err(ParseInfoHashError::Digit(0)));
    }
}
