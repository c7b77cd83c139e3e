//! Responses, appended to a buffer that the caller sends.
//!
//! The body is bencoded into a scratch buffer first, because its length precedes it. Copying some 400
//! bytes costs less than patching the length in afterwards.

use std::net::IpAddr;

use types::{PackedV4, PackedV6, PeerId, PeerKey, Refusal, Retry, SwarmCounts};

use super::{Method, RequestError, ScrapedHash, UpgradeError};
use crate::bencode::{Encoder, append_decimal};

/// The parts of a response's head that depend on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFraming {
    /// The request's method: HEAD gets no body.
    pub method: Method,
    /// True if the connection stays open. If false, the response has `Connection: close`.
    pub keep_alive: bool,
}

impl ResponseFraming {
    /// Appends a 200 response with `body` to `out`.
    pub fn ok(self, out: &mut Vec<u8>, body: &[u8]) {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ");
        self.write_rest(out, body);
    }

    /// Appends a 200 response of another content type. `headers` are lines that each end with `\r\n`.
    pub fn document(self, out: &mut Vec<u8>, content_type: &str, headers: &str, body: &[u8]) {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: ");
        out.extend_from_slice(content_type.as_bytes());
        out.extend_from_slice(b"\r\nX-Content-Type-Options: nosniff\r\n");
        out.extend_from_slice(headers.as_bytes());
        out.extend_from_slice(b"Content-Length: ");
        self.write_rest(out, body);
    }

    /// Appends a plain-text response.
    pub fn text(self, out: &mut Vec<u8>, status: Status, sentence: &str) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.line().as_bytes());
        out.extend_from_slice(b"\r\nContent-Type: text/plain\r\nContent-Length: ");
        self.write_rest(out, sentence.as_bytes());
    }

    /// Appends the response to an unknown path.
    pub fn not_found(self, out: &mut Vec<u8>) {
        self.text(out, Status::NotFound, "this is a BitTorrent tracker: /announce and /scrape\n");
    }

    /// Appends the value of `Content-Length` and all that follows it.
    #[inline]
    fn write_rest(self, out: &mut Vec<u8>, body: &[u8]) {
        append_decimal(out, body.len() as u64);
        if !self.keep_alive {
            out.extend_from_slice(b"\r\nConnection: close");
        }
        out.extend_from_slice(b"\r\n\r\n");
        if self.method == Method::Get {
            out.extend_from_slice(body);
        }
    }
}

/// The status of a plain-text response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 400: the request is malformed.
    BadRequest,
    /// 403: this client may not use the resource.
    Forbidden,
    /// 404: there is no such resource.
    NotFound,
    /// 405: the method is neither GET nor HEAD.
    MethodNotAllowed,
    /// 414: the request line is too long.
    UriTooLong,
    /// 426: the resource needs a WebSocket of version 13.
    UpgradeRequired,
    /// 429: the client sends too many requests.
    TooManyRequests,
    /// 431: the headers are too large.
    HeadersTooLarge,
    /// 503: try again later.
    Unavailable,
}

impl Status {
    /// Returns the rest of the status line, and the headers that the status requires.
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed\r\nAllow: GET, HEAD",
            Self::UriTooLong => "414 URI Too Long",
            //= rfc6455#version
            Self::UpgradeRequired => {
                "426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Version: 13"
            }
            Self::TooManyRequests => "429 Too Many Requests",
            Self::HeadersTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Appends the response to an invalid WebSocket request. Close the connection after it.
pub fn upgrade_error(out: &mut Vec<u8>, error: UpgradeError) {
    let (status, text) = match error {
        UpgradeError::Request => {
            (Status::BadRequest, "a WebSocket handshake needs GET, HTTP/1.1 and a Host header\n")
        }
        UpgradeError::Connection => (
            Status::BadRequest,
            "header Connection: Upgrade is missing: a proxy may not be set up for WebSocket\n",
        ),
        UpgradeError::Version => {
            (Status::UpgradeRequired, "unsupported WebSocket version: expected 13\n")
        }
        UpgradeError::Key => (Status::BadRequest, "Sec-WebSocket-Key must be 16 bytes in base64\n"),
    };
    ResponseFraming { method: Method::Get, keep_alive: false }.text(out, status, text);
}

/// Appends the response to a page whose origin is not allowed. Close the connection after it.
//= rfc6455#origin
pub fn forbidden_origin(out: &mut Vec<u8>) {
    let response = ResponseFraming { method: Method::Get, keep_alive: false };
    response.text(out, Status::Forbidden, "this origin may not use this tracker\n");
}

/// Appends the response to a request that cannot be served. Close the connection after it.
pub fn request_error(out: &mut Vec<u8>, request_error: RequestError) {
    let (status, text) = match request_error {
        RequestError::BadRequest => {
            (Status::BadRequest, "expected an HTTP/1.1 GET request without a body\n")
        }
        RequestError::Tls => {
            (Status::BadRequest, "this port does not use TLS: use an http:// or ws:// URL\n")
        }
        RequestError::MethodNotAllowed => {
            (Status::MethodNotAllowed, "only GET and HEAD are allowed\n")
        }
        RequestError::UriTooLong => (Status::UriTooLong, "the request line is too long\n"),
        RequestError::HeadersTooLarge => {
            (Status::HeadersTooLarge, "the request's headers are too large\n")
        }
    };
    let response = ResponseFraming { method: Method::Get, keep_alive: false };
    response.text(out, status, text);
}

/// Appends the body of a refusal to `body`: the reason, and when to retry.
//= bep3#failure-reason
//= bep31#retry-in
pub fn failure(body: &mut Vec<u8>, refusal: Refusal) {
    let mut encoder = Encoder::new(body);
    encoder.dict();
    encoder.bytes(b"failure reason");
    encoder.bytes(refusal.text().as_bytes());
    // Most clients do not know BEP 31; libtorrent heeds the interval of a failure.
    if let Some(interval_s) = refusal.interval_s() {
        encoder.bytes(b"interval");
        encoder.int(interval_s.into());
        encoder.bytes(b"min interval");
        encoder.int(interval_s.into());
    }
    match refusal.retry() {
        Retry::Unspecified => {}
        Retry::Never => {
            encoder.bytes(b"retry in");
            encoder.bytes(b"never");
        }
        Retry::Minutes(minutes) => {
            encoder.bytes(b"retry in");
            encoder.int(minutes.into());
        }
    }
    encoder.end();
}

/// Appends the body of a scrape response. `hashes` must be sorted and distinct, and `counts` must be in
/// the same order.
//= bep48#scrape-reply
pub fn scrape(body: &mut Vec<u8>, hashes: &[ScrapedHash], counts: &[SwarmCounts]) {
    body.extend_from_slice(b"d5:filesd");
    for (ScrapedHash { info_hash, rest }, counts) in hashes.iter().zip(counts) {
        match rest {
            None => body.extend_from_slice(b"20:"),
            Some(_) => body.extend_from_slice(b"32:"),
        }
        body.extend_from_slice(&info_hash.0);
        body.extend_from_slice(rest.as_ref().map_or(&[], <[u8; 12]>::as_slice));
        scraped_counts(body, counts);
    }
    body.extend_from_slice(b"ee");
}

/// Appends the dictionary of one torrent in the response to a scrape.
pub(super) fn scraped_counts(body: &mut Vec<u8>, counts: &SwarmCounts) {
    let mut encoder = Encoder::new(body);
    encoder.dict();
    encoder.bytes(b"complete");
    encoder.int(counts.seeders().into());
    encoder.bytes(b"downloaded");
    encoder.int(counts.downloads.into());
    //= bep21#scrape-downloaders
    encoder.bytes(b"downloaders");
    encoder.int(counts.downloaders().into());
    encoder.bytes(b"incomplete");
    encoder.int(counts.leechers().into());
    encoder.end();
}

/// The format of the peer list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFormat {
    /// Byte strings of packed addresses (BEP 23, BEP 7).
    Compact,
    /// A list of dictionaries with peer ids (BEP 3).
    Dict,
    /// A list of dictionaries without peer ids.
    DictNoIds,
}

/// Writes the body of an announce response in three steps: [`AnnounceReply::begin`], then the peers,
/// v4 before v6, then [`AnnounceReply::finish`].
#[derive(Clone, Copy, Debug)]
pub struct AnnounceReply<'a> {
    /// The format of the peer list.
    pub peer_format: PeerFormat,
    /// The torrent's counts.
    pub counts: SwarmCounts,
    /// The number of v4 peers that will be appended.
    pub v4: u16,
    /// The number of v6 peers that will be appended.
    pub v6: u16,
    /// The client's address as the tracker sees it (BEP 24).
    pub external_ip: IpAddr,
    /// Seconds until the next announce.
    pub interval_s: u32,
    /// Minimum seconds until the next announce.
    pub interval_min_s: u32,
    /// A message that the client shows its user.
    pub warning: Option<&'a str>,
}

impl AnnounceReply<'_> {
    /// Writes the keys that sort before the peers, and opens the list of peers.
    //= bep3#announce-reply
    pub fn begin(&self, body: &mut Vec<u8>) {
        // Keys and what stands around their values are constants, gathered on the stack: to encode each
        // string, or to append it to `body` by itself, would take a tenth of an announce's instructions.
        let mut head = Fixed::new();
        head.int(b"d8:completei", self.counts.seeders());
        head.int(b"e10:downloadedi", self.counts.downloads);
        //= bep21#announce-downloaders
        head.int(b"e11:downloadersi", self.counts.downloaders());
        //= bep24#external-ip
        match self.external_ip.to_canonical() {
            IpAddr::V4(ip) => {
                head.bytes(b"e11:external ip4:");
                head.bytes(&ip.octets());
            }
            IpAddr::V6(ip) => {
                head.bytes(b"e11:external ip16:");
                head.bytes(&ip.octets());
            }
        }
        head.int(b"10:incompletei", self.counts.leechers());
        head.int(b"e8:intervali", self.interval_s);
        head.int(b"e12:min intervali", self.interval_min_s);
        match self.peer_format {
            //= bep23#peers
            PeerFormat::Compact => {
                head.int(b"e5:peers", u32::from(self.v4) * V4_LEN);
                head.bytes(b":");
            }
            PeerFormat::Dict | PeerFormat::DictNoIds => head.bytes(b"e5:peersl"),
        }
        body.extend_from_slice(head.written());
    }

    /// Appends v4 peers, before all v6 peers.
    pub fn peers_v4(&self, body: &mut Vec<u8>, peers: &[PackedV4]) {
        match self.peer_format {
            PeerFormat::Compact => {
                let start = body.len();
                body.resize(start + peers.len() * PackedV4::WIRE_LEN, 0);
                crate::udp::append_peers_v4(body, start, peers);
            }
            PeerFormat::Dict | PeerFormat::DictNoIds => {
                peers.iter().for_each(|peer| dict_peer(body, peer.key(), None));
            }
        }
    }

    /// Appends v6 peers, after [`Self::begin_peers6`].
    //= bep7#peers6
    pub fn peers_v6(&self, body: &mut Vec<u8>, peers: &[PackedV6]) {
        match self.peer_format {
            PeerFormat::Compact => {
                peers.iter().for_each(|peer| body.extend_from_slice(&peer.wire()));
            }
            PeerFormat::Dict | PeerFormat::DictNoIds => {
                peers.iter().for_each(|peer| dict_peer(body, peer.key(), None));
            }
        }
    }

    /// Appends one peer as a dictionary.
    //= bep3#peers-dict
    pub fn peer_with_id(&self, body: &mut Vec<u8>, peer: PeerKey, id: PeerId) {
        dict_peer(body, peer, (self.peer_format == PeerFormat::Dict).then_some(id));
    }

    /// Closes the list of peers and writes the keys that sort after it.
    pub fn finish(&self, body: &mut Vec<u8>) {
        let mut encoder = Encoder::new(body);
        if self.peer_format != PeerFormat::Compact {
            encoder.end();
        }
        if let Some(warning) = self.warning {
            encoder.bytes(b"warning message");
            encoder.bytes(warning.as_bytes());
        }
        encoder.end();
    }

    /// Ends the v4 peers: in compact form, writes the key `peers6`, which separates the strings of the two families.
    /// Absent without v6 peers.
    pub fn begin_peers6(&self, body: &mut Vec<u8>) {
        if self.peer_format == PeerFormat::Compact && self.v6 > 0 {
            let mut encoder = Encoder::new(body);
            encoder.bytes(b"peers6");
            encoder.bytes_of(usize::from(self.v6) * PackedV6::WIRE_LEN);
        }
    }
}

/// [`PackedV4::WIRE_LEN`] as a number of the type that [`Fixed::int`] takes.
const V4_LEN: u32 = 6;
const _: () = assert!(V4_LEN as usize == PackedV4::WIRE_LEN);

/// Text of a bounded length, gathered on the stack.
struct Fixed {
    bytes: [u8; Self::SIZE],
    len: usize,
}

impl Fixed {
    /// More than the constants (124 bytes), seven numbers of at most 10 digits and a v6 address take.
    const SIZE: usize = 256;

    #[inline]
    fn new() -> Self {
        Self { bytes: [0; Self::SIZE], len: 0 }
    }

    #[inline]
    fn bytes<const N: usize>(&mut self, bytes: &[u8; N]) {
        let room = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut::<N>);
        debug_assert!(room.is_some(), "the text is longer than its bound");
        if let Some(room) = room {
            *room = *bytes;
            self.len += N;
        }
    }

    /// Appends `before` and the digits of `value`.
    #[inline]
    fn int<const N: usize>(&mut self, before: &[u8; N], value: u32) {
        self.bytes(before);
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).as_bytes();
        let room = self.bytes.get_mut(self.len..).and_then(|free| free.get_mut(..digits.len()));
        debug_assert!(room.is_some(), "the text is longer than its bound");
        if let Some(room) = room {
            room.copy_from_slice(digits);
            self.len += digits.len();
        }
    }

    #[inline]
    fn written(&self) -> &[u8] {
        self.bytes.split_at(self.len).0
    }
}

fn dict_peer(body: &mut Vec<u8>, peer: PeerKey, id: Option<PeerId>) {
    let addr = peer.socket_addr();
    let mut text = [0; 46];
    let text = ip_text(&mut text, addr.ip());
    let mut encoder = Encoder::new(body);
    encoder.dict();
    encoder.bytes(b"ip");
    encoder.bytes(text);
    if let Some(id) = id {
        encoder.bytes(b"peer id");
        encoder.bytes(&id.0);
    }
    encoder.bytes(b"port");
    encoder.int(addr.port().into());
    encoder.end();
}

/// Formats the address without a `String`. The longest v6 address has 45 characters.
fn ip_text(buffer: &mut [u8; 46], ip: IpAddr) -> &[u8] {
    use std::io::Write;
    let mut rest = buffer.as_mut_slice();
    let written = write!(rest, "{ip}");
    debug_assert!(written.is_ok(), "the buffer is longer than any address");
    let left = rest.len();
    buffer.get(..buffer.len() - left).unwrap_or_default()
}
