//! Bencoding (BEP 3): integers `i7e`, byte strings `3:abc`, lists `l...e`, and dictionaries `d...e`
//! whose keys are byte strings, sorted by their bytes.
//!
//! The tracker only encodes: [`Encoder`] appends to a buffer that is reused for every response. The parser is
//! in `tools/client`.

/// Appends bencoded values to a buffer. The caller is responsible for order and nesting.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder that appends to `out`.
    #[inline]
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Opens a dictionary. Append keys, each followed by its value and sorted by their bytes, then
    /// call `end`.
    #[inline]
    pub(crate) fn dict(&mut self) {
        self.out.push(b'd');
    }

    #[inline]
    pub(crate) fn end(&mut self) {
        self.out.push(b'e');
    }

    #[inline]
    pub(crate) fn int(&mut self, value: u64) {
        //= bep3#bencode-integers
        self.out.push(b'i');
        append_decimal(self.out, value);
        self.out.push(b'e');
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes_of(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// Appends the prefix of a byte string of `len` bytes. The caller appends the bytes.
    #[inline]
    pub(crate) fn bytes_of(&mut self, len: usize) {
        append_decimal(self.out, len as u64);
        self.out.push(b':');
    }
}

#[inline]
pub(crate) fn append_decimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
