//! The client of a WebSocket, as HTTP hands it over.

use std::net::IpAddr;

use tracker::Credentials;
use types::UserKey;

/// The client of a WebSocket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WsClient {
    /// The client's address: behind a trusted proxy, the one that the proxy names.
    pub(crate) ip: IpAddr,
    /// The passkey of the request for the WebSocket, if it had one. Each message is authorized by it.
    pub(crate) user: Option<Box<UserKey>>,
    /// The token of that request, if the listener asks for one. Each announce is authorized by it.
    pub(crate) token: Option<Box<[u8]>>,
    /// True if it is a web browser: the page that it shows chooses what it sends.
    pub(crate) is_browser: bool,
}

impl WsClient {
    /// The credentials by which its announces are authorized.
    pub(crate) fn credentials(&self) -> Credentials<'_> {
        Credentials { key: self.key(), token: self.token.as_deref() }
    }

    /// The client's passkey, if it came with one.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.user.as_deref().map(UserKey::as_bytes)
    }
}
