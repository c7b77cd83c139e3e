//! Users' keys, as they appear in announce URLs.

use std::fmt;
use std::hint::black_box;

use crate::limits::{USER_KEY_LEN_MAX, USER_KEY_LEN_MIN};

/// A user's key: 16 to 64 characters of `A-Z a-z 0-9 _ -`. Comparing takes the same time wherever
/// keys differ, and `Debug` prints only the first four characters.
#[derive(Clone, Copy)]
pub struct UserKey {
    /// Zero-padded.
    bytes: [u8; USER_KEY_LEN_MAX],
    len: u8,
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseUserKeyError {
    /// The text is too short or too long; holds the number of bytes found.
    Length(usize),
    /// A byte is not allowed in keys; holds its position, from 0.
    Character(usize),
}

impl UserKey {
    /// Reads a key, which must be the whole of `text`.
    ///
    /// # Errors
    ///
    /// Fails if the text is too short or too long, or has a character that keys do not have.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ParseUserKeyError> {
        let text = text.as_ref();
        if text.len() < USER_KEY_LEN_MIN || text.len() > USER_KEY_LEN_MAX {
            return Err(ParseUserKeyError::Length(text.len()));
        }
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if let Some(at) = text.iter().position(|byte| !is_part(byte)) {
            return Err(ParseUserKeyError::Character(at));
        }
        let mut bytes = [0; USER_KEY_LEN_MAX];
        bytes.iter_mut().zip(text).for_each(|(room, byte)| *room = *byte);
        Ok(Self { bytes, len: text.len() as u8 })
    }

    /// Returns the key's text. It is a secret: do not log it.
    pub fn as_str(&self) -> &str {
        let text = std::str::from_utf8(self.as_bytes());
        debug_assert!(text.is_ok(), "a key is ASCII");
        text.unwrap_or_default()
    }

    /// Returns true if `text` is this key. Always compares every byte; only the length may leak.
    #[inline]
    pub fn is(&self, text: &[u8]) -> bool {
        is_secret(self.as_bytes(), text)
    }

    /// Returns the key's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        let bytes = self.bytes.get(..self.len.into());
        debug_assert!(bytes.is_some(), "a key is not longer than its buffer");
        bytes.unwrap_or_default()
    }
}

/// Compares secrets in a time that depends on their lengths only.
#[inline]
pub fn is_secret(expected: &[u8], found: &[u8]) -> bool {
    let differs = expected.iter().zip(found).fold(0, |differs, (a, b)| differs | (a ^ b));
    // `black_box` keeps the compiler from returning at the first difference.
    expected.len() == found.len() && black_box(differs) == 0
}

impl PartialEq for UserKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.is(other.as_bytes())
    }
}

impl Eq for UserKey {}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}...", self.as_str().get(..4).unwrap_or_default())
    }
}

impl fmt::Display for ParseUserKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(found) => write!(
                f,
                "expected a key of {USER_KEY_LEN_MIN} to {USER_KEY_LEN_MAX} characters, found {found}"
            ),
            Self::Character(at) => {
                write!(f, "character {} is not one of A-Z a-z 0-9 _ -", at + 1)
            }
        }
    }
}

impl std::error::Error for ParseUserKeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_16_to_64_unreserved_characters() {
        let key = |len: usize| UserKey::parse("a".repeat(len));
        assert_eq!(key(15), Err(ParseUserKeyError::Length(15)));
        assert!(key(16).is_ok() && key(64).is_ok());
        assert_eq!(key(65), Err(ParseUserKeyError::Length(65)));
        assert_eq!(UserKey::parse("0123456789ABCdef_-").unwrap().as_str(), "0123456789ABCdef_-");
        for (bad, at) in
            [("0123456789abcde/", 15), ("%123456789abcdef", 0), ("0123456789é!!!!!", 10)]
        {
            assert_eq!(UserKey::parse(bad), Err(ParseUserKeyError::Character(at)), "{bad}");
        }
    }

    #[test]
    fn keys_differ_by_any_byte_and_by_length() {
        let text = "k".repeat(63);
        let key = UserKey::parse(&text).unwrap();
        assert_eq!(key, UserKey::parse(&text).unwrap());
        assert_ne!(key, UserKey::parse("k".repeat(64)).unwrap());
        assert_ne!(key, UserKey::parse("k".repeat(62)).unwrap());
        for at in 0..text.len() {
            let mut other = text.clone();
            other.replace_range(at..=at, "l");
            assert_ne!(key, UserKey::parse(&other).unwrap());
        }
    }

    #[test]
    fn debug_does_not_reveal_the_key() {
        let key = UserKey::parse("secretsecretsecret").unwrap();
        assert_eq!(format!("{key:?}"), "secr...");
    }
}
