//! A single-pass JSON scanner (RFC 8259). It validates every byte and borrows the requested values from
//! the text. `None` always means that the text is not JSON.
//!
//! Plain form: `serde_json` with borrowed types. It allocates, and a response to an announce with ten offers
//! takes at least 1.34 times as many instructions (`bench/record/2026-11-23-json-scanner.md`).

use std::slice::Iter;

use types::limits;

/// A value. Strings, numbers, arrays and objects are validated, but still text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JsonValue<'a> {
    #[default]
    Null,
    Bool,
    Number(&'a str),
    String(JsonString<'a>),
    Array(&'a str),
    Object(&'a str),
}

/// A string without its quotes. Its escapes are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JsonString<'a> {
    /// UTF-8 with escapes.
    raw: &'a [u8],
    escaped: bool,
}

/// The scanner's position in the text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Skips whitespace and returns the next byte without consuming it.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Checks that only whitespace follows.
    pub(super) fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// Scans an object. `member` is called with each key and must consume the value.
    #[inline]
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, JsonString<'a>) -> Option<()>,
    ) -> Option<()> {
        self.list(b'{', b'}', |scanner| {
            scanner.take(b'"')?;
            let key = scanner.string()?;
            scanner.take(b':')?;
            member(scanner, key)
        })
    }

    /// Scans an array. `element` must consume each element.
    #[inline]
    pub(super) fn elements(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list(b'[', b']', element)
    }

    #[inline]
    fn list(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(open)?;
        self.depth += 1;
        if self.depth > limits::JSON_DEPTH_MAX {
            return None;
        }
        if self.peek()? == close {
            self.at += 1;
        } else {
            loop {
                item(self)?;
                let next = self.peek()?;
                self.at += 1;
                match next {
                    b',' => {}
                    next if next == close => break,
                    _ => return None,
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// Decodes a string of 20 characters up to U+00FF to bytes, in one pass. If there is no such string,
    /// consumes nothing.
    //= webtorrent#binary-strings
    pub(super) fn twenty_bytes(&mut self) -> Option<[u8; 20]> {
        if self.peek()? != b'"' {
            return None;
        }
        let all = self.text.as_bytes();
        let (mut rest, mut bytes) = (all.get(self.at + 1..)?.iter(), [0; 20]);
        let (len, closed) = latin1(&mut rest, &mut bytes)?;
        (len == bytes.len() && closed).then(|| {
            self.at = all.len() - rest.len();
            bytes
        })
    }

    /// Scans a value of any type.
    pub(super) fn value(&mut self) -> Option<JsonValue<'a>> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.at += 1;
                self.string().map(JsonValue::String)
            }
            b'{' => {
                self.members(|scanner, _| scanner.value().map(drop))?;
                self.since(start).map(JsonValue::Object)
            }
            b'[' => {
                self.elements(|scanner| scanner.value().map(drop))?;
                self.since(start).map(JsonValue::Array)
            }
            b'n' => self.word("null").map(|()| JsonValue::Null),
            b't' => self.word("true").map(|()| JsonValue::Bool),
            b'f' => self.word("false").map(|()| JsonValue::Bool),
            _ => {
                self.number()?;
                self.since(start).map(JsonValue::Number)
            }
        }
    }

    fn since(&self, start: usize) -> Option<&'a str> {
        self.text.get(start..self.at)
    }

    /// Consumes `byte`, and whitespace before it.
    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        let next = |scanner: &Self| scanner.text.as_bytes().get(scanner.at).copied();
        if next(self) == Some(b'-') {
            self.at += 1;
        }
        match next(self)? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if next(self) == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = next(self) {
            self.at += 1;
            if let Some(b'+' | b'-') = next(self) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    /// Scans a string after its opening quote, up to and including the closing one.
    #[inline]
    fn string(&mut self) -> Option<JsonString<'a>> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let mut len = find_special(rest)?;
        let escaped = rest.get(len) == Some(&b'\\');
        if escaped {
            len = end_of_escaped(rest, len)?;
        }
        let (raw, end) = rest.split_at_checked(len)?;
        self.at += len + 1;
        (end.first() == Some(&b'"')).then_some(JsonString { raw, escaped })
    }
}

/// Returns the offset at which a string with a backslash at `at` ends, or at which it becomes invalid.
#[inline(never)]
fn end_of_escaped(string: &[u8], mut at: usize) -> Option<usize> {
    // Nearly all of a message is SDP, whose only escapes are line ends. They are so frequent that
    // stopping at each takes five times as long as checking all of them at once.
    let rest = string.get(at..)?;
    let quote = memchr::memchr(b'"', rest)?;
    if quote >= LONG && only_line_ends(rest.get(..=quote)?) {
        return Some(at + quote);
    }
    while string.get(at) == Some(&b'\\') {
        at += escape(string.get(at + 1..)?)?;
        at += find_special(string.get(at..)?)?;
    }
    Some(at)
}

/// Strings of at least this length are probably SDP. Binary strings are shorter.
const LONG: usize = 128;

/// Returns whether all but the last byte are valid in a string, and every backslash starts the escape
/// of a carriage return or line feed. Branchless, so that the compiler vectorizes it.
fn only_line_ends(text: &[u8]) -> bool {
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    !pairs.fold(false, |bad, (byte, next)| {
        bad | (*byte < 0x20) | ((*byte == b'\\') & (*next != b'n') & (*next != b'r'))
    })
}

/// Returns the length of an escape, given the text after the backslash.
#[inline]
fn escape(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(2),
        [b'u', hex @ ..] => hex.first_chunk::<4>()?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// Returns the offset of the first quote, backslash or control character. Eight bytes at a time.
#[inline]
fn find_special(bytes: &[u8]) -> Option<usize> {
    let (eights, rest) = bytes.as_chunks();
    for (at, eight) in eights.iter().enumerate() {
        let flags = special_byte_flags(u64::from_le_bytes(*eight));
        if flags != 0 {
            return Some(8 * at + flags.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20));
    found.map(|found| 8 * eights.len() + found)
}

/// Sets the highest bit of each special byte. Only the first flag is reliable: a borrow may set flags
/// of later bytes.
#[inline]
fn special_byte_flags(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // A byte below the limit wraps around, which sets its highest bit. Bytes whose highest bit was set
    // before are not ASCII; they are masked out at the end.
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit);
    let quote = below(eight ^ (ONES * 0x22), 1);
    let backslash = below(eight ^ (ONES * 0x5c), 1);
    let control = below(eight, 0x20);
    (quote | backslash | control) & !eight & (ONES * 0x80)
}

impl<'a> JsonString<'a> {
    /// Returns the string to be compared with the protocol's keywords, which are ASCII of at most 16
    /// characters. Any other string yields something that is no keyword. Escapes are decoded into
    /// `buffer`.
    #[inline]
    pub(super) fn word<'b>(self, buffer: &'b mut [u8; 16]) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.escaped {
            return self.raw;
        }
        self.latin1(buffer).and_then(|len| buffer.get(..len)).unwrap_or_default()
    }

    /// Decodes a string of 20 characters up to U+00FF to bytes.
    //= webtorrent#binary-strings
    #[inline]
    pub(super) fn twenty_bytes(self) -> Option<[u8; 20]> {
        let mut bytes = [0; 20];
        (self.latin1(&mut bytes)? == bytes.len()).then_some(bytes)
    }

    #[inline]
    fn latin1(self, buffer: &mut [u8]) -> Option<usize> {
        latin1(&mut self.raw.iter(), buffer).map(|(len, _)| len)
    }
}

/// Decodes characters up to U+00FF to bytes in `buffer`, up to a quote or the end of `text`. Returns
/// the number of bytes, and whether a quote ended the string. `None` if `buffer` is too short, if a
/// character is above U+00FF, or if the text is not valid in a string.
#[inline]
fn latin1(text: &mut Iter<'_, u8>, buffer: &mut [u8]) -> Option<(usize, bool)> {
    let (mut len, mut bit_6) = (0, 0);
    while let Some(&byte) = text.next() {
        // Half of all random bytes are above U+007F: two bytes of UTF-8, the first 0xc2 or 0xc3. A
        // branch on that would be mispredicted half of the time. Instead, store both bytes at the same
        // place: the first does not advance `len`, so the second overwrites it.
        let value = match byte {
            b'"' => return Some((len, true)),
            b'\\' => escaped_latin1(text)?,
            ..0x20 | 0xc4.. => return None,
            _ => byte | bit_6,
        };
        *buffer.get_mut(len)? = value;
        len += usize::from(byte < 0xc2);
        bit_6 = u8::from(byte == 0xc3) << 6;
    }
    Some((len, false))
}

/// Decodes an escape after its backslash. Returns `None` if it is above U+00FF.
fn escaped_latin1(text: &mut Iter<'_, u8>) -> Option<u8> {
    Some(match text.next()? {
        b'b' => 0x08,
        b't' => b'\t',
        b'n' => b'\n',
        b'f' => 0x0c,
        b'r' => b'\r',
        b'u' => {
            let mut code = 0;
            for _ in 0..4 {
                code = code << 4 | char::from(*text.next()?).to_digit(16)?;
            }
            u8::try_from(code).ok()?
        }
        itself @ (b'"' | b'\\' | b'/') => *itself,
        _ => return None,
    })
}
