//! Texts of the operator or a site that clients show.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};

use crate::limits;

/// The number of a text that clients show. Small, because a refusal is passed in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice(u32);

/// Texts of one allocation.
const CHUNK: usize = 1024;

/// A chunk of texts, allocated with the first of them.
type Chunk = OnceLock<Box<[OnceLock<&'static str>]>>;

/// The texts, by number. They are never replaced: refusals refer to them. Readers take no lock.
static TEXTS: [Chunk; limits::NOTICES_MAX / CHUNK] =
    [const { OnceLock::new() }; limits::NOTICES_MAX / CHUNK];

/// The numbers, by text.
static NUMBERS: LazyLock<RwLock<HashMap<&'static str, u32>>> = LazyLock::new(RwLock::default);

impl Notice {
    /// The notice that stands for all texts that are too many to be kept.
    pub const UNSPECIFIED: Self = Self(0);
    const UNSPECIFIED_TEXT: &'static str =
        "the site has refused this announce: see its announce rules";

    /// Returns the notice with a text, which is kept until the process ends. Characters that [`Notice::is_plain`] refuses
    /// become `?`, and bytes beyond [`limits::NOTICE_LEN_MAX`] are left out. Returns [`Notice::UNSPECIFIED`] if there are
    /// [`limits::NOTICES_MAX`] other texts already.
    pub fn new(text: &str) -> Self {
        let plain = |byte: u8| if Self::is_plain(byte) { char::from(byte) } else { '?' };
        let text: String = text.bytes().take(limits::NOTICE_LEN_MAX).map(plain).collect();
        let known = NUMBERS.read().unwrap_or_else(PoisonError::into_inner).get(&*text).copied();
        known.map_or_else(|| Self::add(text), Self)
    }

    /// Returns true for characters that every client shows, and that need no escapes: printable ASCII without quotes and
    /// backslashes.
    pub fn is_plain(byte: u8) -> bool {
        (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\'
    }

    fn add(text: String) -> Self {
        let mut numbers = NUMBERS.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread can have been faster.
        if let Some(number) = numbers.get(&*text) {
            return Self(*number);
        }
        // 0 is `UNSPECIFIED`.
        let index = numbers.len() + 1;
        let Some(chunk) = TEXTS.get(index / CHUNK) else { return Self::UNSPECIFIED };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let text: &'static str = text.leak();
        let number = index as u32;
        // The slot is empty: indices are given once, under the lock.
        let _ = chunk[index % CHUNK].set(text);
        numbers.insert(text, number);
        Self(number)
    }

    /// Returns the text.
    pub fn text(self) -> &'static str {
        let index = self.0 as usize;
        let chunk = TEXTS.get(index / CHUNK).and_then(OnceLock::get);
        let text = chunk.and_then(|chunk| chunk[index % CHUNK].get());
        text.copied().unwrap_or(Self::UNSPECIFIED_TEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_once_each_and_bounded() {
        let one = Notice::new("slow \"down\"\n");
        assert_eq!((one.text(), one), ("slow ?down??", Notice::new("slow \"down\"\n")));
        assert_eq!(Notice::new(&"x".repeat(1000)).text().len(), limits::NOTICE_LEN_MAX);
        let notices = (0..limits::NOTICES_MAX).map(|number| Notice::new(&number.to_string()));
        let kept = notices.filter(|notice| *notice != Notice::UNSPECIFIED).count();
        assert_eq!(kept, limits::NOTICES_MAX - 3, "two texts above, and the first number");
        assert_eq!(Notice::new("one more"), Notice::UNSPECIFIED);
        assert_eq!(Notice::UNSPECIFIED.text(), Notice::UNSPECIFIED_TEXT);
        assert_eq!((one.text(), Notice::new("17").text()), ("slow ?down??", "17"));
    }
}
