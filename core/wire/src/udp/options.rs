//! Options after an announce (BEP 41). Each has a type byte and, except for two types, a length byte
//! and that many bytes of data. They end with the datagram.

/// The bytes after an announce's 98. Decoded lazily: most clients send no options, and only a tracker
/// with passkeys reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether no bytes follow the announce.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an option is truncated. The options before it are still valid.
    pub fn is_malformed(&self) -> bool {
        self.url_pieces().any(|piece| piece.is_err())
    }

    /// Returns the path and query that the client announces to, if they are in one option, as nearly
    /// always.
    #[inline]
    pub fn single_url_data(&self) -> Option<&'a [u8]> {
        let mut pieces = self.url_pieces().flatten();
        let first = pieces.next()?;
        pieces.next().is_none().then_some(first)
    }

    /// Returns the path and query that the client announces to. If they are in one option, as nearly
    /// always, borrows them from the datagram. Several parts are joined in `buffer`, which truncates
    /// them to its length. Empty if there are none.
    //= bep41#url-data-concatenated
    pub fn url_data<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        if let Some(url) = self.single_url_data() {
            return url.get(..buffer.len()).unwrap_or(url);
        }
        let mut len = 0;
        for piece in self.url_pieces().flatten() {
            let free = buffer.get_mut(len..).unwrap_or_default();
            for (to, from) in free.iter_mut().zip(piece) {
                *to = *from;
                len += 1;
            }
        }
        buffer.get(..len).unwrap_or_default()
    }

    /// Returns the parts of the URL up to the end-of-options marker or the end of the datagram. A truncated
    /// option of any type is an error and the last item.
    fn url_pieces(&self) -> UrlPieces<'a> {
        UrlPieces(self.0)
    }
}

/// An iterator over the options with parts of the URL. It has the bytes of the options that follow.
struct UrlPieces<'a>(&'a [u8]);

/// An option is longer than the rest of the datagram, or its length is missing.
struct TruncatedOption;

impl<'a> Iterator for UrlPieces<'a> {
    type Item = Result<&'a [u8], TruncatedOption>;

    fn next(&mut self) -> Option<Self::Item> {
        const END: u8 = 0;
        const NOP: u8 = 1;
        const URL_DATA: u8 = 2;
        loop {
            let (&kind, rest) = std::mem::take(&mut self.0).split_first()?;
            match kind {
                //= bep41#end-of-options
                END => return None,
                //= bep41#nop
                NOP => self.0 = rest,
                _ => {
                    //= bep41#option-length
                    // After a wrong length, options cannot be told from data, so decoding stops.
                    let Some((data, rest)) = split_sized(rest) else {
                        return Some(Err(TruncatedOption));
                    };
                    self.0 = rest;
                    //= bep41#unknown-option
                    // Options of other types are skipped.
                    if kind == URL_DATA {
                        return Some(Ok(data));
                    }
                }
            }
        }
    }
}

/// Splits off the data of an option, whose length is the first byte.
fn split_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}
