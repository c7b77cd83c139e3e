//! Numbers and arrays as bytes, as short as they are small.

#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

/// Reads values, and returns `None` at the end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a number, seven bits a byte.
    pub(crate) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a number that may be negative.
    pub(crate) fn signed(&mut self, number: i64) {
        self.varint((number as u64) << 1 ^ (number >> 63) as u64);
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a number of 32 bits.
    pub(crate) fn number(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let word = self.varint()?;
        Some((word >> 1) as i64 ^ -((word & 1) as i64))
    }

    /// Reads a time that was written as its distance from `unix_s`.
    pub(crate) fn time(&mut self, unix_s: u32) -> Option<u32> {
        i64::from(unix_s).checked_sub(self.signed()?)?.try_into().ok()
    }
}
