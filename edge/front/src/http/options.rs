//! The settings of a listener.

use tracker::{ListenerPolicyId, Networks};
use wire::http::ForwardedHeader;

use crate::webtorrent::options::WebOptions;

/// The settings of a listener for HTTP.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The policy of the listener.
    pub listener_policy: ListenerPolicyId,
    /// The most connections that one worker holds at the listener. Further ones are closed at once.
    /// The largest value of a worker's listeners also limits their sum.
    pub connections_max: usize,
    /// Seconds from a request's first byte to its last.
    pub head_timeout_s: u32,
    /// Seconds that a connection may be idle between requests.
    pub idle_timeout_s: u32,
    /// Seconds that a client may take to read a response.
    pub write_timeout_s: u32,
    /// Proxies whose PROXY and forwarded headers name the client.
    pub trusted_proxies: Networks,
    /// True if connections of trusted proxies begin with a PROXY header.
    pub proxy_protocol: bool,
    /// The request header in which trusted proxies name the client.
    pub forwarded_header: ForwardedHeader,
    /// True if `compact=0` is answered with a list of dictionaries (BEP 3). The store must keep peer
    /// ids.
    pub non_compact: bool,
    /// Seconds that connections may take to end after the worker gets the signal to stop. The largest value
    /// of a worker's listeners counts.
    pub shutdown_timeout_s: u32,
    /// The settings of WebTorrent; `None` = not served.
    pub web: Option<WebOptions>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            listener_policy: ListenerPolicyId::default(),
            connections_max: 50_000,
            head_timeout_s: 10,
            idle_timeout_s: 60,
            write_timeout_s: 20,
            trusted_proxies: Networks::default(),
            proxy_protocol: false,
            forwarded_header: ForwardedHeader::default(),
            non_compact: false,
            shutdown_timeout_s: 5,
            web: Some(WebOptions::default()),
        }
    }
}
