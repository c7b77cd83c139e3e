//! Parsing of bencoding (BEP 3). [`parse`] is strict: every decoder accepts what it accepts.
//! [`parse_lenient`] also accepts what other trackers and torrent files have.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

/// The maximum nesting depth of lists and dictionaries.
pub const DEPTH_MAX: usize = 32;

/// A value that borrows its byte strings from the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `i-7e`
    Int(i64),
    /// `3:abc`
    Bytes(&'a [u8]),
    /// `l...e`
    List(Vec<Self>),
    /// `d...e`, in order.
    Dict(Vec<(&'a [u8], Self)>),
}

/// An error, with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BencodeError {
    /// The offset of the byte, from 0.
    pub at: usize,
    /// The kind of error.
    pub kind: BencodeErrorKind,
}

/// The kind of a [`BencodeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BencodeErrorKind {
    /// The input ends within a value.
    Truncated,
    /// No value, or no key, starts with this byte.
    UnexpectedByte,
    /// A number has no digits, a leading zero or a misplaced sign, or is out of range.
    InvalidNumber,
    /// A key does not sort after the one before it.
    KeyOrder,
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
    /// Data follows the value.
    TrailingData,
}

/// Parses `text`, which must be exactly one value.
///
/// # Errors
///
/// Returns the first violation of BEP 3 and its place: truncated or invalid values, keys out of order, data after
/// the value, or nesting deeper than [`DEPTH_MAX`].
pub fn parse(text: &[u8]) -> Result<Value<'_>, BencodeError> {
    match parse_lenient(text)? {
        (value, None) => Ok(value),
        (_, Some(violation)) => Err(violation),
    }
}

/// Parses a value as most clients do: keys may be in any order, and data may follow. Returns the value
/// and the first violation of the strict rules.
///
/// # Errors
///
/// Returns an error if the text is truncated, has an invalid value, or is nested deeper than [`DEPTH_MAX`].
pub fn parse_lenient(text: &[u8]) -> Result<(Value<'_>, Option<BencodeError>), BencodeError> {
    let mut reader = Reader::new(text);
    let value = reader.value(0)?;
    if reader.at < text.len() {
        reader.note_violation(reader.at, BencodeErrorKind::TrailingData);
    }
    Ok((value, reader.violation))
}

/// Returns the raw bytes of a dictionary's value for `key`, such as those that an info hash is
/// computed from. As lenient as [`parse_lenient`].
///
/// # Errors
///
/// Returns an error if the text is not a dictionary, and those of [`parse_lenient`].
pub fn dict_entry<'a>(text: &'a [u8], key: &str) -> Result<Option<&'a [u8]>, BencodeError> {
    let mut reader = Reader::new(text);
    let mut found = None;
    reader.entries(0, |name, _, span| {
        if name == key.as_bytes() && found.is_none() {
            found = text.get(span);
        }
    })?;
    Ok(found)
}

impl<'a> Value<'a> {
    /// Returns the value of a dictionary's key. `None` if this is not a dictionary.
    pub fn at(&self, key: &str) -> Option<&Self> {
        let Self::Dict(entries) = self else { return None };
        entries.iter().find(|(known, _)| *known == key.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the integer, if this is one.
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// Returns the bytes, if this is a byte string.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    /// The first violation of the strict rules.
    violation: Option<BencodeError>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, violation: None }
    }

    fn note_violation(&mut self, at: usize, kind: BencodeErrorKind) {
        self.violation.get_or_insert(BencodeError { at, kind });
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, BencodeError> {
        if depth > DEPTH_MAX {
            return Err(self.fail(BencodeErrorKind::TooDeep));
        }
        match self.peek()? {
            b'i' => self.int().map(Value::Int),
            b'0'..=b'9' => self.bytes().map(Value::Bytes),
            b'l' => self.list(depth),
            b'd' => self.dict(depth),
            _ => Err(self.fail(BencodeErrorKind::UnexpectedByte)),
        }
    }

    fn int(&mut self) -> Result<i64, BencodeError> {
        self.at += 1;
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let start = self.at;
        let magnitude = self.digits()?;
        if self.peek()? != b'e' || (negative && magnitude == 0) {
            return Err(BencodeError { at: start, kind: BencodeErrorKind::InvalidNumber });
        }
        self.at += 1;
        let signed = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
        i64::try_from(signed)
            .map_err(|_| BencodeError { at: start, kind: BencodeErrorKind::InvalidNumber })
    }

    fn bytes(&mut self) -> Result<&'a [u8], BencodeError> {
        let len = self.digits()?;
        if self.peek()? != b':' {
            return Err(self.fail(BencodeErrorKind::InvalidNumber));
        }
        self.at += 1;
        debug_assert!(self.at <= self.text.len());
        let rest = self.text.get(self.at..).unwrap_or_default();
        let bytes = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let bytes =
            bytes.ok_or(BencodeError { at: self.text.len(), kind: BencodeErrorKind::Truncated })?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn list(&mut self, depth: usize) -> Result<Value<'a>, BencodeError> {
        self.at += 1;
        let mut items = Vec::new();
        while self.peek()? != b'e' {
            items.push(self.value(depth + 1)?);
        }
        self.at += 1;
        Ok(Value::List(items))
    }

    fn dict(&mut self, depth: usize) -> Result<Value<'a>, BencodeError> {
        let mut entries = Vec::new();
        self.entries(depth, |key, value, _| entries.push((key, value)))?;
        Ok(Value::Dict(entries))
    }

    /// Calls `take` with each key of a dictionary, its value, and the value's range in the input.
    fn entries(
        &mut self,
        depth: usize,
        mut take: impl FnMut(&'a [u8], Value<'a>, Range<usize>),
    ) -> Result<(), BencodeError> {
        if self.peek()? != b'd' {
            return Err(self.fail(BencodeErrorKind::UnexpectedByte));
        }
        self.at += 1;
        let mut last = None;
        while self.peek()? != b'e' {
            let start = self.at;
            if !self.peek()?.is_ascii_digit() {
                return Err(self.fail(BencodeErrorKind::UnexpectedByte));
            }
            let key = self.bytes()?;
            //= bep3#bencode-sorted-keys
            if last.is_some_and(|last| last >= key) {
                self.note_violation(start, BencodeErrorKind::KeyOrder);
            }
            last = Some(key);
            let start = self.at;
            let value = self.value(depth + 1)?;
            take(key, value, start..self.at);
        }
        self.at += 1;
        Ok(())
    }

    /// Parses one digit or more, without a leading zero.
    fn digits(&mut self) -> Result<u64, BencodeError> {
        let start = self.at;
        let bad = BencodeError { at: start, kind: BencodeErrorKind::InvalidNumber };
        let mut value = 0_u64;
        while let Some(digit) = self.text.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            let grown = value.checked_mul(10).and_then(|v| v.checked_add((digit - b'0').into()));
            value = grown.ok_or(bad)?;
            self.at += 1;
        }
        let zero_led = self.text.get(start) == Some(&b'0') && self.at > start + 1;
        if self.at == start || zero_led {
            // If the input ends where a digit is expected, it is truncated, not invalid.
            self.peek()?;
            return Err(bad);
        }
        Ok(value)
    }

    fn peek(&self) -> Result<u8, BencodeError> {
        self.text.get(self.at).copied().ok_or_else(|| self.fail(BencodeErrorKind::Truncated))
    }

    fn fail(&self, kind: BencodeErrorKind) -> BencodeError {
        BencodeError { at: self.at, kind }
    }
}

impl fmt::Display for BencodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BencodeErrorKind::Truncated => "unexpected end of data",
            BencodeErrorKind::UnexpectedByte => "no value starts with this byte",
            BencodeErrorKind::InvalidNumber => "invalid number",
            BencodeErrorKind::KeyOrder => "key out of order",
            BencodeErrorKind::TooDeep => "nested too deep",
            BencodeErrorKind::TrailingData => "unexpected data after the value",
        };
        write!(f, "byte {}: {kind}", self.at)
    }
}

impl std::error::Error for BencodeError {}
