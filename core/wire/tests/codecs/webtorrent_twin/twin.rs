//! The slow twin of `webtorrent::read`: parses a message with `serde_json`, in the obvious way. The
//! fuzz target includes this file, too.
//!
//! `serde_json` alone differs in two points. It does not limit nesting in values that it skips, so
//! depth is counted here. And it cannot make a `String` of a lone surrogate, which JSON allows and
//! `JSON.parse` accepts; no keyword and no binary string contains one, so the results are the same.
#![allow(clippy::unwrap_used, reason = "only tests are made of it")]

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use types::{Event, InfoHash, NumWant, OfferId, PeerId, Refusal, limits};
use wire::webtorrent::{
    Action, Announce, Answer, Message, MessageError, Offer, Offers, Relay, failure, read_binary,
};

/// A parsed message, scrapes included.
#[derive(Debug, PartialEq)]
pub(crate) enum Parsed<'a> {
    Announce(Box<Announce<'a>>),
    Answer(Answer<'a>),
    Scrape(Result<Vec<InfoHash>, Refusal>),
}

/// Checks that both parsers agree about `bytes`, and that relays and refusals made from the message have the same
/// values. Returns the result.
pub(crate) fn check(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    let fast = read_fast(bytes);
    assert_eq!(fast, read_with_serde(bytes), "{}", bytes.escape_ascii());
    match &fast {
        Ok(Parsed::Announce(announce)) => {
            let relay = Relay::new(&announce.info_hash, &announce.peer_id);
            for offer in &announce.offers {
                let ids = [announce.info_hash.0, announce.peer_id.0, offer.id.0];
                check_relay(|out| relay.offer(out, offer), ids, "offer", offer.json);
            }
        }
        Ok(Parsed::Answer(answer)) => {
            let relay = Relay::new(&answer.info_hash, &answer.peer_id);
            let ids = [answer.info_hash.0, answer.peer_id.0, answer.offer_id.0];
            let write = |out: &mut Vec<u8>| relay.answer(out, &answer.offer_id, answer.json);
            check_relay(write, ids, "answer", answer.json);
        }
        Ok(Parsed::Scrape(Ok(_))) => {}
        Ok(Parsed::Scrape(Err(refusal))) => check_refusal(*refusal, Some(Action::Scrape), None),
        Err(MessageError { refusal, action, info_hash }) => {
            check_refusal(*refusal, *action, *info_hash)
        }
    }
    fast
}

/// Checks that a relay has these ids, written as `JSON.stringify` does, and the offer or answer unchanged.
fn check_relay(write: impl Fn(&mut Vec<u8>), ids: [[u8; 20]; 3], key: &str, json: &str) {
    let mut relay = Vec::new();
    write(&mut relay);
    let [info_hash, peer_id, offer_id] =
        ids.map(|id| Value::from(id.map(char::from).iter().collect::<String>()));
    let expected = format!(
        r#"{{"action":"announce","info_hash":{info_hash},"peer_id":{peer_id},"offer_id":{offer_id},"{key}":{json}}}"#
    );
    assert_eq!(String::from_utf8_lossy(&relay), expected);
}

/// Checks that a refusal is JSON that names its text, the action and the torrent.
pub(crate) fn check_refusal(refusal: Refusal, action: Option<Action>, info_hash: Option<InfoHash>) {
    let mut out = Vec::new();
    failure(&mut out, refusal, action, info_hash.as_ref());
    let Members(members) = serde_json::from_slice(&out).unwrap();
    assert_eq!(string(named(&members, "failure reason")).as_deref(), Some(refusal.text()));
    assert_eq!(twenty_bytes(named(&members, "info_hash")).map(InfoHash), info_hash);
    let name = action.map(|action| format!("{action:?}").to_lowercase());
    assert_eq!(string(named(&members, "action")), name);
}

fn read_fast(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    Ok(match read_binary(bytes)? {
        Message::Announce(announce) => Parsed::Announce(announce.into()),
        Message::Answer(answer) => Parsed::Answer(answer),
        Message::Scrape(scrape) => {
            let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_WEB_MAX];
            Parsed::Scrape(scrape.read_into(&mut room).map(<[InfoHash]>::to_vec))
        }
    })
}

fn read_with_serde(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    let bad = |refusal, action, info_hash| MessageError { refusal, action, info_hash };
    let text = std::str::from_utf8(bytes).ok().filter(|text| is_object(text));
    let text = text.ok_or_else(|| bad(Refusal::NotJson, None, None))?;
    let Members(members) = serde_json::from_str(text).unwrap();
    match string(named(&members, "action")).as_deref() {
        Some("announce") => {
            let info_hash = twenty_bytes(named(&members, "info_hash")).map(InfoHash);
            announce(&members).map_err(|refusal| bad(refusal, Some(Action::Announce), info_hash))
        }
        Some("scrape") => Ok(Parsed::Scrape(scrape(named(&members, "info_hash")))),
        _ => Err(bad(Refusal::UnknownAction, None, None)),
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
        && text.trim_start().starts_with('{')
        && depth(text) <= limits::JSON_DEPTH_MAX
}

/// Objects and arrays within each other in a JSON text.
fn depth(text: &str) -> u32 {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn announce<'a>(members: &[Member<'a>]) -> Result<Parsed<'a>, Refusal> {
    let id = |name| twenty_bytes(named(members, name));
    if kind(named(members, "info_hash")) == b'n' {
        return Err(Refusal::InfoHashMissing);
    }
    let info_hash = InfoHash(id("info_hash").ok_or(Refusal::InfoHashString)?);
    let peer_id = PeerId(id("peer_id").ok_or(Refusal::PeerIdString)?);
    let answer = named(members, "answer");
    if kind(answer) != b'n' {
        let (to, of) = (id("to_peer_id"), id("offer_id"));
        let (b'{', Some(to), Some(of)) = (kind(answer), to, of) else {
            return Err(Refusal::AnswerMalformed);
        };
        let (to_peer_id, offer_id) = (PeerId(to), OfferId(of));
        return Ok(Parsed::Answer(Answer {
            info_hash,
            peer_id,
            to_peer_id,
            offer_id,
            json: answer,
        }));
    }
    let mut announce = Announce::new(info_hash, peer_id);
    announce.event = match string(named(members, "event")).as_deref() {
        Some("started") => Event::Started,
        Some("completed") => Event::Completed,
        Some("stopped") => Event::Stopped,
        Some("paused") => Event::Paused,
        _ => Event::None,
    };
    announce.left = number(named(members, "left"));
    announce.uploaded = number(named(members, "uploaded")).unwrap_or(0);
    announce.downloaded = number(named(members, "downloaded")).unwrap_or(0);
    if let Some(want) = number(named(members, "numwant")) {
        announce.want = NumWant::Peers(want.min(65_535) as u16);
    }
    announce.offers = offers(named(members, "offers")).ok_or(Refusal::OfferMalformed)?;
    Ok(Parsed::Announce(announce.into()))
}

/// Parses offers. Elements over the limit are dropped unchecked.
fn offers<'a>(text: &'a str) -> Option<Offers<'a>> {
    match kind(text) {
        b'n' => return Some(Offers::new()),
        b'[' => {}
        _ => return None,
    }
    let elements: Vec<&'a RawValue> = serde_json::from_str(text).unwrap();
    let offer = |element: &'a RawValue| {
        let Members(members) = serde_json::from_str(element.get()).ok()?;
        let id = OfferId(twenty_bytes(named(&members, "offer_id"))?);
        let json = named(&members, "offer");
        (kind(json) == b'{').then_some(Offer { id, json })
    };
    elements.into_iter().take(limits::WEB_OFFERS_MAX).map(offer).collect()
}

fn scrape(text: &str) -> Result<Vec<InfoHash>, Refusal> {
    let named: Vec<&RawValue> = match kind(text) {
        b'n' => Vec::new(),
        b'[' => serde_json::from_str(text).unwrap(),
        _ => vec![serde_json::from_str(text).unwrap()],
    };
    let mut hashes = Vec::new();
    for value in named {
        let hash = InfoHash(twenty_bytes(value.get()).ok_or(Refusal::InfoHashString)?);
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
    }
    hashes.truncate(limits::SCRAPE_HASHES_WEB_MAX);
    if hashes.is_empty() { Err(Refusal::FullScrape) } else { Ok(hashes) }
}

/// A member of an object.
type Member<'a> = (&'a RawValue, &'a RawValue);

struct Members<'a>(Vec<Member<'a>>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Returns the text of the last member of that name, `null` if there is none.
fn named<'a>(members: &[Member<'a>], name: &str) -> &'a str {
    let is_it = |(key, _): &&Member<'a>| string(key.get()).as_deref() == Some(name);
    members.iter().rev().find(is_it).map_or("null", |(_, value)| value.get())
}

/// Returns the first byte, which distinguishes null, numbers, strings, arrays and objects.
fn kind(text: &str) -> u8 {
    text.as_bytes()[0]
}

fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

fn twenty_bytes(text: &str) -> Option<[u8; 20]> {
    let chars =
        string(text)?.chars().map(|char| u8::try_from(char).ok()).collect::<Option<Vec<_>>>();
    chars?.try_into().ok()
}

/// Returns the number rounded up, if it is a number of at least 0.
fn number(text: &str) -> Option<u64> {
    if !matches!(kind(text), b'-' | b'0'..=b'9') {
        return None;
    }
    let float: f64 = text.parse().unwrap();
    let exact = serde_json::from_str(text).ok();
    exact.or_else(|| (float >= 0.0).then(|| float.ceil() as u64))
}
