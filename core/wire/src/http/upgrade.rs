//! The client's request in a WebSocket handshake (RFC 6455, 4.2.1).

/// The protocol that a request wants to upgrade to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade<'a> {
    /// None, or an unknown one: it is a plain request.
    None,
    /// WebSocket. Accept it with [`crate::ws::switching_protocols`].
    WebSocket {
        /// `Sec-WebSocket-Key`: 16 bytes in base64.
        key: &'a [u8; 24],
        /// `Origin`: the site of the page that connects, if it is a browser.
        origin: Option<&'a [u8]>,
    },
    /// A WebSocket request that breaks RFC 6455.
    Invalid(UpgradeError),
}

/// The reason why a WebSocket request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeError {
    /// The request is not `GET` with HTTP/1.1 and one `Host`.
    Request,
    /// `Connection` does not list `upgrade`. Typical of proxies that are not set up for WebSocket.
    Connection,
    /// `Sec-WebSocket-Version` is not 13.
    Version,
    /// `Sec-WebSocket-Key` is not 16 bytes in base64.
    Key,
}

/// Parses the headers of a request whose `Upgrade` lists `websocket`.
pub(super) fn read<'a>(parsed: &httparse::Request<'_, 'a>) -> Upgrade<'a> {
    check(parsed).unwrap_or_else(Upgrade::Invalid)
}

//= rfc6455#client-handshake
fn check<'a>(parsed: &httparse::Request<'_, 'a>) -> Result<Upgrade<'a>, UpgradeError> {
    let one = |name| only(parsed, name);
    if parsed.method != Some("GET") || parsed.version != Some(1) || one("host").is_none() {
        return Err(UpgradeError::Request);
    }
    if !values(parsed, "connection").any(|value| lists(value, b"upgrade")) {
        return Err(UpgradeError::Connection);
    }
    //= rfc6455#version
    if one("sec-websocket-version") != Some(b"13") {
        return Err(UpgradeError::Version);
    }
    let key = one("sec-websocket-key").and_then(key).ok_or(UpgradeError::Key)?;
    Ok(Upgrade::WebSocket { key, origin: values(parsed, "origin").next() })
}

/// Returns whether a comma-separated list contains `token`, ignoring ASCII case.
pub(super) fn lists(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(token))
}

fn values<'a>(parsed: &httparse::Request<'_, 'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let headers =
        parsed.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    headers.map(|header| header.value.trim_ascii())
}

/// Returns the value of a header. `None` if it is missing or repeated.
fn only<'a>(parsed: &httparse::Request<'_, 'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = values(parsed, name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Checks for 22 base64 digits and padding. The four spare bits of the last digit may have any value:
/// they are hashed like the rest, and some clients set them at random.
fn key(value: &[u8]) -> Option<&[u8; 24]> {
    let key: &[u8; 24] = value.try_into().ok()?;
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.strip_suffix(b"==")?.iter().all(digit).then_some(key)
}
