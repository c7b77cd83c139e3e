//! Bencoded answers to announces and scrapes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use types::{InfoHash, PackedV4, PackedV6, PeerKey};

use crate::bencode::{BencodeError, Value, parse_lenient};

/// What a tracker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerResponse<'a, T> {
    /// What it was asked for.
    Success(T),
    /// Why not, in its own words.
    Failure(&'a [u8]),
}

/// The answer to an announce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnounceResponse<'a> {
    /// Seconds until the next announce.
    pub interval_s: Option<i64>,
    /// Seconds before which there must be none.
    pub min_interval_s: Option<i64>,
    /// Seeders.
    pub complete: Option<i64>,
    /// Leechers.
    pub incomplete: Option<i64>,
    /// Downloads completed.
    pub downloaded: Option<i64>,
    /// Peers of both families whose address is one: dictionaries may hold names, too.
    pub peers: Vec<SocketAddr>,
    /// Where the tracker sees the client (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// What the tracker wants a person to read.
    pub warning: Option<&'a [u8]>,
    /// The first thing that is not as it should be.
    pub violation: Option<Violation>,
}

/// The answer to a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeResponse {
    /// The torrents that there are figures of, in the tracker's order.
    pub files: Vec<ScrapeEntry>,
    /// The first thing that is not as it should be.
    pub violation: Option<Violation>,
}

/// A torrent's figures in a scrape.
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

/// What most clients can live with, but not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The bencoding is not strict.
    Bencoding(BencodeError),
    /// There is no `interval`.
    NoInterval,
    /// There are no `peers`, not even none.
    NoPeers,
    /// A compact list of peers ends within a peer.
    PeerCutShort,
    /// A peer that is none: a name for its address, or no port.
    OddPeer,
}

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// It is not bencoded.
    Bencoding(BencodeError),
    /// It is no dictionary.
    NoDictionary,
    /// It has nothing of what was asked for.
    Nothing,
    /// A key of `files` that is not 20 bytes long.
    Key,
}

/// Reads the answer to an announce.
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
            return Err(ResponseError::Nothing);
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

/// Reads the answer to a scrape.
pub fn parse_scrape(body: &[u8]) -> Result<TrackerResponse<'_, ScrapeResponse>, ResponseError> {
    let (value, violation) = dictionary(body)?;
    if let Some(reason) = value.at("failure reason").and_then(Value::bytes) {
        return Ok(TrackerResponse::Failure(reason));
    }
    let Some(Value::Dict(files)) = value.at("files") else { return Err(ResponseError::Nothing) };
    let file = |(key, figures): &(&[u8], Value<'_>)| {
        let int = |key| figures.at(key).and_then(Value::int);
        let info_hash = InfoHash((*key).try_into().map_err(|_| ResponseError::Key)?);
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
        _ => Err(ResponseError::NoDictionary),
    }
}

impl AnnounceResponse<'_> {
    fn note_violation(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// A string of 6 bytes a peer (BEP 23), or a list of dictionaries (BEP 3).
    fn peers_v4(&mut self, value: Option<&Value<'_>>) {
        match value {
            None => {}
            Some(Value::Bytes(bytes)) => {
                let (peers, rest) = bytes.as_chunks::<{ PackedV4::WIRE_LEN }>();
                self.peers.extend(peers.iter().map(|peer| PeerKey::V4(*peer).socket_addr()));
                if !rest.is_empty() {
                    self.note_violation(Violation::PeerCutShort);
                }
            }
            Some(Value::List(peers)) => {
                for peer in peers {
                    match peer_of(peer) {
                        Some(peer) => self.peers.push(peer),
                        None => self.note_violation(Violation::OddPeer),
                    }
                }
            }
            Some(_) => self.note_violation(Violation::OddPeer),
        }
    }

    /// A string of 18 bytes a peer (BEP 7).
    fn peers_v6(&mut self, value: Option<&Value<'_>>) {
        let Some(value) = value else { return };
        let Some(bytes) = value.bytes() else { return self.note_violation(Violation::OddPeer) };
        let (peers, rest) = bytes.as_chunks::<{ PackedV6::WIRE_LEN }>();
        self.peers.extend(peers.iter().map(|peer| PeerKey::V6(*peer).socket_addr()));
        if !rest.is_empty() {
            self.note_violation(Violation::PeerCutShort);
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
            Self::Bencoding(malformed) => write!(f, "bencoding that is not strict: {malformed}"),
            Self::NoInterval => f.write_str("no interval"),
            Self::NoPeers => f.write_str("no list of peers"),
            Self::PeerCutShort => f.write_str("a list of peers that ends within one"),
            Self::OddPeer => f.write_str("a peer without an address or a port"),
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bencoding(malformed) => write!(f, "it is not bencoded: {malformed}"),
            Self::NoDictionary => f.write_str("it is no dictionary"),
            Self::Nothing => f.write_str("it has nothing of what was asked for"),
            Self::Key => f.write_str("it names a torrent by something else than 20 bytes"),
        }
    }
}

impl std::error::Error for ResponseError {}
