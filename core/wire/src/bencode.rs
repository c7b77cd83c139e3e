//! Bencoding (BEP 3): integers `i7e`, byte strings `3:abc`, lists `l...e`, and dictionaries `d...e`
//! whose keys are byte strings, sorted by their bytes.
//!
//! The tracker only encodes: [`Encoder`] appends to a buffer that is reused for every response. The parser is
//! in `tools/client`.

/// Appends bencoded values to a buffer. The caller is responsible for order and nesting.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Opens a dictionary. Append keys, each followed by its value and sorted by their bytes, then
    /// call `end`.
    #[inline]
    pub fn dict(&mut self) {
        self.out.push(b'd');
    }

    /// Opens a list. Append its values, then call `end`.
    #[inline]
    pub fn list(&mut self) {
        self.out.push(b'l');
    }

    /// Closes the innermost list or dictionary.
    #[inline]
    pub fn end(&mut self) {
        self.out.push(b'e');
    }

    /// Appends an integer.
    #[inline]
    pub fn int(&mut self, value: u64) {
        //= bep3#bencode-integers
        self.out.push(b'i');
        self.decimal(value);
        self.out.push(b'e');
    }

    /// Appends a byte string.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes_of(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// Appends the prefix of a byte string of `len` bytes. The caller appends the bytes.
    #[inline]
    pub fn bytes_of(&mut self, len: usize) {
        self.decimal(len as u64);
        self.out.push(b':');
    }

    /// Appends digits without the standard formatting, which would take half of a response's time.
    #[inline]
    fn decimal(&mut self, value: u64) {
        append_decimal(self.out, value);
    }
}

/// Appends `value` in decimal notation.
#[inline]
pub(crate) fn append_decimal(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        out.push(b'0' + (value % 10) as u8);
        return;
    }
    let mut digits = [0; 20];
    let mut rest = value;
    let mut used = 0;
    for slot in digits.iter_mut().rev() {
        // The remainder is below 10, so it fits.
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    let (_, text) = digits.split_at(digits.len() - used);
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_decimals_of_every_length() {
        for power in 0..20 {
            for value in [10_u64.pow(power) - 1, 10_u64.pow(power), u64::MAX / 10_u64.pow(power)] {
                let mut out = Vec::new();
                append_decimal(&mut out, value);
                assert_eq!(out, value.to_string().as_bytes());
            }
        }
    }
}
