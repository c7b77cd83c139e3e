//! What people have of a torrent: a `.torrent` file, a magnet link, or a hash.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use types::InfoHash;
use wire::bencode::{Value, dict_entry, parse_lenient};

/// A torrent, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Torrent {
    /// What it calls itself.
    pub name: Option<String>,
    /// What trackers know it by: SHA-1 of a v1 torrent, SHA-256 of a v2 one cut to 20 bytes (BEP 52),
    /// and of a hybrid both. At least one.
    pub hashes: Vec<InfoHash>,
    /// Bytes of its files together.
    pub length: Option<u64>,
    /// Its trackers' URLs as they stand there, each once.
    pub trackers: Vec<String>,
}

/// Why a text is no torrent: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTorrent(String);

/// More than any torrent's file has.
const FILE_MAX: u64 = 64 << 20;

impl Torrent {
    /// Reads a magnet link, 40 or 64 hex digits, or the file of that name.
    pub fn read(text: &str) -> Result<Self, BadTorrent> {
        if let Some(query) = text.strip_prefix("magnet:") {
            return Self::from_magnet(query).map_err(|why| BadTorrent(format!("{text}: {why}")));
        }
        let path = Path::new(text);
        match text.parse() {
            Ok(hash) => Ok(Self { hashes: vec![hash], ..Self::default() }),
            Err(_) if path.exists() => Self::from_file(path),
            Err(why) => Err(BadTorrent(format!(
                "{text}: no torrent: neither a magnet link, nor a file that is there, nor a hash ({why})"
            ))),
        }
    }

    fn from_file(path: &Path) -> Result<Self, BadTorrent> {
        let bad = |why: &dyn fmt::Display| BadTorrent(format!("{}: {why}", path.display()));
        let mut bytes = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
        match read {
            Ok(len) if len as u64 > FILE_MAX => {
                Err(bad(&format_args!("no torrent: it has more than {FILE_MAX} bytes")))
            }
            Ok(_) => Self::from_bytes(&bytes).map_err(|why| bad(&why)),
            Err(error) => Err(bad(&format_args!("cannot be read: {error}"))),
        }
    }

    /// Reads a `.torrent` file's bytes (BEP 3, 12, 52). Hashes are of the bytes as they stand there,
    /// whether they are strict bencoding or not.
    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let no_torrent = |why: &dyn fmt::Display| format!("no torrent: {why}");
        let (whole, _) = parse_lenient(bytes).map_err(|error| no_torrent(&error))?;
        let text = dict_entry(bytes, "info").map_err(|error| no_torrent(&error))?;
        let (Some(info), Some(text)) = (whole.at("info"), text) else {
            return Err(no_torrent(&"it has no info"));
        };
        let mut hashes = Vec::new();
        if info.at("pieces").is_some() {
            hashes.extend(cut(digest(&SHA1_FOR_LEGACY_USE_ONLY, text).as_ref()));
        }
        let tree = info.at("file tree");
        if tree.is_some() && info.at("meta version").and_then(Value::int) == Some(2) {
            hashes.extend(cut(digest(&SHA256, text).as_ref()));
        }
        if hashes.is_empty() {
            return Err(no_torrent(&"its info has neither pieces nor, of version 2, a file tree"));
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

    /// Reads what stands behind `magnet:` (BEP 9, 53): `?xt=urn:btih:…&xt=urn:btmh:…&dn=…&tr=…&xl=…`.
    fn from_magnet(query: &str) -> Result<Self, String> {
        let query = query.strip_prefix('?').ok_or("no magnet link: there is no ?")?;
        let mut torrent = Self::default();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decoded(value).ok_or_else(|| {
                format!("{parameter:?} has a percent sign without two hex digits, or is not UTF-8")
            })?;
            // Of several, each may have a number: `xt.1`, `tr.2`.
            match name.split('.').next().unwrap_or_default() {
                "xt" => torrent.hashes.extend(topic(&value)?),
                "tr" => torrent.add_tracker(&value),
                "dn" => torrent.name = Some(value),
                "xl" => torrent.length = value.parse().ok(),
                _ => {}
            }
        }
        if torrent.hashes.is_empty() {
            return Err("no hash in it: xt=urn:btih:… or xt=urn:btmh:…".into());
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

/// The first 20 bytes.
fn cut(hash: &[u8]) -> Option<InfoHash> {
    hash.first_chunk().map(|hash| InfoHash(*hash))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Of one file, or of a list of them (BEP 3).
fn length(info: &Value<'_>) -> Option<u64> {
    let of = |file: &Value<'_>| u64::try_from(file.at("length")?.int()?).ok();
    match info.at("files") {
        Some(Value::List(files)) => {
            files.iter().map(of).try_fold(0_u64, |sum, one| sum.checked_add(one?))
        }
        _ => of(info),
    }
}

/// Of all files in a tree (BEP 52): a file is a directory whose one entry has no name.
fn tree_length(tree: &Value<'_>) -> u64 {
    let Value::Dict(entries) = tree else { return 0 };
    let lengths = entries.iter().map(|(name, value)| match name {
        [] => {
            value.at("length").and_then(Value::int).and_then(|it| it.try_into().ok()).unwrap_or(0)
        }
        // The parser bounds how deep it is.
        _ => tree_length(value),
    });
    lengths.fold(0, u64::saturating_add)
}

/// The hash in an exact topic, if it is one of BitTorrent's.
fn topic(urn: &str) -> Result<Option<InfoHash>, String> {
    let bad = |why: &dyn fmt::Display| format!("{urn}: {why}");
    if let Some(hash) = urn.strip_prefix("urn:btih:") {
        let hash = match hash.len() {
            32 => base32(hash).ok_or_else(|| bad(&"no base32"))?,
            40 => hash.parse().map_err(|error| bad(&error))?,
            found => {
                return Err(bad(&format_args!(
                    "{found} digits where 40, or 32 of base32, are due"
                )));
            }
        };
        return Ok(Some(hash));
    }
    // A multihash: 12 says SHA-256, 20 that it has 32 bytes.
    let Some(hash) = urn.strip_prefix("urn:btmh:") else { return Ok(None) };
    let hash = hash.strip_prefix("1220").ok_or_else(|| bad(&"a SHA-256 begins with 1220"))?;
    match hash.len() {
        64 => hash.parse().map(Some).map_err(|error| bad(&error)),
        found => Err(bad(&format_args!("{found} hex digits where 64 are due behind 1220"))),
    }
}

/// 32 digits of RFC 4648, section 6, in either case.
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

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        bytes.push(match byte {
            b'%' => {
                let ([high, low], behind) = behind.split_first_chunk()?;
                rest = behind;
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                u8::try_from(digit(high)? << 4 | digit(low)?).ok()?
            }
            b'+' => b' ',
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for BadTorrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTorrent {}
