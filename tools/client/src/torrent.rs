//! Torrent descriptions that users have: `.torrent` files, magnet links and info hashes.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::codec::bencode::{Value, dict_entry, parse_lenient};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use types::{InfoHash, percent_decoded};

/// A torrent as a file, a link or a hash describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Torrent {
    /// The torrent's name.
    pub name: Option<String>,
    /// Info hashes as trackers use them, at least one: SHA-1 for v1, SHA-256 truncated to 20 bytes
    /// for v2 (BEP 52), both for a hybrid torrent.
    pub hashes: Vec<InfoHash>,
    /// Total length of its files in bytes.
    pub length: Option<u64>,
    /// Tracker URLs as written, without repetitions.
    pub trackers: Vec<String>,
}

/// Why a text does not describe a torrent: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrentError(String);

/// Larger than any torrent file.
const FILE_MAX: u64 = 64 << 20;

impl Torrent {
    /// Reads a magnet link, an info hash of 40 or 64 hex digits, or the file with this path.
    ///
    /// # Errors
    ///
    /// Returns a sentence if `text` is none of these, if the file cannot be read or has more than 64 MiB, or if
    /// the link or the file has no valid info hash.
    pub fn read(text: &str) -> Result<Self, TorrentError> {
        if let Some(query) = text.strip_prefix("magnet:") {
            return Self::from_magnet(query).map_err(|why| TorrentError(format!("{text}: {why}")));
        }
        let path = Path::new(text);
        match text.parse() {
            Ok(hash) => Ok(Self { hashes: vec![hash], ..Self::default() }),
            Err(_) if path.exists() => Self::from_file(path),
            Err(why) => Err(TorrentError(format!(
                "{text}: not a torrent: expected a magnet link, an existing file or an info hash ({why})"
            ))),
        }
    }

    fn from_file(path: &Path) -> Result<Self, TorrentError> {
        let bad = |why: &dyn fmt::Display| TorrentError(format!("{}: {why}", path.display()));
        let mut bytes = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
        match read {
            Ok(len) if len as u64 > FILE_MAX => {
                Err(bad(&format_args!("not a torrent: larger than {FILE_MAX} bytes")))
            }
            Ok(_) => Self::from_bytes(&bytes).map_err(|why| bad(&why)),
            Err(error) => Err(bad(&format_args!("cannot read the file: {error}"))),
        }
    }

    /// Parses a `.torrent` file (BEP 3, 12, 52). Hashes the `info` bytes as they are, strict
    /// bencoding or not.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the bytes are not bencoded, or if there is no `info` of version 1 or 2.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TorrentError> {
        let no_torrent = |why: &dyn fmt::Display| TorrentError(format!("not a torrent: {why}"));
        let (whole, _) = parse_lenient(bytes).map_err(|error| no_torrent(&error))?;
        let text = dict_entry(bytes, "info").map_err(|error| no_torrent(&error))?;
        let (Some(info), Some(text)) = (whole.at("info"), text) else {
            return Err(no_torrent(&"missing `info`"));
        };
        let mut hashes = Vec::new();
        if info.at("pieces").is_some() {
            hashes.extend(truncated(digest(&SHA1_FOR_LEGACY_USE_ONLY, text).as_ref()));
        }
        let tree = info.at("file tree");
        if tree.is_some() && info.at("meta version").and_then(Value::int) == Some(2) {
            hashes.extend(truncated(digest(&SHA256, text).as_ref()));
        }
        if hashes.is_empty() {
            return Err(no_torrent(&"`info` has neither `pieces` nor a version 2 `file tree`"));
        }
        let mut torrent = Self {
            name: info.at("name").and_then(Value::bytes).map(lossy),
            hashes,
            length: length(info).or_else(|| tree.map(tree_length)),
            trackers: Vec::new(),
        };
        let tiers = match whole.at("announce-list") {
            Some(Value::List(tiers)) => tiers.as_slice(),
            _ => &[],
        };
        let urls = tiers.iter().flat_map(|tier| match tier {
            Value::List(urls) => urls.as_slice(),
            _ => &[],
        });
        let urls = whole.at("announce").into_iter().chain(urls).filter_map(Value::bytes);
        urls.for_each(|url| torrent.add_tracker(&lossy(url)));
        Ok(torrent)
    }

    /// Parses what follows `magnet:` (BEP 9, 53): `?xt=urn:btih:…&xt=urn:btmh:…&dn=…&tr=…&xl=…`.
    fn from_magnet(query: &str) -> Result<Self, String> {
        let query =
            query.strip_prefix('?').ok_or("not a magnet link: expected `?` after `magnet:`")?;
        let mut torrent = Self::default();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decoded(value)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| format!("{parameter:?}: invalid percent-encoding or not UTF-8"))?;
            // Repeated parameters may be numbered: `xt.1`, `tr.2`.
            match name.split('.').next().unwrap_or_default() {
                "xt" => torrent.hashes.extend(topic(&value)?),
                "tr" => torrent.add_tracker(&value),
                "dn" => torrent.name = Some(value),
                "xl" => torrent.length = value.parse().ok(),
                _ => {}
            }
        }
        if torrent.hashes.is_empty() {
            return Err("no info hash: expected xt=urn:btih:… or xt=urn:btmh:…".into());
        }
        Ok(torrent)
    }

    fn add_tracker(&mut self, url: &str) {
        let url = url.trim();
        if !url.is_empty() && !self.trackers.iter().any(|known| known == url) {
            self.trackers.push(url.to_owned());
        }
    }
}

/// Returns the first 20 bytes.
fn truncated(hash: &[u8]) -> Option<InfoHash> {
    hash.first_chunk().map(|hash| InfoHash(*hash))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the total length of a single file or of a list of files (BEP 3).
fn length(info: &Value<'_>) -> Option<u64> {
    let of = |file: &Value<'_>| u64::try_from(file.at("length")?.int()?).ok();
    match info.at("files") {
        Some(Value::List(files)) => {
            files.iter().map(of).try_fold(0_u64, |sum, one| sum.checked_add(one?))
        }
        _ => of(info),
    }
}

/// Returns the total length of a file tree (BEP 52): a file is a directory whose one entry has an
/// empty name.
fn tree_length(tree: &Value<'_>) -> u64 {
    let Value::Dict(entries) = tree else { return 0 };
    let lengths = entries.iter().map(|(name, value)| match name {
        [] => {
            value.at("length").and_then(Value::int).and_then(|it| it.try_into().ok()).unwrap_or(0)
        }
        // The parser bounds the depth.
        _ => tree_length(value),
    });
    lengths.fold(0, u64::saturating_add)
}

/// Returns the hash in an exact topic, or `None` if the topic is not BitTorrent's.
fn topic(urn: &str) -> Result<Option<InfoHash>, String> {
    let bad = |why: &dyn fmt::Display| format!("{urn}: {why}");
    if let Some(hash) = urn.strip_prefix("urn:btih:") {
        let hash = match hash.len() {
            32 => base32(hash).ok_or_else(|| bad(&"invalid base32"))?,
            40 => hash.parse().map_err(|error| bad(&error))?,
            found => {
                return Err(bad(&format_args!(
                    "expected 40 hex digits or 32 base32 digits, found {found}"
                )));
            }
        };
        return Ok(Some(hash));
    }
    // A multihash: 0x12 means SHA-256, 0x20 means 32 bytes.
    let Some(hash) = urn.strip_prefix("urn:btmh:") else { return Ok(None) };
    let hash = hash
        .strip_prefix("1220")
        .ok_or_else(|| bad(&"expected a SHA-256 multihash, which begins with 1220"))?;
    match hash.len() {
        64 => hash.parse().map(Some).map_err(|error| bad(&error)),
        found => Err(bad(&format_args!("expected 64 hex digits after 1220, found {found}"))),
    }
}

/// Decodes 32 base32 digits (RFC 4648, section 6) in either case.
fn base32(text: &str) -> Option<InfoHash> {
    let mut bits = [0; 20];
    for (eight, five) in text.as_bytes().chunks(8).zip(bits.chunks_mut(5)) {
        let mut value = 0_u64;
        for digit in eight {
            let digit = match digit.to_ascii_uppercase() {
                letter @ b'A'..=b'Z' => letter - b'A',
                number @ b'2'..=b'7' => number - b'2' + 26,
                _ => return None,
            };
            value = value << 5 | u64::from(digit);
        }
        let bytes = value.to_be_bytes();
        five.iter_mut().zip(bytes.get(3..)?).for_each(|(place, byte)| *place = *byte);
    }
    Some(InfoHash(bits))
}

impl fmt::Display for TorrentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TorrentError {}
