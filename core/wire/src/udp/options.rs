//! Options behind an announce (BEP 41): a type byte, and but for two types a length byte and as many
//! bytes of data, until the datagram ends.

/// The bytes behind an announce's 98. Read lazily: most clients send none, and without keys nobody
/// asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options<'a>(&'a [u8]);

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpOption<'a> {
    /// A piece of path and query of the URL that the client was given.
    UrlData(&'a [u8]),
    /// An option of a type that is not known, to be skipped.
    Unknown {
        /// Its type, 3 or more.
        kind: u8,
        /// What it holds.
        data: &'a [u8],
    },
}

/// An option says that it is longer than what is left of the datagram, or its length is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedOption;

/// The options one by one; see [`Options::iter`].
#[derive(Clone, Debug)]
pub struct OptionIter<'a>(&'a [u8]);

impl<'a> Options<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing follows the announce.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every option up to the end of options or of the datagram. The first that is cut short gives
    /// an error and is the last.
    pub fn iter(&self) -> OptionIter<'a> {
        OptionIter(self.0)
    }

    /// Whether some option is cut short. The options before it are good all the same.
    pub fn is_malformed(&self) -> bool {
        self.iter().any(|option| option.is_err())
    }

    /// Path and query that the client announces to, if they are one piece, as nearly always.
    #[inline]
    pub fn single_url_data(&self) -> Option<&'a [u8]> {
        let mut pieces = self.iter().filter_map(|option| match option {
            Ok(UdpOption::UrlData(piece)) => Some(piece),
            _ => None,
        });
        let first = pieces.next()?;
        pieces.next().is_none().then_some(first)
    }

    /// Path and query that the client announces to, its pieces put together. One piece, as nearly
    /// always, is given as it lies in the datagram; several are copied into `buffer`, and what does not
    /// fit there is dropped. Empty if there is none.
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
    /// An option that has a length, which `rest` starts with.
    fn sized(&mut self, kind: u8, rest: &'a [u8]) -> Result<UdpOption<'a>, TruncatedOption> {
        //= bep41#option-length
        // What lies behind a wrong length is not to be told from data: nothing more is read.
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
