//! The words that keys with a few possible values accept.

use front::http::ForwardedHeader;
use net::Engine;
use pages::PublicPage;
use tracker::PrivateAddresses;
use tracker::access::Mode;
use xdp::Mode as XdpMode;

pub(super) trait Choice: Copy + PartialEq + 'static {
    const WORDS: &'static [&'static str];
    /// The values they stand for, in the same order.
    const VALUES: &'static [Self];

    fn from_word(word: &str) -> Option<Self> {
        let at = Self::WORDS.iter().position(|known| *known == word)?;
        Self::VALUES.get(at).copied()
    }

    fn word(self) -> &'static str {
        let at = Self::VALUES.iter().position(|known| *known == self);
        debug_assert!(at.is_some(), "every value has a word");
        at.and_then(|at| Self::WORDS.get(at)).copied().unwrap_or("")
    }
}

macro_rules! choices {
    ($($type:ty { $($word:literal => $value:ident),+ $(,)? })+) => { $(
        impl Choice for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];
        }
    )+ };
}

choices! {
    Engine {
        "auto" => Auto, "mmsg" => Mmsg, "portable" => Portable, "shield" => Shield, "xdp" => Xdp,
    }
    XdpMode { "auto" => Auto, "driver" => Driver, "generic" => Generic }
    ForwardedHeader { "x-forwarded-for" => XForwardedFor, "forwarded" => Forwarded }
    PublicPage { "off" => Off, "urls" => Urls, "figures" => Figures }
    StatsChoice { "off" => Off, "page" => Page, "opentracker" => Opentracker }
    PrivateAddresses { "auto" => Auto, "allow" => Allow, "deny" => Deny }
    Mode { "open" => Open, "allow" => Allow, "deny" => Deny, "both" => Both }
    Transport { "udp" => Udp, "http" => Http, "tls" => Tls }
    ProxyProtocol { "off" => Off, "v1v2" => V1V2 }
    Challenge { "tls-alpn-01" => TlsAlpn, "http-01" => Http }
    SiteKind { "off" => Off, "feed" => Feed, "unit3d" => Unit3d, "gazelle" => Gazelle }
    Sandboxing { "auto" => Auto, "off" => Off }
    LogFormat { "text" => Text, "json" => Json }
}

/// The protocol a listener speaks. Its word is also the name of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams (BEP 15).
    Udp,
    /// HTTP and WebSocket.
    Http,
    /// HTTP and WebSocket over TLS.
    Tls,
}

impl Transport {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Udp, Self::Http, Self::Tls];

    /// Its word in the configuration.
    pub fn label(self) -> &'static str {
        self.word()
    }
}

/// Versions of the PROXY header with which connections from trusted proxies begin; `Off` = they begin with none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyProtocol {
    Off,
    /// Version 1 or 2.
    V1V2,
}

/// Setting of the statistics: off, or the response to a request without a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatsChoice {
    Off,
    /// The page of bittorrent-tracker.
    Page,
    /// opentracker's mode `peer`.
    Opentracker,
}

/// Method by which an ACME server verifies that a host is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// By a TLS handshake (RFC 8737).
    TlsAlpn,
    /// By an HTTP request (RFC 8555, 8.3).
    Http,
}

impl Challenge {
    /// Its word in the configuration.
    pub fn label(self) -> &'static str {
        self.word()
    }
}

/// The kind of the site whose users announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// There is none.
    Off,
    /// Any site, which reads the feed.
    Feed,
    /// UNIT3D.
    Unit3d,
    /// Gazelle.
    Gazelle,
}

/// Mode of the sandbox, in which the process gives up the rights it does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sandboxing {
    Auto,
    Off,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object per line.
    Json,
}
