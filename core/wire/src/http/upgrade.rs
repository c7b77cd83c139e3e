//! The client's half of the WebSocket handshake (RFC 6455, 4.2.1).

/// What a request asks the connection to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade<'a> {
    /// Nothing, or nothing that is known here: it is a plain request.
    None,
    /// A WebSocket. [`crate::ws::switching_protocols`] makes it one.
    WebSocket {
        /// `Sec-WebSocket-Key`: 16 bytes in base64.
        key: &'a [u8; 24],
        /// `Origin`: the site whose page asks, if it is a page.
        origin: Option<&'a [u8]>,
    },
    /// A WebSocket, but not in the way of RFC 6455.
    Invalid(UpgradeError),
}

/// Why no WebSocket can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeError {
    /// It is not `GET` with HTTP/1.1 and a `Host`.
    Request,
    /// `Connection` does not list `upgrade`. So do proxies that are not set up for WebSocket.
    Connection,
    /// `Sec-WebSocket-Version` is not 13.
    Version,
    /// `Sec-WebSocket-Key` is not 16 bytes in base64.
    Key,
}

/// Reads the headers of a request whose `Upgrade` lists `websocket`.
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

/// Whether a comma-separated list holds `token`, in any case.
pub(super) fn lists(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(token))
}

fn values<'a>(parsed: &httparse::Request<'_, 'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let headers =
        parsed.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    headers.map(|header| header.value.trim_ascii())
}

/// The value of a header that may come once.
fn only<'a>(parsed: &httparse::Request<'_, 'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = values(parsed, name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// 22 digits and padding. The last digit's four spare bits may be what they will: they are hashed
/// like the rest, and some clients make them up.
fn key(value: &[u8]) -> Option<&[u8; 24]> {
    let key: &[u8; 24] = value.try_into().ok()?;
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.strip_suffix(b"==")?.iter().all(digit).then_some(key)
}
