//! Requests against the tracker's parser; messages of our tracker, and those of others.

use types::{FamilyCounts, Refusal, SwarmCounts, limits};
use wire::webtorrent::{
    self as server, Message, Relay, announce_reply, failure, read_binary, scrape_reply,
};

use super::*;

const HASH: InfoHash = InfoHash(*b"aaaaaaaaaaaaaaaaaaaa");
const PEER: PeerId = PeerId(*b"-WW0205-\x00\x1f\"\\\x7f\x80\xc2\xff ghi");
const OTHER: PeerId = PeerId(*b"-WW0205-bcdefghijklm");
const OFFER: OfferId = OfferId(*b"oooooooooooooooooooo");
const JSON: &str = r#"{ "type":"offer", "sdp":"v=0\r\n\u00e9é\ud800" }"#;

/// The text that `write` appends.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before".to_vec();
    write(&mut out);
    String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
}

#[test]
fn requests_round_trip() {
    let mut full = Announce::new(HASH, PEER);
    full.event = Event::Started;
    (full.left, full.uploaded, full.downloaded) = (Some(u64::MAX), 1, u64::MAX);
    full.want = NumWant::Peers(10);
    full.offers = (0..3).map(|n| Offer { id: OfferId([n * 80; 20]), json: JSON }).collect();
    let events = [Event::Completed, Event::Stopped, Event::Paused, Event::None];
    let plain = events.map(|event| Announce { event, left: Some(0), ..Announce::new(HASH, PEER) });
    for announced in plain.into_iter().chain([Announce::new(HASH, PEER), full]) {
        let text = written(|out| announce(out, &announced));
        assert_eq!(server::read(&text), Ok(Message::Announce(announced)));
    }
    let answered =
        Answer { info_hash: HASH, peer_id: PEER, to_peer_id: OTHER, offer_id: OFFER, json: JSON };
    let text = written(|out| answer(out, &answered));
    assert_eq!(read_binary(text.as_bytes()), Ok(Message::Answer(answered)));
    let hashes = [HASH, InfoHash([0xff; 20]), InfoHash([7; 20])];
    for count in 0..=hashes.len() {
        let text = written(|out| scrape(out, &hashes[..count]));
        let Ok(Message::Scrape(scrape)) = server::read(&text) else { panic!("{text}") };
        let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_WEB_MAX];
        let expected = if count == 0 { Err(Refusal::FullScrape) } else { Ok(&hashes[..count]) };
        assert_eq!(scrape.read_into(&mut room), expected);
    }
}

fn reply(seeders: u64, leechers: u64, interval_s: u64) -> TrackerMessage<'static> {
    let response = AnnounceResponse {
        interval_s: Some(interval_s),
        seeders: Some(seeders),
        leechers: Some(leechers),
        ..AnnounceResponse::default()
    };
    TrackerMessage::AnnounceReply { info_hash: HASH, response }
}

#[test]
fn reads_messages_of_our_tracker() {
    let web = FamilyCounts { seeders: u32::MAX, leechers: 2 };
    let counts = SwarmCounts { web, downloads: 3, ..SwarmCounts::default() };
    let text = written(|out| announce_reply(out, &HASH, &counts, 120, None));
    assert_eq!(read(&text), Some(reply(u32::MAX.into(), 2, 120)));
    let hashes = [InfoHash([0xff; 20]), HASH];
    let text = written(|out| scrape_reply(out, &hashes, &[counts, SwarmCounts::default()]));
    let stats = ScrapeStats { seeders: u32::MAX.into(), downloads: Some(3), leechers: 2 };
    let none = ScrapeStats { downloads: Some(0), ..ScrapeStats::default() };
    let entries = [(HASH, none), (hashes[0], stats)]
        .map(|(info_hash, stats)| ScrapeEntry { info_hash, stats });
    assert_eq!(read(&text), Some(TrackerMessage::ScrapeReply(entries.into())));
    let relay = Relay::new(&HASH, &PEER);
    let offer = Offer { id: OFFER, json: JSON };
    let text = written(|out| relay.offer(out, &offer));
    let expected = TrackerMessage::Offer { info_hash: HASH, peer_id: PEER, offer };
    assert_eq!(read(&text), Some(expected));
    let text = written(|out| relay.answer(out, &OFFER, JSON));
    let expected =
        TrackerMessage::Answer { info_hash: HASH, peer_id: PEER, offer_id: OFFER, json: JSON };
    assert_eq!(read(&text), Some(expected));
    let (action, info_hash) = (Some(Action::Announce), Some(HASH));
    let text = written(|out| failure(out, Refusal::Denied, action, info_hash.as_ref()));
    let reason = Refusal::Denied.text().into();
    assert_eq!(read(&text), Some(TrackerMessage::Failure { action, info_hash, reason }));
}

#[test]
fn reads_replies_of_other_trackers() {
    // bittorrent-tracker's server sends the action last; other trackers' counts may be floats.
    let text = r#"{"complete":0.5,"incomplete":0,"action":"announce","interval":120,"info_hash":"aaaaaaaaaaaaaaaaaaaa","warning message":"w"}"#;
    let Some(TrackerMessage::AnnounceReply { response, .. }) = read(text) else { panic!("{text}") };
    assert_eq!((response.seeders, response.interval_s), (Some(1), Some(120)));
    assert_eq!(response.warning.as_deref(), Some("w"));
    let text = r#"{"action":"scrape","files":{"aaaaaaaaaaaaaaaaaaaa":{"complete":1,"incomplete":2,"downloaded":3,"x":[]}},"flags":{"min_request_interval":600}}"#;
    let stats = ScrapeStats { seeders: 1, downloads: Some(3), leechers: 2 };
    let entry = ScrapeEntry { info_hash: HASH, stats };
    assert_eq!(read(text), Some(TrackerMessage::ScrapeReply(vec![entry])));
    let text = r#"{"failure reason":"\"no\"","f\u0061ilure reason":"n\u006f"}"#;
    let expected = TrackerMessage::Failure { action: None, info_hash: None, reason: "no".into() };
    assert_eq!(read(text), Some(expected));
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"action":"announce"}"#,
        r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa"}"#,
        r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","complete":1,"incomplete":-1}"#,
        r#"{"action":"announce","info_hash":"a","complete":1,"incomplete":1}"#,
        r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","offer":{}}"#,
        r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","answer":{}}"#,
        r#"{"action":"scrape","files":[]}"#,
        r#"{"action":"scrape","files":{"a":{"complete":1,"incomplete":2,"downloaded":3}}}"#,
        r#"{"action":"scrape","files":{"aaaaaaaaaaaaaaaaaaaa":{"complete":1,"incomplete":2}}}"#,
        r#"{"action":"scrape","files":{}}}"#,
    ] {
        assert_eq!(read(bad), None, "{bad}");
    }
}
