//! Writing.

/// Appends bencoded values to a buffer. Order and nesting are the caller's business.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Encoder<'a> {
    /// An encoder that continues behind what `out` holds.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Opens a dictionary: keys, each followed by its value, sorted by their bytes, until `end`.
    #[inline]
    pub fn dict(&mut self) {
        self.out.push(b'd');
    }

    /// Opens a list.
    #[inline]
    pub fn list(&mut self) {
        self.out.push(b'l');
    }

    /// Closes the innermost list or dictionary.
    #[inline]
    pub fn end(&mut self) {
        self.out.push(b'e');
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: u64) {
        //= bep3#bencode-integers
        self.out.push(b'i');
        self.decimal(value);
        self.out.push(b'e');
    }

    /// A byte string.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes_of(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// The head of a byte string of `len` bytes, which the caller appends.
    #[inline]
    pub fn bytes_of(&mut self, len: usize) {
        self.decimal(len as u64);
        self.out.push(b':');
    }

    /// Digits without the standard formatting's detours: half of an answer's time would go there.
    #[inline]
    fn decimal(&mut self, value: u64) {
        append_decimal(self.out, value);
    }
}

/// Appends `value` in decimal.
#[inline]
pub(crate) fn append_decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let mut rest = value;
    let mut used = 0;
    for slot in digits.iter_mut().rev() {
        // Below 10 after the remainder.
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
