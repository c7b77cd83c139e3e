//! Classifies a tracker's messages with as little parsing as possible.
//!
//! Nine of ten messages are relays of more than a kilobyte, of which the load tester needs only the
//! kind and the ids to answer to. So it searches for keys instead of parsing all JSON: within a
//! string every quotation mark is escaped, so
//! `"offer":` can only be a key. The load tester assumes that messages are valid JSON and does not
//! check it.

use std::sync::LazyLock;

use client::codec::webtorrent::{TrackerMessage, read as read_all, read_binary_string};
use memchr::memmem::Finder;
use types::{InfoHash, OfferId, PeerId};

/// A message of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// The response to an announce or to an answer.
    Announced {
        interval_s: Option<u64>,
        /// Peers by the tracker's count.
        peers: u64,
    },
    Offer,
    Answer,
    Failure(String),
}

/// Relays have their keys within this many bytes of the start or the end.
const EDGE: usize = 512;

/// Classifies a message; `None` if it is invalid.
pub(super) fn read(text: &str) -> Option<Incoming> {
    let bytes = text.as_bytes();
    let head = bytes.get(..EDGE).unwrap_or(bytes);
    for part in [head, bytes] {
        if KEYS.offer.find(part).is_some() {
            return Some(Incoming::Offer);
        }
        if KEYS.answer.find(part).is_some() {
            return Some(Incoming::Answer);
        }
    }
    Some(match read_all(text)? {
        TrackerMessage::AnnounceReply { response, .. } => {
            let peers = [response.seeders, response.leechers].into_iter().flatten();
            let peers = peers.fold(0, u64::saturating_add);
            Incoming::Announced { interval_s: response.interval_s, peers }
        }
        TrackerMessage::Failure { reason, .. } => Incoming::Failure(reason),
        TrackerMessage::Offer { .. } => Incoming::Offer,
        TrackerMessage::Answer { .. } => Incoming::Answer,
        // None was asked for.
        TrackerMessage::ScrapeReply(_) => return None,
    })
}

/// Returns the peer id and the offer id that an answer must carry.
pub(super) fn offer_ids(text: &str) -> Option<(PeerId, OfferId)> {
    let peer_id = member(text, &KEYS.peer_id)?;
    let offer_id = member(text, &KEYS.offer_id)?;
    Some((PeerId(peer_id), OfferId(offer_id)))
}

/// Returns the torrent of a message.
pub(super) fn info_hash(text: &str) -> Option<InfoHash> {
    member(text, &KEYS.info_hash).map(InfoHash)
}

fn member(text: &str, key: &Finder<'_>) -> Option<[u8; 20]> {
    let bytes = text.as_bytes();
    let tail = bytes.len().saturating_sub(EDGE);
    let windows = [(0, bytes.get(..EDGE)), (tail, bytes.get(tail..)), (0, Some(bytes))];
    let found = windows.into_iter().find_map(|(start, window)| Some(start + key.find(window?)?));
    read_binary_string(text.get(found? + key.needle().len()..)?)
}

struct Keys {
    offer: Finder<'static>,
    answer: Finder<'static>,
    info_hash: Finder<'static>,
    peer_id: Finder<'static>,
    offer_id: Finder<'static>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys {
    offer: Finder::new("\"offer\":"),
    answer: Finder::new("\"answer\":"),
    info_hash: Finder::new("\"info_hash\":"),
    peer_id: Finder::new("\"peer_id\":"),
    offer_id: Finder::new("\"offer_id\":"),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use wire::webtorrent::{Offer, Relay};

    /// Relays as tidegate writes them and as others do: ids after the description, with spaces,
    /// with every character escaped.
    fn relays(random: &mut Random, key: &str, json: &str) -> Vec<(String, PeerId, OfferId)> {
        let (peer_id, offer_id) = (PeerId(random.bytes()), OfferId(random.bytes()));
        let hash = InfoHash(random.bytes());
        let mut ours = Vec::new();
        let relay = Relay::new(&hash, &peer_id);
        match key {
            "offer" => relay.offer(&mut ours, &Offer { id: offer_id, json }),
            _ => relay.answer(&mut ours, &offer_id, json),
        }
        let escaped = |bytes: [u8; 20]| {
            let escapes = bytes.map(|byte| format!("\\u{byte:04x}"));
            format!("\"{}\"", escapes.concat())
        };
        let (peer, id, hash) = (escaped(peer_id.0), escaped(offer_id.0), escaped(hash.0));
        [
            String::from_utf8(ours).unwrap(),
            format!(
                r#"{{"action":"announce","{key}":{json},"offer_id":{id},"peer_id":{peer},"info_hash":{hash}}}"#
            ),
            format!(
                r#"{{ "peer_id": {peer}, "{key}": {json}, "x": "{}", "offer_id": {id}, "info_hash": {hash}, "action": "announce" }}"#,
                "y".repeat(600)
            ),
        ]
        .map(|text| (text, peer_id, offer_id))
        .into()
    }

    #[test]
    fn agrees_with_a_full_parser() {
        let mut random = Random::new(1);
        for n in 0..100 {
            let trap = r#"\"offer\":{} \"answer\":{} \"peer_id\":\"\\"#;
            let json = format!(r#"{{"type":"?","sdp":"{trap}{}"}}"#, "z".repeat(n * 27));
            for key in ["offer", "answer"] {
                for (text, peer_id, offer_id) in relays(&mut random, key, &json) {
                    let whole = match read_all(&text) {
                        Some(TrackerMessage::Offer { info_hash: torrent, peer_id, offer }) => {
                            assert_eq!(info_hash(&text), Some(torrent));
                            (Incoming::Offer, peer_id, offer.id)
                        }
                        Some(TrackerMessage::Answer { peer_id, offer_id, .. }) => {
                            (Incoming::Answer, peer_id, offer_id)
                        }
                        other => panic!("{text}: {other:?}"),
                    };
                    let (from, id) = offer_ids(&text).unwrap();
                    assert_eq!((read(&text).unwrap(), from, id), whole, "{text}");
                    assert_eq!((from, id), (peer_id, offer_id));
                }
            }
        }
    }

    #[test]
    fn classifies_other_messages() {
        let hash = "xxxxxxxxxxxxxxxxxxxx";
        let reply = format!(
            r#"{{"interval":120,"complete":1,"incomplete":2,"action":"announce","info_hash":"{hash}"}}"#
        );
        assert_eq!(read(&reply), Some(Incoming::Announced { interval_s: Some(120), peers: 3 }));
        let failure = r#"{"failure reason":"no \"offer\": here"}"#;
        assert_eq!(read(failure), Some(Incoming::Failure(r#"no "offer": here"#.into())));
        for other in ["", "{}", "[]", "{\"action\":\"announce\"}", "<html>"] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(offer_ids("{\"peer_id\":7,\"offer_id\":8}"), None);
    }
}
