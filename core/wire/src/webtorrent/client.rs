//! The client's side: writing requests and parsing a tracker's messages. For tests, load testers and
//! tracker clients.

use types::{Event, InfoHash, NumWant, OfferId, PeerId};

use super::json::{JsonString, JsonValue, Scanner};
use super::message::{number, twenty_bytes, word};
use super::write::binary;
use super::{Action, Announce, Answer, Offer};
use crate::bencode::append_decimal;

/// Appends an announce.
pub fn announce(out: &mut Vec<u8>, announce: &Announce<'_>) {
    start(out, &announce.info_hash, &announce.peer_id);
    for (key, value) in [
        (b",\"uploaded\":".as_slice(), announce.uploaded),
        (b",\"downloaded\":", announce.downloaded),
    ] {
        out.extend_from_slice(key);
        append_decimal(out, value);
    }
    out.extend_from_slice(b",\"left\":");
    match announce.left {
        Some(left) => append_decimal(out, left),
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
        append_decimal(out, peers.into());
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

/// A message from a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerMessage<'a> {
    /// The answer to an announce.
    AnnounceReply {
        /// The torrent.
        info_hash: InfoHash,
        /// Its seeders.
        complete: u64,
        /// Its leechers.
        incomplete: u64,
        /// Seconds until the next announce, if given.
        interval_s: Option<u64>,
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
        /// The answer itself: a JSON object.
        json: &'a str,
    },
    /// The answer to a scrape.
    ScrapeReply(Vec<WebScrapeEntry>),
    /// A refusal.
    Failure {
        /// The refused action, if given.
        action: Option<Action>,
        /// The torrent, if given.
        info_hash: Option<InfoHash>,
        /// The reason: the inside of a JSON string, not unescaped.
        reason: &'a str,
    },
}

/// The counts of one torrent in a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebScrapeEntry {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Its seeders.
    pub complete: u64,
    /// Its leechers.
    pub incomplete: u64,
    /// Downloads completed.
    pub downloaded: u64,
}

/// Parses a tracker's message. Returns `None` if it is not one.
pub fn read(text: &str) -> Option<TrackerMessage<'_>> {
    let mut scanner = Scanner::new(text);
    let members = members(
        &mut scanner,
        [
            "action",
            "info_hash",
            "peer_id",
            "offer_id",
            "offer",
            "answer",
            "complete",
            "incomplete",
            "interval",
            "files",
            "failure reason",
        ],
    )?;
    scanner.end()?;
    let [
        action,
        info_hash,
        peer_id,
        offer_id,
        offer,
        answer,
        complete,
        incomplete,
        interval,
        files,
        reason,
    ] = members;
    let action = match word(action, &mut [0; 16]) {
        b"announce" => Some(Action::Announce),
        b"scrape" => Some(Action::Scrape),
        _ => None,
    };
    let info_hash = twenty_bytes(info_hash).map(InfoHash);
    if let JsonValue::String(JsonString { raw: reason, .. }) = reason {
        let reason = std::str::from_utf8(reason).ok()?;
        return Some(TrackerMessage::Failure { action, info_hash, reason });
    }
    if let (Some(Action::Scrape), JsonValue::Object(files)) = (action, files) {
        return files_of(files).map(TrackerMessage::ScrapeReply);
    }
    let (Some(Action::Announce), Some(info_hash)) = (action, info_hash) else { return None };
    let ids = || Some((PeerId(twenty_bytes(peer_id)?), OfferId(twenty_bytes(offer_id)?)));
    match (offer, answer) {
        (JsonValue::Object(json), _) => {
            let (peer_id, id) = ids()?;
            Some(TrackerMessage::Offer { info_hash, peer_id, offer: Offer { id, json } })
        }
        (_, JsonValue::Object(json)) => {
            let (peer_id, offer_id) = ids()?;
            Some(TrackerMessage::Answer { info_hash, peer_id, offer_id, json })
        }
        _ => Some(TrackerMessage::AnnounceReply {
            info_hash,
            complete: number(complete)?,
            incomplete: number(incomplete)?,
            interval_s: number(interval),
        }),
    }
}

/// Parses the 20-byte string at the start of `text`, after whitespace. Callers that have found a key by
/// themselves can read its value without parsing the whole message.
pub fn read_binary_string(text: &str) -> Option<[u8; 20]> {
    twenty_bytes(Scanner::new(text).value()?)
}

fn files_of(text: &str) -> Option<Vec<WebScrapeEntry>> {
    let mut files = Vec::new();
    Scanner::new(text).members(|scanner, hash| {
        let [complete, incomplete, downloaded] =
            members(scanner, ["complete", "incomplete", "downloaded"])?;
        files.push(WebScrapeEntry {
            info_hash: InfoHash(hash.twenty_bytes()?),
            complete: number(complete)?,
            incomplete: number(incomplete)?,
            downloaded: number(downloaded)?,
        });
        Some(())
    })?;
    Some(files)
}

/// Returns the values of an object's members with these names, null for absent ones.
fn members<'a, const N: usize>(
    scanner: &mut Scanner<'a>,
    names: [&str; N],
) -> Option<[JsonValue<'a>; N]> {
    let mut values = [JsonValue::Null; N];
    scanner.members(|scanner, key| {
        let value = scanner.value()?;
        let mut buffer = [0; 16];
        let key = key.word(&mut buffer);
        let named = values.iter_mut().zip(names).filter(|(_, name)| name.as_bytes() == key);
        named.for_each(|(slot, _)| *slot = value);
        Some(())
    })?;
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_binary_string_before_other_text() {
        let bytes: [u8; 20] = std::array::from_fn(|at| (at * 13) as u8);
        let mut text = b" ".to_vec();
        binary(&mut text, &bytes);
        text.extend_from_slice(b",\"offer\":{}}");
        let text = String::from_utf8(text).unwrap();
        assert_eq!(read_binary_string(&text), Some(bytes));
        for bad in ["", "7", "\"19 characters, alas\"", "\"20 characters, no end"] {
            assert_eq!(read_binary_string(bad), None, "{bad}");
        }
    }
}
