//! Bencoded responses to announces and scrapes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use types::{InfoHash, PackedV4, PackedV6, PeerKey};

use crate::bencode::{BencodeError, Value, parse_lenient};

/// A tracker's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerResponse<'a, T> {
    /// The requested data.
    Success(T),
    /// The failure reason, as the tracker sent it.
    Failure(&'a [u8]),
}

/// The response to an announce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnounceResponse<'a> {
    /// Seconds until the next announce.
    pub interval_s: Option<i64>,
    /// Minimum seconds until the next announce.
    pub min_interval_s: Option<i64>,
    /// Seeders.
    pub complete: Option<i64>,
    /// Leechers.
    pub incomplete: Option<i64>,
    /// Downloads completed.
    pub downloaded: Option<i64>,
    /// Peers of both families. Peers whose address is a host name are left out.
    pub peers: Vec<SocketAddr>,
    /// The client's address as the tracker sees it (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// A message for the user.
    pub warning: Option<&'a [u8]>,
    /// The first violation of the protocol.
    pub violation: Option<Violation>,
}

/// The response to a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeResponse {
    /// The torrents that the tracker has counts for, in its order.
    pub files: Vec<ScrapeEntry>,
    /// The first violation of the protocol.
    pub violation: Option<Violation>,
}

/// The counts of one torrent in a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeEntry {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Seeders.
    pub complete: Option<i64>,
    /// Downloads completed.
    pub downloaded: Option<i64>,
    /// Leechers.
    pub incomplete: Option<i64>,
}

/// A violation that most clients tolerate, but not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The bencoding is valid only for lenient decoders.
    Bencoding(BencodeError),
    /// `interval` is missing.
    NoInterval,
    /// Both `peers` and `peers6` are missing, rather than empty.
    NoPeers,
    /// A compact peer list ends within a peer.
    TruncatedPeers,
    /// A peer without an IP address or without a port.
    InvalidPeer,
}

/// The reason why a body is not a tracker's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The body is not bencoded.
    Bencoding(BencodeError),
    /// The body is not a dictionary.
    NotADictionary,
    /// The keys of the response are missing: `interval` and `peers`, or `files`.
    MissingKeys,
    /// A key of `files` is not 20 bytes long.
    InvalidInfoHash,
}

/// Parses the body of an announce response.
pub fn parse_announce(
    body: &[u8],
) -> Result<TrackerResponse<'_, AnnounceResponse<'_>>, ResponseError> {
    let (value, violation) = dictionary(body)?;
    if let Some(reason) = value.at("failure reason").and_then(Value::bytes) {
        return Ok(TrackerResponse::Failure(reason));
    }
    let int = |key| value.at(key).and_then(Value::int);
    let mut found = AnnounceResponse {
        interval_s: int("interval"),
        min_interval_s: int("min interval"),
        complete: int("complete"),
        incomplete: int("incomplete"),
        downloaded: int("downloaded"),
        peers: Vec::new(),
        external_ip: value.at("external ip").and_then(Value::bytes).and_then(address),
        warning: value.at("warning message").and_then(Value::bytes),
        violation: violation.map(Violation::Bencoding),
    };
    let lists = [value.at("peers"), value.at("peers6")];
    if found.interval_s.is_none() {
        if lists == [None, None] {
            return Err(ResponseError::MissingKeys);
        }
        found.note_violation(Violation::NoInterval);
    }
    match lists {
        [None, None] => found.note_violation(Violation::NoPeers),
        [v4, v6] => {
            found.peers_v4(v4);
            found.peers_v6(v6);
        }
    }
    Ok(TrackerResponse::Success(found))
}

/// Parses the body of a scrape response.
pub fn parse_scrape(body: &[u8]) -> Result<TrackerResponse<'_, ScrapeResponse>, ResponseError> {
    let (value, violation) = dictionary(body)?;
    if let Some(reason) = value.at("failure reason").and_then(Value::bytes) {
        return Ok(TrackerResponse::Failure(reason));
    }
    let Some(Value::Dict(files)) = value.at("files") else {
        return Err(ResponseError::MissingKeys);
    };
    let file = |(key, counts): &(&[u8], Value<'_>)| {
        let int = |key| counts.at(key).and_then(Value::int);
        let info_hash = InfoHash((*key).try_into().map_err(|_| ResponseError::InvalidInfoHash)?);
        let [complete, downloaded, incomplete] =
            [int("complete"), int("downloaded"), int("incomplete")];
        Ok(ScrapeEntry { info_hash, complete, downloaded, incomplete })
    };
    let files: Result<Vec<ScrapeEntry>, ResponseError> = files.iter().map(file).collect();
    let violation = violation.map(Violation::Bencoding);
    Ok(TrackerResponse::Success(ScrapeResponse { files: files?, violation }))
}

fn dictionary(body: &[u8]) -> Result<(Value<'_>, Option<BencodeError>), ResponseError> {
    let (value, violation) = parse_lenient(body).map_err(ResponseError::Bencoding)?;
    match value {
        Value::Dict(_) => Ok((value, violation)),
        _ => Err(ResponseError::NotADictionary),
    }
}

impl AnnounceResponse<'_> {
    fn note_violation(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Reads a string with 6 bytes a peer (BEP 23), or a list of dictionaries (BEP 3).
    fn peers_v4(&mut self, value: Option<&Value<'_>>) {
        match value {
            None => {}
            Some(Value::Bytes(bytes)) => {
                let (peers, rest) = bytes.as_chunks::<{ PackedV4::WIRE_LEN }>();
                self.peers.extend(peers.iter().map(|peer| PeerKey::V4(*peer).socket_addr()));
                if !rest.is_empty() {
                    self.note_violation(Violation::TruncatedPeers);
                }
            }
            Some(Value::List(peers)) => {
                for peer in peers {
                    match peer_of(peer) {
                        Some(peer) => self.peers.push(peer),
                        None => self.note_violation(Violation::InvalidPeer),
                    }
                }
            }
            Some(_) => self.note_violation(Violation::InvalidPeer),
        }
    }

    /// Reads a string with 18 bytes a peer (BEP 7).
    fn peers_v6(&mut self, value: Option<&Value<'_>>) {
        let Some(value) = value else { return };
        let Some(bytes) = value.bytes() else { return self.note_violation(Violation::InvalidPeer) };
        let (peers, rest) = bytes.as_chunks::<{ PackedV6::WIRE_LEN }>();
        self.peers.extend(peers.iter().map(|peer| PeerKey::V6(*peer).socket_addr()));
        if !rest.is_empty() {
            self.note_violation(Violation::TruncatedPeers);
        }
    }
}

fn peer_of(value: &Value<'_>) -> Option<SocketAddr> {
    let ip = std::str::from_utf8(value.at("ip")?.bytes()?).ok()?;
    let port = u16::try_from(value.at("port")?.int()?).ok()?;
    Some((ip.parse::<IpAddr>().ok()?, port).into())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bencoding(error) => write!(f, "not strict bencoding: {error}"),
            Self::NoInterval => f.write_str("interval is missing"),
            Self::NoPeers => f.write_str("peers are missing"),
            Self::TruncatedPeers => f.write_str("the peer list ends within a peer"),
            Self::InvalidPeer => f.write_str("a peer has no IP address or no port"),
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bencoding(error) => write!(f, "not bencoded: {error}"),
            Self::NotADictionary => f.write_str("expected a dictionary"),
            Self::MissingKeys => f.write_str("the expected keys are missing"),
            Self::InvalidInfoHash => f.write_str("an info hash is not 20 bytes long"),
        }
    }
}

impl std::error::Error for ResponseError {}
