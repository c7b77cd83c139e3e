//! WebTorrent: writing requests, and parsing a tracker's messages. JSON by `serde_json`, because tools need no
//! parser that is as fast as the tracker's.
//!
//! Info hashes and ids are strings of 20 characters, U+0000 to U+00FF, one for each byte. If a key repeats,
//! its last value counts, as in `JSON.parse`.

#[cfg(test)]
mod tests;

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use types::{Event, InfoHash, NumWant, OfferId, PeerId};
use wire::webtorrent::{Action, Announce, Answer, Offer, append_binary_string as binary};

use crate::{AnnounceResponse, ScrapeEntry, ScrapeStats};

/// Appends an announce.
pub fn announce(out: &mut Vec<u8>, announce: &Announce<'_>) {
    start(out, &announce.info_hash, &announce.peer_id);
    for (key, value) in [
        (b",\"uploaded\":".as_slice(), announce.uploaded),
        (b",\"downloaded\":", announce.downloaded),
    ] {
        out.extend_from_slice(key);
        decimal(out, value);
    }
    out.extend_from_slice(b",\"left\":");
    match announce.left {
        Some(left) => decimal(out, left),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(match announce.event {
        Event::None => b"",
        Event::Started => b",\"event\":\"started\"".as_slice(),
        Event::Completed => b",\"event\":\"completed\"",
        Event::Stopped => b",\"event\":\"stopped\"",
        Event::Paused => b",\"event\":\"paused\"",
    });
    if let NumWant::Peers(peers) = announce.want {
        out.extend_from_slice(b",\"numwant\":");
        decimal(out, peers.into());
    }
    for (at, offer) in announce.offers.iter().enumerate() {
        out.extend_from_slice(if at == 0 {
            b",\"offers\":[{\"offer_id\":"
        } else {
            b",{\"offer_id\":"
        });
        binary(out, &offer.id.0);
        out.extend_from_slice(b",\"offer\":");
        out.extend_from_slice(offer.json.as_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(if announce.offers.is_empty() { b"}" } else { b"]}" });
}

/// Appends the answer to an offer.
pub fn answer(out: &mut Vec<u8>, answer: &Answer<'_>) {
    start(out, &answer.info_hash, &answer.peer_id);
    out.extend_from_slice(b",\"to_peer_id\":");
    binary(out, &answer.to_peer_id.0);
    out.extend_from_slice(b",\"offer_id\":");
    binary(out, &answer.offer_id.0);
    out.extend_from_slice(b",\"answer\":");
    out.extend_from_slice(answer.json.as_bytes());
    out.push(b'}');
}

/// Appends a scrape. One torrent is written as a string, several as an array.
pub fn scrape(out: &mut Vec<u8>, info_hashes: &[InfoHash]) {
    out.extend_from_slice(b"{\"action\":\"scrape\",\"info_hash\":");
    if let [one] = info_hashes {
        binary(out, &one.0);
    } else {
        for (at, hash) in info_hashes.iter().enumerate() {
            out.push(if at == 0 { b'[' } else { b',' });
            binary(out, &hash.0);
        }
        out.extend_from_slice(if info_hashes.is_empty() { b"[]" } else { b"]" });
    }
    out.push(b'}');
}

fn start(out: &mut Vec<u8>, info_hash: &InfoHash, peer_id: &PeerId) {
    out.extend_from_slice(b"{\"action\":\"announce\",\"info_hash\":");
    binary(out, &info_hash.0);
    out.extend_from_slice(b",\"peer_id\":");
    binary(out, &peer_id.0);
}

fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A message from a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerMessage<'a> {
    /// The reply to an announce: counts and interval.
    AnnounceReply {
        /// The torrent.
        info_hash: InfoHash,
        /// Its counts, and the interval if given.
        response: AnnounceResponse,
    },
    /// Another client's offer.
    Offer {
        /// The torrent.
        info_hash: InfoHash,
        /// The peer that makes the offer.
        peer_id: PeerId,
        /// The offer.
        offer: Offer<'a>,
    },
    /// Another client's answer.
    Answer {
        /// The torrent.
        info_hash: InfoHash,
        /// The peer that answers.
        peer_id: PeerId,
        /// The id of the offer.
        offer_id: OfferId,
        /// The answer itself: a JSON object, unchanged.
        json: &'a str,
    },
    /// The reply to a scrape, sorted by info hash.
    ScrapeReply(Vec<ScrapeEntry>),
    /// A refusal.
    Failure {
        /// The refused action, if given.
        action: Option<Action>,
        /// The torrent, if given.
        info_hash: Option<InfoHash>,
        /// The reason.
        reason: String,
    },
}

/// Parses a tracker's message. Returns `None` if it is not one.
pub fn read(text: &str) -> Option<TrackerMessage<'_>> {
    let members: Members<'_> = serde_json::from_str(text).ok()?;
    let action = members.value("action").and_then(|Name(action)| match &*action {
        "announce" => Some(Action::Announce),
        "scrape" => Some(Action::Scrape),
        _ => None,
    });
    let info_hash = members.value("info_hash").map(|BinaryString(hash)| InfoHash(hash));
    if let Some(reason) = members.value("failure reason") {
        return Some(TrackerMessage::Failure { action, info_hash, reason });
    }
    if action? == Action::Scrape {
        let files: BTreeMap<BinaryString, Members<'_>> = members.value("files")?;
        let entries = files.into_iter().map(|(BinaryString(hash), counts)| {
            let stats = ScrapeStats {
                seeders: counts.number("complete")?,
                downloads: Some(counts.number("downloaded")?),
                leechers: counts.number("incomplete")?,
            };
            Some(ScrapeEntry { info_hash: InfoHash(hash), stats })
        });
        return entries.collect::<Option<_>>().map(TrackerMessage::ScrapeReply);
    }
    let info_hash = info_hash?;
    let id = |name| members.value(name).map(|BinaryString(id)| id);
    if let Some(json) = members.object("offer") {
        let (peer_id, id) = (PeerId(id("peer_id")?), OfferId(id("offer_id")?));
        return Some(TrackerMessage::Offer { info_hash, peer_id, offer: Offer { id, json } });
    }
    if let Some(json) = members.object("answer") {
        let (peer_id, offer_id) = (PeerId(id("peer_id")?), OfferId(id("offer_id")?));
        return Some(TrackerMessage::Answer { info_hash, peer_id, offer_id, json });
    }
    let response = AnnounceResponse {
        interval_s: members.number("interval"),
        seeders: Some(members.number("complete")?),
        leechers: Some(members.number("incomplete")?),
        warning: members.value("warning message"),
        ..AnnounceResponse::default()
    };
    Some(TrackerMessage::AnnounceReply { info_hash, response })
}

/// Parses the 20-byte string at the start of `text`, after whitespace. Callers that have found a key by
/// themselves can read its value without parsing the whole message. Returns `None` if there is no such string.
pub fn read_binary_string(text: &str) -> Option<[u8; 20]> {
    let BinaryString(bytes) = serde_json::Deserializer::from_str(text).into_iter().next()?.ok()?;
    Some(bytes)
}

/// The members of an object, the last of each name. Values are validated, but still text.
#[derive(serde::Deserialize)]
struct Members<'a>(#[serde(borrow)] BTreeMap<Name<'a>, &'a RawValue>);

/// A name or keyword, borrowed unless it has escapes: load testers parse many messages.
#[derive(serde::Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Name<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'a> Members<'a> {
    /// Returns a member. `None` if it is missing or of another type.
    fn value<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// Returns the text of a member that is an object.
    fn object(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.get()).filter(|text| text.starts_with('{'))
    }

    /// Returns a number of at least 0. Fractions are rounded up: some trackers count in floating point.
    fn number(&self, name: &str) -> Option<u64> {
        let float = || self.value(name).filter(|number: &f64| *number >= 0.0);
        self.value(name).or_else(|| float().map(|number| number.ceil() as u64))
    }
}

/// A JSON string of 20 characters up to U+00FF, as bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BinaryString([u8; 20]);

impl<'de> Deserialize<'de> for BinaryString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Characters;
        impl Visitor<'_> for Characters {
            type Value = BinaryString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string of 20 characters up to U+00FF")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<BinaryString, E> {
                let mut bytes = [0; 20];
                let mut characters = text.chars();
                for slot in &mut bytes {
                    let byte = characters.next().and_then(|character| u8::try_from(character).ok());
                    *slot = byte.ok_or_else(|| E::custom("fewer characters, or others"))?;
                }
                match characters.next() {
                    None => Ok(BinaryString(bytes)),
                    Some(_) => Err(E::custom("more than 20 characters")),
                }
            }
        }
        deserializer.deserialize_str(Characters)
    }
}
