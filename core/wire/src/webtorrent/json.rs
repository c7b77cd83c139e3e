//! One pass over a JSON text (RFC 8259): every byte of it is checked, and what is of interest is lent
//! as it stands. `None` is always: this is not JSON.

use types::limits;

/// A value of which strings, numbers, arrays and objects are still text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Bool,
    Number(&'a str),
    String(Text<'a>),
    Array(&'a str),
    Object(&'a str),
}

/// A string without its quotes, whose escapes are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    pub(super) raw: &'a str,
    escaped: bool,
}

/// Where the pass has come to.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// The first byte of what comes next, whitespace aside.
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

    /// Nothing but whitespace may follow.
    pub(super) fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// The members of an object: `member` gets each key and takes the value.
    #[inline]
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Text<'a>) -> Option<()>,
    ) -> Option<()> {
        self.list(b'{', b'}', |scanner| {
            scanner.take(b'"')?;
            let key = scanner.string()?;
            scanner.take(b':')?;
            member(scanner, key)
        })
    }

    /// The elements of an array: `element` takes each.
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

    /// Any value.
    pub(super) fn value(&mut self) -> Option<Value<'a>> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.at += 1;
                self.string().map(Value::String)
            }
            b'{' => {
                self.members(|scanner, _| scanner.value().map(drop))?;
                self.since(start).map(Value::Object)
            }
            b'[' => {
                self.elements(|scanner| scanner.value().map(drop))?;
                self.since(start).map(Value::Array)
            }
            b'n' => self.word("null").map(|()| Value::Null),
            b't' => self.word("true").map(|()| Value::Bool),
            b'f' => self.word("false").map(|()| Value::Bool),
            _ => {
                self.number()?;
                self.since(start).map(Value::Number)
            }
        }
    }

    fn since(&self, start: usize) -> Option<&'a str> {
        self.text.get(start..self.at)
    }

    /// Takes `byte`, and whitespace before it.
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

    /// One digit or more.
    fn digits(&mut self) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    /// A string, from behind the opening quote to behind the closing one.
    #[inline]
    fn string(&mut self) -> Option<Text<'a>> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at = special(bytes, self.at)?;
            match bytes.get(self.at)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    // Lines of an SDP end in two escapes.
                    while bytes.get(self.at) == Some(&b'\\') {
                        self.at += escape(bytes.get(self.at + 1..)?)?;
                    }
                }
                _ => return None,
            }
        }
        let raw = self.since(start)?;
        self.at += 1;
        Some(Text { raw, escaped })
    }
}

/// Bytes of an escape, of which `rest` is what follows the backslash.
#[inline]
fn escape(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(2),
        [b'u', hex @ ..] => hex.first_chunk::<4>()?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// Where the next quote, backslash or control character is, from `at` on.
#[inline]
fn special(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        let flags = u128::from_le_bytes(block.map(|byte| u8::from(is_special(byte))));
        if flags != 0 {
            return Some(at + flags.trailing_zeros() as usize / 8);
        }
        at += block.len();
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(|byte| is_special(*byte)).map(|found| at + found)
}

#[inline]
fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

impl<'a> Text<'a> {
    /// The string itself if it is ASCII of at most 16 characters, as all words of the protocol are;
    /// else an empty one, which is no word. `room` is for what is written with escapes.
    #[inline]
    pub(super) fn word<'b>(self, room: &'b mut [u8; 16]) -> &'b str
    where
        'a: 'b,
    {
        if self.escaped { self.unescaped(room).unwrap_or_default() } else { self.raw }
    }

    fn unescaped(self, room: &mut [u8; 16]) -> Option<&str> {
        let (mut rest, mut len) = (self.raw.as_bytes(), 0);
        while !rest.is_empty() {
            let slot = room.get_mut(len)?;
            (*slot, rest) = latin1(rest)?;
            len += 1;
        }
        std::str::from_utf8(room.get(..len)?).ok()
    }

    /// The bytes that a string of 20 characters up to U+00FF stands for.
    //= webtorrent#binary-strings
    #[inline]
    pub(super) fn twenty_bytes(self) -> Option<[u8; 20]> {
        let mut rest = self.raw.as_bytes();
        let mut bytes = [0; 20];
        for slot in &mut bytes {
            (*slot, rest) = latin1(rest)?;
        }
        rest.is_empty().then_some(bytes)
    }
}

/// The first character of a string and what follows, unless it is above U+00FF.
#[inline]
fn latin1(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'\\', b'u', b'0', b'0', hex @ ..] => {
            let (digits, rest) = hex.split_first_chunk::<2>()?;
            let digits = std::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, rest))
        }
        [b'\\', letter, rest @ ..] => {
            let byte = match letter {
                b'b' => 0x08,
                b't' => b'\t',
                b'n' => b'\n',
                b'f' => 0x0c,
                b'r' => b'\r',
                b'u' => return None,
                itself => *itself,
            };
            Some((byte, rest))
        }
        [ascii @ ..0x80, rest @ ..] => Some((*ascii, rest)),
        // U+0080 to U+00FF in UTF-8.
        [lead @ 0xc2..=0xc3, last, rest @ ..] => Some((lead << 6 | last & 0x3f, rest)),
        _ => None,
    }
}
