//! Bencoded responses to announces and scrapes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use types::InfoHash;

use crate::codec::bencode::{BencodeError, Value, parse_lenient};
use crate::codec::compact_peers;
use crate::response::TRUNCATED_PEERS;
use crate::{AnnounceResponse, ScrapeEntry, ScrapeStats};

/// A tracker's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerResponse<'a, T> {
    /// The requested data.
    Success(T),
    /// The failure reason, as the tracker sent it.
    Failure(&'a [u8]),
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

/// Parses the body of an announce response (BEP 3, 7, 23, 24). Peers whose address is a host name are left out.
///
/// # Errors
///
/// Returns an error if no client could use the body: it is not bencoded, is not a dictionary, or has neither
/// an interval nor peers. Flaws that most clients tolerate are [`AnnounceResponse::violation`].
pub fn parse_announce(body: &[u8]) -> Result<TrackerResponse<'_, AnnounceResponse>, ResponseError> {
    let (value, violation) = dictionary(body)?;
    if let Some(reason) = value.at("failure reason").and_then(Value::bytes) {
        return Ok(TrackerResponse::Failure(reason));
    }
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut found = AnnounceResponse {
        interval_s: number(&value, "interval"),
        min_interval_s: number(&value, "min interval"),
        seeders: number(&value, "complete"),
        leechers: number(&value, "incomplete"),
        downloads: number(&value, "downloaded"),
        peers: Vec::new(),
        external_ip: value.at("external ip").and_then(Value::bytes).and_then(address),
        warning: value.at("warning message").and_then(Value::bytes).map(text),
        violation: violation.map(|error| format!("not strict bencoding: {error}")),
    };
    let lists = [value.at("peers"), value.at("peers6")];
    if value.at("interval").and_then(Value::int).is_none() {
        if lists == [None, None] {
            return Err(ResponseError::MissingKeys);
        }
        found.note_violation("interval is missing");
    }
    match lists {
        [None, None] => found.note_violation("peers are missing"),
        [v4, v6] => {
            found.peers_v4(v4);
            found.peers_v6(v6);
        }
    }
    Ok(TrackerResponse::Success(found))
}

/// Parses the body of a scrape response (BEP 48): the torrents in the tracker's order. Those without counts of
/// seeders and leechers are left out.
///
/// # Errors
///
/// Returns an error if the body is not bencoded, is not a dictionary, has no `files`, or if a key of `files` is
/// not 20 bytes long.
pub fn parse_scrape(body: &[u8]) -> Result<TrackerResponse<'_, Vec<ScrapeEntry>>, ResponseError> {
    let (value, _) = dictionary(body)?;
    if let Some(reason) = value.at("failure reason").and_then(Value::bytes) {
        return Ok(TrackerResponse::Failure(reason));
    }
    let Some(Value::Dict(files)) = value.at("files") else {
        return Err(ResponseError::MissingKeys);
    };
    let mut entries = Vec::new();
    for (key, counts) in files {
        let info_hash = InfoHash((*key).try_into().map_err(|_| ResponseError::InvalidInfoHash)?);
        if let (Some(seeders), Some(leechers)) =
            (number(counts, "complete"), number(counts, "incomplete"))
        {
            let downloads = number(counts, "downloaded");
            entries.push(ScrapeEntry {
                info_hash,
                stats: ScrapeStats { seeders, downloads, leechers },
            });
        }
    }
    Ok(TrackerResponse::Success(entries))
}

fn dictionary(body: &[u8]) -> Result<(Value<'_>, Option<BencodeError>), ResponseError> {
    let (value, violation) = parse_lenient(body).map_err(ResponseError::Bencoding)?;
    match value {
        Value::Dict(_) => Ok((value, violation)),
        _ => Err(ResponseError::NotADictionary),
    }
}

/// Returns the number of at least 0 that a dictionary has for `key`.
fn number(dictionary: &Value<'_>, key: &str) -> Option<u64> {
    u64::try_from(dictionary.at(key)?.int()?).ok()
}

impl AnnounceResponse {
    fn note_violation(&mut self, violation: &str) {
        self.violation.get_or_insert_with(|| violation.into());
    }

    /// Reads a string with 6 bytes a peer (BEP 23), or a list of dictionaries (BEP 3).
    fn peers_v4(&mut self, value: Option<&Value<'_>>) {
        match value {
            None => {}
            Some(Value::Bytes(bytes)) => self.compact_peers(bytes, false),
            Some(Value::List(peers)) => {
                for peer in peers {
                    match peer_of(peer) {
                        Some(peer) => self.peers.push(peer),
                        None => self.note_violation(INVALID_PEER),
                    }
                }
            }
            Some(_) => self.note_violation(INVALID_PEER),
        }
    }

    /// Reads a string with 18 bytes a peer (BEP 7).
    fn peers_v6(&mut self, value: Option<&Value<'_>>) {
        match value.map(Value::bytes) {
            None => {}
            Some(Some(bytes)) => self.compact_peers(bytes, true),
            Some(None) => self.note_violation(INVALID_PEER),
        }
    }

    fn compact_peers(&mut self, bytes: &[u8], is_v6: bool) {
        let (peers, is_whole) = compact_peers(bytes, is_v6);
        self.peers.extend(peers);
        if !is_whole {
            self.note_violation(TRUNCATED_PEERS);
        }
    }
}

const INVALID_PEER: &str = "a peer has no IP address or no port";

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
