//! The settings of WebTorrent, and what they say of a request for a WebSocket.

use types::{UserKey, limits};
use wire::http::RequestHead;
use wire::url::query_key;

/// The settings of WebTorrent at a listener.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Origins whose pages may connect, such as `https://example.org`. Empty = all. An empty string
    /// stands for clients that send no origin, because they are not browsers.
    pub origins_allow: Vec<String>,
    /// Origins whose pages may not connect.
    pub origins_deny: Vec<String>,
    /// The maximum length of a message, in bytes.
    pub message_max: usize,
    /// Messages and control frames processed per second and connection; further ones wait.
    /// 0 = unlimited.
    pub messages_per_s: u32,
    /// Bytes per second of the offers of one connection that are relayed; 0 = unlimited. Its interval grows
    /// with its torrents so that it sends no more.
    pub offer_bytes_per_s: u32,
    /// The most torrents that one connection may announce.
    pub torrents_max: usize,
    /// The most bytes that may wait for a client that does not read.
    pub unread_max: usize,
    /// Seconds in which a client must read something.
    pub write_timeout_s: u32,
    /// Seconds from a message's first byte to its last.
    pub message_timeout_s: u32,
    /// Seconds of silence after which a client is pinged.
    pub ping_s: u32,
    /// Seconds of silence after which a connection is ended.
    pub idle_timeout_s: u32,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self {
            origins_allow: Vec::new(),
            origins_deny: Vec::new(),
            message_max: limits::WS_MESSAGE_MAX,
            messages_per_s: 1000,
            offer_bytes_per_s: limits::WEB_OFFER_BYTES_PER_S,
            torrents_max: 10_000,
            unread_max: 256 * 1024,
            write_timeout_s: 20,
            message_timeout_s: limits::WS_MESSAGE_TIMEOUT_S,
            ping_s: 45,
            idle_timeout_s: 110,
        }
    }
}

/// Returns true if the request's path accepts WebSockets: any but those of health checks. `/announce` does, where other
/// trackers have them: no announce over HTTP asks for an upgrade.
pub(crate) fn serves_websockets(request: &RequestHead<'_>) -> bool {
    !request.path.starts_with(b"/health")
}

/// Returns the passkey of a request for a WebSocket: `/announce/KEY` and `/KEY/announce`; at a private listener also
/// `/KEY`, and in the query.
pub(crate) fn user_key<'a>(request: &RequestHead<'a>, is_private: bool) -> Option<&'a [u8]> {
    if !is_private {
        return request.key;
    }
    let in_path = request.path.strip_prefix(b"/").filter(|rest| UserKey::parse(rest).is_ok());
    in_path.or(request.key).or_else(|| query_key(request.query))
}

impl WebOptions {
    /// Returns true if a page of this origin may connect; `None` is a client that is not a browser.
    pub(crate) fn admits(&self, origin: Option<&[u8]>) -> bool {
        let origin = origin.unwrap_or_default();
        let lists = |list: &[String]| {
            list.iter().any(|entry| entry.as_bytes().eq_ignore_ascii_case(origin))
        };
        let is_allowed = self.origins_allow.is_empty() || lists(&self.origins_allow);
        is_allowed && !lists(&self.origins_deny)
    }
}
