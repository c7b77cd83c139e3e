//! Options after an announce (BEP 41). Each has a type byte and, except for two types, a length byte
//! and that many bytes of data. They end with the datagram.

/// The bytes after an announce's 98. Decoded lazily: most clients send no options, and only a tracker
/// with passkeys reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options<'a>(&'a [u8]);

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpOption<'a> {
    /// A part of the path and query of the tracker's URL.
    UrlData(&'a [u8]),
    /// An option of an unknown type, to be skipped.
    Unknown {
        /// The type, 3 or more.
        kind: u8,
        /// The option's data.
        data: &'a [u8],
    },
}

/// An option is longer than the rest of the datagram, or its length is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedOption;

/// An iterator over options; see [`Options::iter`].
#[derive(Clone, Debug)]
pub struct OptionIter<'a>(&'a [u8]);

impl<'a> Options<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether no bytes follow the announce.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the options up to the end-of-options marker or the end of the datagram. A truncated
    /// option is an error and ends the iteration.
    pub fn iter(&self) -> OptionIter<'a> {
        OptionIter(self.0)
    }

    /// Returns whether an option is truncated. The options before it are still valid.
    pub fn is_malformed(&self) -> bool {
        self.iter().any(|option| option.is_err())
    }

    /// Returns the path and query that the client announces to, if they are in one option, as nearly
    /// always.
    #[inline]
    pub fn single_url_data(&self) -> Option<&'a [u8]> {
        let mut pieces = self.iter().filter_map(|option| match option {
            Ok(UdpOption::UrlData(piece)) => Some(piece),
            _ => None,
        });
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
        let mut pieces = self.iter().filter_map(|option| match option {
            Ok(UdpOption::UrlData(piece)) => Some(piece),
            _ => None,
        });
        let first = pieces.next().unwrap_or_default();
        let Some(second) = pieces.next() else {
            return first.get(..buffer.len()).unwrap_or(first);
        };
        let mut len = 0;
        for piece in [first, second].into_iter().chain(pieces) {
            let free = buffer.get_mut(len..).unwrap_or_default();
            for (to, from) in free.iter_mut().zip(piece) {
                *to = *from;
                len += 1;
            }
        }
        buffer.get(..len).unwrap_or_default()
    }
}

impl<'a> IntoIterator for Options<'a> {
    type Item = Result<UdpOption<'a>, TruncatedOption>;
    type IntoIter = OptionIter<'a>;

    fn into_iter(self) -> OptionIter<'a> {
        self.iter()
    }
}

impl<'a> Iterator for OptionIter<'a> {
    type Item = Result<UdpOption<'a>, TruncatedOption>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, rest) = self.0.split_first()?;
            match kind {
                //= bep41#end-of-options
                kind::END => {
                    self.0 = &[];
                    return None;
                }
                //= bep41#nop
                kind::NOP => self.0 = rest,
                _ => return Some(self.sized(kind, rest)),
            }
        }
    }
}

impl std::iter::FusedIterator for OptionIter<'_> {}

impl<'a> OptionIter<'a> {
    /// Decodes an option with a length, which is the first byte of `rest`.
    fn sized(&mut self, kind: u8, rest: &'a [u8]) -> Result<UdpOption<'a>, TruncatedOption> {
        //= bep41#option-length
        // After a wrong length, options cannot be told from data, so decoding stops.
        self.0 = &[];
        let (&len, rest) = rest.split_first().ok_or(TruncatedOption)?;
        let (data, rest) = rest.split_at_checked(usize::from(len)).ok_or(TruncatedOption)?;
        self.0 = rest;
        Ok(match kind {
            kind::URL_DATA => UdpOption::UrlData(data),
            //= bep41#unknown-option
            _ => UdpOption::Unknown { kind, data },
        })
    }
}

pub(super) mod kind {
    pub(in crate::udp) const END: u8 = 0;
    pub(in crate::udp) const NOP: u8 = 1;
    pub(in crate::udp) const URL_DATA: u8 = 2;
}
