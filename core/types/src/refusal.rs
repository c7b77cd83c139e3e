//! Why a request was refused: one value for every audience. The client gets [`Refusal::text`], the
//! operator a counter with [`Refusal::label`].

use crate::Notice;

/// When a refused client may try again (BEP 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never: another attempt would fail, too.
    Never,
    /// After this many minutes at the earliest.
    Minutes(u16),
    /// The tracker says nothing; the client decides.
    Unspecified,
}

/// Lists grow, keys are renewed and bans end while clients run: they may come back, but seldom.
const AFTER_AN_HOUR: Retry = Retry::Minutes(60);
/// Until then other peers of the key stop, or time out.
const AFTER_A_SESSION: Retry = Retry::Minutes(15);
/// Seconds would do, but BEP 31 counts minutes.
const AFTER_A_MOMENT: Retry = Retry::Minutes(1);
/// The interval of clients for which another attempt would fail, too. They have no word for "never".
const A_DAY_S: u32 = 24 * 3600;

/// Makes [`Refusal`] from one row for each variant: its documentation, `Variant => label, retry, text;`.
/// A variant with fields gives the values that they have in `ALL`.
macro_rules! refusals {
    // A text or retry may use the fields, and need not.
    (@text $value:expr $(, $($field:ident)+)?) => {{
        $($(let _ = $field;)+)?
        $value
    }};
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident $({ $($(#[doc = $field_doc:literal])* $field:ident: $type:ty = $zero:expr),+ })?
        => $label:literal, $retry:expr, $text:expr;
    )+) => {
        /// A refusal that is sent to the client. Faults that are met with silence are not here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal {
            $($(#[doc = $doc])* $variant $({ $($(#[doc = $field_doc])* $field: $type),+ })?,)+
        }

        // It is passed in a register.
        const _: () = assert!(size_of::<Refusal>() == 8);

        impl Refusal {
            /// Every refusal, in the order of [`Refusal::index`].
            pub const ALL: [Self; [$($label),+].len()] =
                [$(Self::$variant $({ $($field: $zero),+ })?),+];

            /// Returns the refusal's index into tables of counters. It depends on the reason only, not
            /// on the fields.
            pub const fn index(self) -> usize {
                enum Index {
                    $($variant),+
                }
                match self {
                    $(Self::$variant { .. } => Index::$variant as usize,)+
                }
            }

            /// Returns the sentence for the client, in lower case and without a full stop.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$variant $({ $($field),+ })? => refusals!(@text $text $(, $($field)+)?),)+
                }
            }

            /// Returns the refusal's label in metrics.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $label,)+
                }
            }

            /// Returns what the refusal means, for operators: its documentation.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => concat!($($doc),*).trim_ascii_start(),)+
                }
            }

            /// Returns when the client may try again.
            pub const fn retry(self) -> Retry {
                match self {
                    $(Self::$variant $({ $($field),+ })? => refusals!(@text $retry $(, $($field)+)?),)+
                }
            }
        }
    };
}

refusals! {
    /// The torrent is not on the allow list.
    NotAllowed => "not_allowed", AFTER_AN_HOUR,
        "this torrent is not on the tracker's allow list";
    /// The torrent is not on the allow list, and was refused for the first time some minutes ago: it may have been
    /// uploaded just now.
    NotAllowedYet => "not_allowed_yet", AFTER_A_MOMENT,
        "this torrent is not on the tracker's allow list yet";
    /// The torrent is on the deny list.
    Denied => "denied", Retry::Never,
        "this torrent is on the tracker's deny list";
    /// The operator has frozen the torrent.
    Frozen => "frozen", AFTER_AN_HOUR,
        "this torrent is frozen: the tracker accepts no announces for now";
    /// The operator refuses the torrent with a reason of its own.
    Torrent {
        /// The reason.
        reason: Notice = Notice::UNSPECIFIED
    } => "torrent", AFTER_AN_HOUR,
        if reason == Notice::UNSPECIFIED { "this tracker refuses the torrent" } else { reason.text() };
    /// The announced port is 0.
    PortZero => "port_zero", Retry::Unspecified,
        "port 0 cannot be reached: announce the port you listen on";
    /// The client's address cannot be reached by the tracker's other peers.
    AddressNotPublic => "address_not_public", AFTER_AN_HOUR,
        "other peers cannot reach your address: this tracker accepts public addresses only";
    /// HTTP: `info_hash` is missing.
    InfoHashMissing => "info_hash_missing", Retry::Unspecified,
        "info_hash is missing";
    /// HTTP: `info_hash` is not 20 bytes, or its percent-encoding is truncated.
    InfoHashMalformed => "info_hash_malformed", Retry::Unspecified,
        "info_hash must be 20 percent-encoded bytes";
    /// HTTP: `peer_id` is missing or not 20 bytes.
    PeerIdMalformed => "peer_id_malformed", Retry::Unspecified,
        "peer_id must be 20 percent-encoded bytes";
    /// HTTP: `port` is missing or not a number from 1 to 65535.
    PortMalformed => "port_malformed", Retry::Unspecified,
        "port must be a number from 1 to 65535";
    /// HTTP: `left` is present, but not a number.
    LeftMalformed => "left_malformed", Retry::Unspecified,
        "left must be a number of bytes";
    /// A scrape of all torrents at a listener that does not serve it (BEP 48 leaves it open).
    FullScrape => "full_scrape", Retry::Unspecified,
        "a scrape must name its torrents: info_hash is missing";
    /// The client's prefix had a full scrape a short time ago.
    FullScrapeTooSoon {
        /// Minutes after which it may have another one.
        wait_min: u16 = 0
    } => "full_scrape_too_soon", Retry::Minutes(wait_min),
        "you scraped all torrents a short time ago: wait, or name the torrents you need";
    /// Others had, or have, as many full scrapes as the tracker sends.
    FullScrapesBusy {
        /// Minutes after which there may be another one.
        wait_min: u16 = 0
    } => "full_scrapes_busy", Retry::Minutes(wait_min),
        "too many clients scrape all torrents: wait, or name the torrents you need";
    /// UDP: an action other than connect, announce and scrape.
    UnknownAction => "unknown_action", Retry::Unspecified,
        "unknown action";
    /// UDP: a packet of a verified client that is too short for its action.
    Truncated => "truncated", Retry::Unspecified,
        "the packet is too short";
    /// The client sent a key, as in `/announce/KEY`, to a listener without keys.
    KeyUnexpected => "key_unexpected", Retry::Never,
        "this tracker does not use keys: announce to /announce";
    /// A private tracker got a request without a key.
    KeyMissing => "key_missing", Retry::Never,
        "this tracker is private: the announce URL must contain your key, as in /announce/KEY";
    /// UDP: a scrape at a private tracker. It has no field for a URL, and so no key.
    ScrapeWithoutKey => "scrape_without_key", Retry::Never,
        "this tracker is private, and a scrape over UDP cannot carry your key: scrape over HTTP";
    /// The key does not exist: it never did, or it was revoked.
    KeyUnknown => "key_unknown", Retry::Never,
        "unknown key in the announce URL: download the torrent file again";
    /// The key exists, but has expired.
    KeyExpired => "key_expired", AFTER_AN_HOUR,
        "your key has expired";
    /// The key is over its announces per minute.
    KeyRate => "key_rate", AFTER_A_MOMENT,
        "too many announces with your key: slow down";
    /// The key has as many peers in this torrent as its quota allows.
    KeyPeers => "key_peers", AFTER_A_SESSION,
        "your key has reached its limit of clients on this torrent";
    /// The key is active in as many torrents as its quota allows.
    KeyTorrents => "key_torrents", AFTER_A_SESSION,
        "your key has reached its limit of torrents";
    /// The key is used from as many addresses as its quota allows.
    KeyAddresses => "key_addresses", AFTER_A_SESSION,
        "your key has reached its limit of addresses";
    /// The key may only seed, and its client lacks a part of the torrent.
    KeySeedOnly => "key_seed_only", AFTER_AN_HOUR,
        "your key may only seed: downloading is not permitted with it";
    /// The key, or one of its clients in this torrent, has as many sessions as it may have.
    KeySessions => "key_sessions", AFTER_A_SESSION,
        "your key has more clients at once than this tracker keeps track of";
    /// The key has bounds, and the table of sessions is full: the announce could not be counted.
    KeyTableFull => "key_table_full", AFTER_A_SESSION,
        "the tracker cannot keep track of more clients with limited keys: try again later";
    /// An announce without a token, at a listener that asks for one.
    TokenMissing => "token_missing", Retry::Never,
        "this tracker asks for a token: the announce URL must contain it, as in /announce?jwt=TOKEN";
    /// The token's form, signature, issuer or audience is wrong, or it is not valid yet.
    TokenInvalid => "token_invalid", AFTER_AN_HOUR,
        "the token in the announce URL is not valid: download the torrent file again";
    /// The token has expired.
    TokenExpired => "token_expired", AFTER_AN_HOUR,
        "the token in the announce URL has expired: download the torrent file again";
    /// The token permits another torrent than the one that is announced.
    TokenOtherTorrent => "token_other_torrent", Retry::Never,
        "the token in the announce URL is for another torrent";
    /// The token was not verified: too many others were, or there are no keys. UDP answers with silence
    /// instead.
    TokenUnverified => "token_unverified", AFTER_A_MOMENT,
        "the tracker cannot verify the token in the announce URL now: try again later";
    /// The client's network is banned. UDP answers with silence instead.
    Banned => "banned", AFTER_AN_HOUR,
        "your address or network is banned from this tracker";
    /// The configuration refuses announces of the client's network quietly: in place of this error the client gets a
    /// response without peers.
    Network => "network", AFTER_AN_HOUR,
        "this tracker does not serve your network";
    /// HTTP: an announce of a web browser, perhaps on behalf of a page that its user visits.
    Browser => "browser", Retry::Never,
        "web browsers cannot announce over HTTP: use a BitTorrent client, \
         whose User-Agent does not begin with Mozilla/";
    /// The client software is not served.
    ClientRefused => "client_refused", Retry::Never,
        "this tracker does not serve your BitTorrent client";
    /// WebTorrent: the message is not a JSON object.
    NotJson => "not_json", Retry::Unspecified,
        "the message is not a JSON object, or too deeply nested";
    /// WebTorrent: `info_hash` is present, but not 20 characters up to U+00FF.
    InfoHashString => "info_hash_string", Retry::Unspecified,
        "info_hash must be a string of 20 characters from U+0000 to U+00FF";
    /// WebTorrent: `peer_id` is missing, or not 20 characters up to U+00FF.
    PeerIdString => "peer_id_string", Retry::Unspecified,
        "peer_id must be a string of 20 characters from U+0000 to U+00FF";
    /// WebTorrent: `offers` is not an array of identifiers and objects.
    OfferMalformed => "offer_malformed", Retry::Unspecified,
        "offers must be an array of {offer_id, offer}: \
         a string of 20 characters from U+0000 to U+00FF, and an object";
    /// WebTorrent: `answer` is not an object, or `to_peer_id` or `offer_id` are not valid.
    AnswerMalformed => "answer_malformed", Retry::Unspecified,
        "an answer must be an object, and needs to_peer_id and offer_id: \
         strings of 20 characters from U+0000 to U+00FF";
    /// WebTorrent: the connection is in as many torrents as it may be.
    TooManyTorrents => "too_many_torrents", AFTER_A_SESSION,
        "too many torrents on one connection";
    /// WebTorrent: the connection has as many peers in this torrent as it may have.
    TooManyPeers => "too_many_peers", AFTER_A_SESSION,
        "too many peers of one torrent on one connection";
    /// The client's prefix is over its rate. UDP answers with silence instead.
    TooManyRequests => "too_many_requests", AFTER_A_MOMENT,
        "too many requests from your address or network: slow down";
    /// The service that the client uses is over its budget. Always answered as a success without peers.
    OverBudget {
        /// Seconds after which the client may announce again.
        interval_s: u32 = 0
    } => "over_budget", Retry::Unspecified,
        "the tracker is busy: announce again later";
    /// The peer has announced a short time ago.
    TooSoon {
        /// Minutes after which it will be served.
        wait_min: u16 = 0
    } => "too_soon", Retry::Minutes(wait_min),
        "you announced this torrent too recently: wait for the interval";
    /// The site refuses the user, or this torrent to him.
    Site {
        /// The reason.
        notice: Notice = Notice::UNSPECIFIED,
        /// Seconds after which the client may announce again.
        interval_s: u16 = 0
    } => "site", Retry::Minutes(interval_s.div_ceil(60)),
        notice.text();
}

impl Refusal {
    /// The refusals of announces that can be quiet: instead of an error, the client gets a response without peers
    /// and with a long interval. Not among them are mistakes in a request, which its user should see, and those that
    /// UDP answers with silence, which costs less.
    pub const QUIETABLE: [Self; 21] = [
        Self::NotAllowed,
        Self::Denied,
        Self::Frozen,
        Self::Torrent { reason: Notice::UNSPECIFIED },
        Self::AddressNotPublic,
        Self::KeyUnexpected,
        Self::KeyMissing,
        Self::KeyUnknown,
        Self::KeyExpired,
        Self::KeyRate,
        Self::KeyPeers,
        Self::KeyTorrents,
        Self::KeyAddresses,
        Self::KeySeedOnly,
        Self::TokenMissing,
        Self::TokenInvalid,
        Self::TokenExpired,
        Self::TokenOtherTorrent,
        Self::ClientRefused,
        Self::Network,
        Self::TooSoon { wait_min: 0 },
    ];

    /// Returns true for a service over its budget, which is no fault of the client.
    pub fn is_over_budget(self) -> bool {
        matches!(self, Self::OverBudget { .. })
    }

    /// Returns the seconds after which the client may announce again, for clients that do not know BEP 31 but heed the
    /// interval of a failure, as libtorrent does; `None` if the client decides.
    pub fn interval_s(self) -> Option<u32> {
        match (self, self.retry()) {
            (Self::Site { interval_s, .. }, _) => Some(interval_s.into()),
            (Self::OverBudget { interval_s }, _) => Some(interval_s),
            (_, Retry::Minutes(minutes)) => Some(u32::from(minutes) * 60),
            (_, Retry::Never) => Some(A_DAY_S),
            (_, Retry::Unspecified) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn labels_and_texts_are_distinct_and_plain() {
        let labels: BTreeSet<_> = Refusal::ALL.iter().map(|refusal| refusal.label()).collect();
        let texts: BTreeSet<_> = Refusal::ALL.iter().map(|refusal| refusal.text()).collect();
        assert_eq!([labels.len(), texts.len()], [Refusal::ALL.len(); 2]);
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(labels.iter().all(|label| label.bytes().all(is_plain)));
        assert!(texts.iter().all(|text| text.is_ascii() && !text.ends_with('.')));
    }
}
