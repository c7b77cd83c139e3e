//! Texts that a site shows its users.

use std::sync::OnceLock;

use crate::limits;

/// The number of a text that a site shows its users. Small, because a refusal is passed in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice(u8);

/// The texts, by number. They are never replaced: refusals refer to them.
static TEXTS: [OnceLock<&'static str>; limits::SITE_NOTICES_MAX] =
    [const { OnceLock::new() }; limits::SITE_NOTICES_MAX];

impl Notice {
    /// The notice of a site that has more texts than can be kept.
    pub const UNSPECIFIED: Self = Self(0);
    const UNSPECIFIED_TEXT: &'static str =
        "the site has refused this announce: see its announce rules";

    /// Returns the notice with a text, which is kept until the process ends. Characters other than printable ASCII,
    /// quotes and backslashes become `?`, since not every client shows them, and bytes beyond
    /// [`limits::SITE_NOTICE_LEN_MAX`] are left out. Returns [`Notice::UNSPECIFIED`] if there are
    /// [`limits::SITE_NOTICES_MAX`] other texts already.
    pub fn new(text: &str) -> Self {
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        let plain = |byte: u8| if is_plain(byte) { char::from(byte) } else { '?' };
        let text: String = text.bytes().take(limits::SITE_NOTICE_LEN_MAX).map(plain).collect();
        for (number, slot) in (0..=u8::MAX).zip(&TEXTS).skip(1) {
            if *slot.get_or_init(|| text.clone().leak()) == text {
                return Self(number);
            }
        }
        Self::UNSPECIFIED
    }

    /// Returns the text.
    pub fn text(self) -> &'static str {
        let text = TEXTS.get(usize::from(self.0)).and_then(OnceLock::get);
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
        assert_eq!(Notice::new(&"x".repeat(1000)).text().len(), limits::SITE_NOTICE_LEN_MAX);
        let notices = (0..limits::SITE_NOTICES_MAX).map(|number| Notice::new(&number.to_string()));
        let kept = notices.filter(|notice| *notice != Notice::UNSPECIFIED).count();
        assert_eq!(kept, limits::SITE_NOTICES_MAX - 3, "two texts above, and the first number");
        assert_eq!(Notice::new("one more"), Notice::UNSPECIFIED);
        assert_eq!(Notice::UNSPECIFIED.text(), Notice::UNSPECIFIED_TEXT);
        assert_eq!(one.text(), "slow ?down??");
    }
}
