//! What a request asks for.

/// What a request asks for, and what a response answers.
///
/// Every request is counted under its kind. The first three kinds have a rate limit each
/// ([`crate::Limits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// UDP: a request for a connection id, the only request whose source is not verified.
    Connect,
    /// An announce. A malformed UDP packet of a verified client counts against the same rate.
    Announce,
    /// A scrape.
    Scrape,
    /// WebTorrent: an answer to an offer.
    Answer,
    /// Anything else: the upgrade to a WebSocket, unknown paths and actions, responses that are
    /// errors.
    Other,
}

impl RequestKind {
    /// Every kind, in the order of [`RequestKind::index`].
    pub const ALL: [Self; 5] =
        [Self::Connect, Self::Announce, Self::Scrape, Self::Answer, Self::Other];

    /// Returns the kind's index into tables of counters.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the kind's label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Announce => "announce",
            Self::Scrape => "scrape",
            Self::Answer => "answer",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_index_order() {
        assert!(RequestKind::ALL.iter().enumerate().all(|(index, kind)| kind.index() == index));
    }
}
