//! Announce URLs, as users put them into torrents.

use tracker::ListenerPolicyId;

/// The announce URL of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceUrl {
    /// The policy of the listener, which says whether users need a key.
    pub listener_policy: ListenerPolicyId,
    /// The URL without a key, such as `udp://192.0.2.1:6969/announce` or `ws://192.0.2.1:6969/`.
    pub url: String,
}

impl AnnounceUrl {
    /// Returns the URL with a user's key.
    pub fn with_key(&self, key: &str) -> String {
        format!("{}/{key}", self.url.trim_end_matches('/'))
    }
}
