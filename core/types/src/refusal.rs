//! Why a request was refused. The client gets [`Refusal::text`], the operator a counter under
//! [`Refusal::label`].

use std::mem::discriminant;

/// A refusal that the client is told. Requests that are dropped without an answer are not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The torrent is not on the allow list.
    NotAllowed,
    /// The torrent is on the deny list.
    Denied,
    /// The torrent is frozen by the operator.
    Frozen,
    /// The announced port is 0.
    PortZero,
    /// The client's address cannot be reached from where the tracker's peers are.
    AddressNotPublic,
    /// HTTP: `info_hash` is missing.
    InfoHashMissing,
    /// HTTP: `info_hash` is not 20 bytes, or its percent-encoding is cut.
    InfoHashMalformed,
    /// HTTP: `peer_id` is missing or not 20 bytes.
    PeerIdMalformed,
    /// HTTP: `port` is missing or no number from 1 to 65535.
    PortMalformed,
    /// HTTP: `left` is present, but not a number.
    LeftMalformed,
    /// A scrape of all torrents, which is not served (BEP 48 leaves it open).
    FullScrape,
    /// UDP: an action that is none of connect, announce, scrape.
    UnknownAction,
    /// UDP: a packet of a verified client is too short for its action.
    Truncated,
    /// `/announce/KEY` on a listener without keys.
    KeyUnexpected,
    /// A request without a key on a private listener.
    KeyMissing,
    /// The key is unknown: it never existed or was revoked.
    KeyUnknown,
    /// The key has expired.
    KeyExpired,
    /// The key has used up its announce rate.
    KeyRate,
    /// The key has reached its limit of peers in this torrent.
    KeyPeers,
    /// The key has reached its limit of torrents.
    KeyTorrents,
    /// The key has reached its limit of addresses.
    KeyAddresses,
    /// The client's network is banned. Over UDP the request is dropped without an answer.
    Banned,
    /// The client software is not allowed.
    ClientRefused,
    /// WebTorrent: the message is not a JSON object.
    NotJson,
    /// WebTorrent: `info_hash` is present, but not 20 characters up to U+00FF.
    InfoHashString,
    /// WebTorrent: `peer_id` is missing, or not 20 characters up to U+00FF.
    PeerIdString,
    /// WebTorrent: `offers` is not an array of offers with identifiers.
    OfferMalformed,
    /// WebTorrent: `answer` is not an object, or `to_peer_id` or `offer_id` is invalid.
    AnswerMalformed,
    /// WebTorrent: the connection has reached its limit of torrents.
    TooManyTorrents,
    /// The client's prefix is over its request rate. Over UDP the request is dropped without an
    /// answer.
    TooManyRequests,
    /// The peer announced again before its minimal interval had passed.
    TooSoon {
        /// Minutes until the peer is served again.
        wait_min: u16,
    },
}

/// When a refused client may come back (BEP 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retrying will not help.
    Never,
    /// After this many minutes at the earliest.
    Minutes(u16),
    /// Not specified; the client decides.
    Unsaid,
}

impl Refusal {
    /// Every refusal, in the order of [`Refusal::index`].
    pub const ALL: [Self; 31] = [
        Self::NotAllowed,
        Self::Denied,
        Self::Frozen,
        Self::PortZero,
        Self::AddressNotPublic,
        Self::InfoHashMissing,
        Self::InfoHashMalformed,
        Self::PeerIdMalformed,
        Self::PortMalformed,
        Self::LeftMalformed,
        Self::FullScrape,
        Self::UnknownAction,
        Self::Truncated,
        Self::KeyUnexpected,
        Self::KeyMissing,
        Self::KeyUnknown,
        Self::KeyExpired,
        Self::KeyRate,
        Self::KeyPeers,
        Self::KeyTorrents,
        Self::KeyAddresses,
        Self::Banned,
        Self::ClientRefused,
        Self::NotJson,
        Self::InfoHashString,
        Self::PeerIdString,
        Self::OfferMalformed,
        Self::AnswerMalformed,
        Self::TooManyTorrents,
        Self::TooManyRequests,
        Self::TooSoon { wait_min: 0 },
    ];

    /// Returns the index in tables of counters.
    pub fn index(self) -> usize {
        // The data of a refusal does not make it another kind.
        let reason = discriminant(&self);
        let index = Self::ALL.iter().position(|other| discriminant(other) == reason);
        debug_assert!(index.is_some(), "{self:?} is missing in Refusal::ALL");
        index.unwrap_or_default()
    }

    /// Returns the sentence for the client: what is wrong.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotAllowed => "this torrent is not on the tracker's allow list",
            Self::Denied => "this torrent is on the tracker's deny list",
            Self::Frozen => {
                "this torrent is frozen: the tracker does not accept its announces for now"
            }
            Self::PortZero => "port 0 cannot be reached: announce the port you listen on",
            Self::AddressNotPublic => {
                "other peers cannot reach your address: this tracker accepts public addresses only"
            }
            Self::InfoHashMissing => "info_hash is missing",
            Self::InfoHashMalformed => "info_hash must be 20 percent-encoded bytes",
            Self::PeerIdMalformed => "peer_id must be 20 percent-encoded bytes",
            Self::PortMalformed => "port must be a number from 1 to 65535",
            Self::LeftMalformed => "left must be a number of bytes",
            Self::FullScrape => "a scrape must name its torrents: info_hash is missing",
            Self::UnknownAction => "unknown action",
            Self::Truncated => "the packet is too short",
            Self::KeyUnexpected => "this tracker has no keys: announce to /announce",
            Self::KeyMissing => {
                "this tracker is private: its announce URL must have your key, as in /announce/KEY"
            }
            Self::KeyUnknown => "unknown key in the announce URL: get a new torrent file",
            Self::KeyExpired => "your key has expired",
            Self::KeyRate => "your key has announced too often: slow down",
            Self::KeyPeers => "your key has reached its limit of clients on this torrent",
            Self::KeyTorrents => "your key has reached its limit of torrents",
            Self::KeyAddresses => "your key has reached its limit of addresses",
            Self::Banned => "your address or network is banned from this tracker",
            Self::ClientRefused => "this tracker does not serve your BitTorrent client",
            Self::NotJson => "the message is not a JSON object, or too deeply nested",
            Self::InfoHashString => {
                "info_hash must be a string of 20 characters from U+0000 to U+00FF"
            }
            Self::PeerIdString => "peer_id must be a string of 20 characters from U+0000 to U+00FF",
            Self::OfferMalformed => {
                "offers must be an array of {offer_id, offer}: a string of 20 characters from U+0000 to U+00FF, and an object"
            }
            Self::AnswerMalformed => {
                "an answer must be an object, and needs to_peer_id and offer_id: strings of 20 characters from U+0000 to U+00FF"
            }
            Self::TooManyTorrents => "too many torrents on one connection",
            Self::TooManyRequests => "too many requests from your address or network: slow down",
            Self::TooSoon { .. } => {
                "you announced this torrent too recently: wait for the interval"
            }
        }
    }

    /// Returns the label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Denied => "denied",
            Self::Frozen => "frozen",
            Self::PortZero => "port_zero",
            Self::AddressNotPublic => "address_not_public",
            Self::InfoHashMissing => "info_hash_missing",
            Self::InfoHashMalformed => "info_hash_malformed",
            Self::PeerIdMalformed => "peer_id_malformed",
            Self::PortMalformed => "port_malformed",
            Self::LeftMalformed => "left_malformed",
            Self::FullScrape => "full_scrape",
            Self::UnknownAction => "unknown_action",
            Self::Truncated => "truncated",
            Self::KeyUnexpected => "key_unexpected",
            Self::KeyMissing => "key_missing",
            Self::KeyUnknown => "key_unknown",
            Self::KeyExpired => "key_expired",
            Self::KeyRate => "key_rate",
            Self::KeyPeers => "key_peers",
            Self::KeyTorrents => "key_torrents",
            Self::KeyAddresses => "key_addresses",
            Self::Banned => "banned",
            Self::ClientRefused => "client_refused",
            Self::NotJson => "not_json",
            Self::InfoHashString => "info_hash_string",
            Self::PeerIdString => "peer_id_string",
            Self::OfferMalformed => "offer_malformed",
            Self::AnswerMalformed => "answer_malformed",
            Self::TooManyTorrents => "too_many_torrents",
            Self::TooManyRequests => "too_many_requests",
            Self::TooSoon { .. } => "too_soon",
        }
    }

    /// Returns the value of BEP 31 `retry in`.
    pub fn retry(self) -> Retry {
        match self {
            // Lists grow, keys are renewed and bans end while clients run: retry, but rarely.
            Self::NotAllowed | Self::Frozen | Self::KeyExpired | Self::Banned => Retry::Minutes(60),
            Self::Denied
            | Self::KeyUnexpected
            | Self::KeyMissing
            | Self::KeyUnknown
            | Self::ClientRefused => Retry::Never,
            // Other peers of the key stop or expire.
            Self::KeyPeers | Self::KeyTorrents | Self::KeyAddresses => Retry::Minutes(15),
            // Seconds would do, but BEP 31 counts in minutes.
            Self::TooManyRequests | Self::KeyRate => Retry::Minutes(1),
            Self::TooSoon { wait_min } => Retry::Minutes(wait_min),
            _ => Retry::Unsaid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_order_is_index_order() {
        for (at, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(refusal.index(), at);
        }
        assert_eq!(
            Refusal::TooSoon { wait_min: 7 }.index(),
            Refusal::TooSoon { wait_min: 0 }.index()
        );
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::HashSet<_> = Refusal::ALL.iter().map(|r| r.label()).collect();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
