//! Answers, appended to a buffer that the caller sends.
//!
//! A body is bencoded into a scratch buffer first, because its length stands before it; copying
//! some 400 bytes costs less than any cleverness would.

use std::net::IpAddr;

use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Refusal, Retry, SwarmCounts};

use super::{BrokenUpgrade, Fault, Method};
use crate::bencode::{Encoder, append_decimal};

/// How a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// HEAD gets no body.
    pub method: Method,
    /// Whether the connection stays open; if not, the answer says so.
    pub keep_alive: bool,
}

impl Response {
    /// Appends a 200 response with `body` to `out`.
    pub fn ok(self, out: &mut Vec<u8>, body: &[u8]) {
        self.write(out, "200 OK", body);
    }

    fn write(self, out: &mut Vec<u8>, status: &str, body: &[u8]) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_bytes());
        out.extend_from_slice(b"\r\nContent-Type: text/plain\r\nContent-Length: ");
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

/// How a request went, where a sentence is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 400: the request is not what it should be.
    BadRequest,
    /// 403: not for this client.
    Forbidden,
    /// 426: only as a WebSocket, version 13.
    UpgradeRequired,
    /// 503: not now.
    Unavailable,
}

impl Response {
    /// Appends a response with a sentence for people.
    pub fn text(self, out: &mut Vec<u8>, status: Status, sentence: &str) {
        let status = match status {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            //= rfc6455#version
            Status::UpgradeRequired => {
                "426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Version: 13"
            }
            Status::Unavailable => "503 Service Unavailable",
        };
        self.write(out, status, sentence.as_bytes());
    }
}

/// Appends the answer to a request for a WebSocket that cannot be granted. The connection ends.
pub fn broken_upgrade(out: &mut Vec<u8>, broken: BrokenUpgrade) {
    let (status, text) = match broken {
        BrokenUpgrade::Request => {
            (Status::BadRequest, "a WebSocket begins with GET, HTTP/1.1 and a Host\n")
        }
        BrokenUpgrade::Connection => (
            Status::BadRequest,
            "Connection: Upgrade is missing: is the proxy in between set up for WebSocket?\n",
        ),
        BrokenUpgrade::Version => {
            (Status::UpgradeRequired, "only WebSocket version 13 is spoken\n")
        }
        BrokenUpgrade::Key => {
            (Status::BadRequest, "Sec-WebSocket-Key must be 16 bytes in base64\n")
        }
    };
    Response { method: Method::Get, keep_alive: false }.text(out, status, text);
}

/// Appends the answer to a page of a site that may not use this tracker. The connection ends.
//= rfc6455#origin
pub fn forbidden_origin(out: &mut Vec<u8>) {
    let response = Response { method: Method::Get, keep_alive: false };
    response.text(out, Status::Forbidden, "this tracker does not serve pages of this origin\n");
}

/// Appends the answer to what is no request that can be served, or names no path there is.
pub fn fault(out: &mut Vec<u8>, fault: Fault) {
    let (status, text) = match fault {
        Fault::BadRequest => ("400 Bad Request", "this is not an HTTP/1.1 GET request\n"),
        Fault::Tls => (
            "400 Bad Request",
            "this port speaks no TLS: the URL must begin with http:// or ws://\n",
        ),
        Fault::MethodNotAllowed => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD are served\n")
        }
        Fault::UriTooLong => ("414 URI Too Long", "the request line is too long\n"),
        Fault::HeadersTooLarge => {
            ("431 Request Header Fields Too Large", "the request's headers are too large\n")
        }
    };
    let response = Response { method: Method::Get, keep_alive: false };
    response.write(out, status, text.as_bytes());
}

impl Response {
    /// Appends the answer to a path that does not exist.
    pub fn not_found(self, out: &mut Vec<u8>) {
        self.write(out, "404 Not Found", b"this is a BitTorrent tracker: /announce and /scrape\n");
    }
}

/// Writes a failure's body: a reason, and when to come back.
//= bep3#failure-reason
//= bep31#retry-in
pub fn failure(body: &mut Vec<u8>, refusal: Refusal) {
    let mut encoder = Encoder::new(body);
    encoder.dict();
    encoder.bytes(b"failure reason");
    encoder.bytes(refusal.text().as_bytes());
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

/// Writes a scrape's body. `info_hashes` are sorted and distinct, and `counts` theirs.
//= bep48#scrape-reply
pub fn scrape(body: &mut Vec<u8>, info_hashes: &[InfoHash], counts: &[SwarmCounts]) {
    let mut encoder = Encoder::new(body);
    encoder.dict();
    encoder.bytes(b"files");
    encoder.dict();
    for (hash, counts) in info_hashes.iter().zip(counts) {
        encoder.bytes(&hash.0);
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
    encoder.end();
    encoder.end();
}

/// How peers are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerModel {
    /// Strings of packed addresses (BEP 23, BEP 7).
    Compact,
    /// A list of dictionaries with peer ids (BEP 3).
    Dict,
    /// The same without peer ids.
    DictNoIds,
}

/// Writes an announce's body in three steps: [`AnnounceReply::begin`], the peers as they come, v4
/// before v6, and [`AnnounceReply::finish`].
#[derive(Clone, Copy, Debug)]
pub struct AnnounceReply<'a> {
    /// How peers are listed.
    pub model: PeerModel,
    /// The torrent's figures.
    pub counts: SwarmCounts,
    /// v4 peers that will follow.
    pub v4: u16,
    /// v6 peers that will follow.
    pub v6: u16,
    /// The client's address (BEP 24).
    pub external_ip: IpAddr,
    /// Seconds until the next announce.
    pub interval_s: u32,
    /// Seconds before which there should be none.
    pub interval_min_s: u32,
    /// Something that the client's user should read.
    pub warning: Option<&'a str>,
}

impl AnnounceReply<'_> {
    /// Writes all that sorts before the peers, and opens their list.
    //= bep3#announce-reply
    pub fn begin(&self, body: &mut Vec<u8>) {
        let mut encoder = Encoder::new(body);
        encoder.dict();
        encoder.bytes(b"complete");
        encoder.int(self.counts.seeders().into());
        encoder.bytes(b"downloaded");
        encoder.int(self.counts.downloads.into());
        //= bep21#announce-downloaders
        encoder.bytes(b"downloaders");
        encoder.int(self.counts.downloaders().into());
        //= bep24#external-ip
        encoder.bytes(b"external ip");
        match self.external_ip.to_canonical() {
            IpAddr::V4(ip) => encoder.bytes(&ip.octets()),
            IpAddr::V6(ip) => encoder.bytes(&ip.octets()),
        }
        encoder.bytes(b"incomplete");
        encoder.int(self.counts.leechers().into());
        encoder.bytes(b"interval");
        encoder.int(self.interval_s.into());
        encoder.bytes(b"min interval");
        encoder.int(self.interval_min_s.into());
        encoder.bytes(b"peers");
        match self.model {
            //= bep23#peers
            PeerModel::Compact => encoder.bytes_of(usize::from(self.v4) * PackedV4::WIRE_LEN),
            PeerModel::Dict | PeerModel::DictNoIds => encoder.list(),
        }
        if self.model == PeerModel::Compact && self.v4 == 0 {
            self.turn_to_v6(body);
        }
    }

    /// Writes some v4 peers. The caller keeps `v4_left`: how many were announced and have not come.
    pub fn peers_v4(&self, body: &mut Vec<u8>, v4_left: &mut u16, peers: &[PackedV4]) {
        match self.model {
            PeerModel::Compact => {
                let start = body.len();
                body.resize(start + peers.len() * PackedV4::WIRE_LEN, 0);
                crate::udp::append_peers_v4(body, start, peers);
            }
            PeerModel::Dict | PeerModel::DictNoIds => {
                peers.iter().for_each(|peer| dict_peer(body, peer.key(), None));
            }
        }
        *v4_left = v4_left.saturating_sub(u16::try_from(peers.len()).unwrap_or(u16::MAX));
        if *v4_left == 0 && self.model == PeerModel::Compact {
            self.turn_to_v6(body);
        }
    }

    /// Writes some v6 peers.
    //= bep7#peers6
    pub fn peers_v6(&self, body: &mut Vec<u8>, peers: &[PackedV6]) {
        match self.model {
            PeerModel::Compact => {
                peers.iter().for_each(|peer| body.extend_from_slice(&peer.wire()));
            }
            PeerModel::Dict | PeerModel::DictNoIds => {
                peers.iter().for_each(|peer| dict_peer(body, peer.key(), None));
            }
        }
    }

    /// Writes one peer of the dict model.
    //= bep3#peers-dict
    pub fn peer_with_id(&self, body: &mut Vec<u8>, peer: PeerKey, id: PeerId) {
        dict_peer(body, peer, (self.model == PeerModel::Dict).then_some(id));
    }

    /// Closes the list, and writes what sorts behind it.
    pub fn finish(&self, body: &mut Vec<u8>) {
        let mut encoder = Encoder::new(body);
        if self.model != PeerModel::Compact {
            encoder.end();
        }
        if let Some(warning) = self.warning {
            encoder.bytes(b"warning message");
            encoder.bytes(warning.as_bytes());
        }
        encoder.end();
    }

    /// `peers6` stands between the two families' strings. Absent without v6 peers.
    fn turn_to_v6(&self, body: &mut Vec<u8>) {
        if self.v6 > 0 {
            let mut encoder = Encoder::new(body);
            encoder.bytes(b"peers6");
            encoder.bytes_of(usize::from(self.v6) * PackedV6::WIRE_LEN);
        }
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

/// The address as text, without a `String`: the longest v6 address has 45 characters.
fn ip_text(room: &mut [u8; 46], ip: IpAddr) -> &[u8] {
    use std::io::Write;
    let mut rest = room.as_mut_slice();
    // Cannot fail: the room is longer than any address.
    let _ = write!(rest, "{ip}");
    let left = rest.len();
    room.get(..room.len() - left).unwrap_or_default()
}
