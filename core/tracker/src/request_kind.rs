//! Kinds of requests.

use types::labelled;

labelled! {
    /// The kind of a request and of its response.
    ///
    /// Every request is counted under its kind. All but answers have a rate limit each
    /// ([`crate::Limits`]).
    pub enum RequestKind {
        /// UDP: a request for a connection id, the only request whose source is not verified.
        Connect = "connect",
        /// An announce. A malformed UDP packet of a verified client counts against the same rate.
        Announce = "announce",
        /// A scrape.
        Scrape = "scrape",
        /// WebTorrent: an answer to an offer.
        Answer = "answer",
        /// Anything else: the upgrade to a WebSocket, unknown paths and actions, responses that are
        /// errors.
        Other = "other",
    }
}
