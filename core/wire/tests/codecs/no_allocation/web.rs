//! Unmasking, parsing, answering and relaying an announce with offers does not allocate, if the buffer
//! has held as much before.

use types::{FamilyCounts, InfoHash, OfferId, PeerId, SwarmCounts, limits};
use wire::webtorrent::{
    self, Announce, Message, Offer, Relay, announce_reply, client, failure, read, scrape_reply,
};
use wire::ws;

const MASK: [u8; 4] = [1, 2, 3, 4];
const HASH: InfoHash = InfoHash([0xff; 20]);
const PEER: PeerId = PeerId(*b"-WW0205-\x00\x01\x02\"\\abcdefg");
const COUNTS: SwarmCounts = SwarmCounts {
    v4: FamilyCounts { seeders: 0, leechers: 0 },
    v6: FamilyCounts { seeders: 0, leechers: 0 },
    web: FamilyCounts { seeders: u32::MAX, leechers: 7 },
    partial_seeds: 0,
    downloads: 9,
};

/// A connection's frames: an announce of 12 kB with 10 offers, an answer, a scrape, a ping, and invalid
/// messages.
fn frames() -> Vec<u8> {
    let json =
        format!(r#"{{"type":"offer","sdp":"{}é\u00e9"}}"#, r"a=candidate:1 udp\r\n".repeat(60));
    let mut announce = Announce::new(HASH, PEER);
    announce.offers = (0..10).map(|n| Offer { id: OfferId([n * 25; 20]), json: &json }).collect();
    let answer = webtorrent::Answer {
        info_hash: HASH,
        peer_id: PEER,
        to_peer_id: PEER,
        offer_id: OfferId([0; 20]),
        json: &json,
    };
    let mut texts = [(); 4].map(|()| Vec::new());
    let [announced, answered, scraped, malformed] = &mut texts;
    client::announce(announced, &announce);
    client::answer(answered, &answer);
    client::scrape(scraped, &[HASH, InfoHash([7; 20]), HASH]);
    malformed.extend(br#"{"action":"announce","left":1}"#);
    let mut out = Vec::new();
    for text in texts {
        ws::client::text(&mut out, MASK, std::str::from_utf8(&text).unwrap());
        ws::client::ping(&mut out, MASK, b"still there");
    }
    assert!(out.len() > 13_000, "{}", out.len());
    out
}

/// Answers every frame of `input`.
fn answer_all(input: &mut [u8], out: &mut Vec<u8>) {
    let (mut reader, mut rest) = (ws::Reader::for_client_frames(), input);
    loop {
        let read = reader.read(rest, limits::WS_MESSAGE_MAX);
        let consumed = read.consumed;
        match read.event {
            ws::Event::Text(text) => answer(&text, out),
            ws::Event::Ping(payload) => ws::pong(out, payload),
            ws::Event::Partial { .. } => return,
            other => panic!("{other:?}"),
        }
        rest = rest.get_mut(consumed..).unwrap();
    }
}

fn answer(text: &str, out: &mut Vec<u8>) {
    match read(text) {
        Ok(Message::Announce(announce)) => {
            let Announce { info_hash, peer_id, .. } = announce;
            ws::text_with(out, |out| announce_reply(out, &info_hash, &COUNTS, 120));
            let relay = Relay::new(&info_hash, &peer_id);
            for offer in &announce.offers {
                ws::text_with(out, |out| relay.offer(out, offer));
            }
        }
        Ok(Message::Answer(answer)) => {
            let relay = Relay::new(&answer.info_hash, &answer.peer_id);
            ws::text_with(out, |out| relay.answer(out, &answer.offer_id, answer.json));
        }
        Ok(Message::Scrape(scrape)) => {
            let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_WEB_MAX];
            let hashes = scrape.read_into(&mut room).unwrap();
            ws::text_with(out, |out| scrape_reply(out, hashes, &[COUNTS; 2]));
        }
        Err(bad) => ws::text_with(out, |out| {
            failure(out, bad.refusal, bad.action, bad.info_hash.as_ref());
        }),
    }
}

#[test]
fn webtorrent_messages_do_not_allocate() {
    let frames = frames();
    let (mut input, mut out) = (frames.clone(), Vec::new());
    let cold = allocation_counter::measure(|| answer_all(&mut input, &mut out));
    assert!(cold.count_total > 0, "allocations are not counted");
    let first = out.clone();
    out.clear();
    input.copy_from_slice(&frames);
    let warm = allocation_counter::measure(|| answer_all(&mut input, &mut out));
    assert_eq!(warm.count_total, 0);
    assert_eq!(out, first);
    // The reply, ten offers and an answer, the scrape's two torrents, the refusal, four pongs.
    let (mut reader, mut events) = (ws::Reader::for_server_frames(), Vec::new());
    let mut rest = out.as_mut_slice();
    loop {
        let read = reader.read(rest, limits::WS_MESSAGE_MAX);
        let consumed = read.consumed;
        match read.event {
            ws::Event::Text(text) => events.push(client::read(&text).is_some()),
            ws::Event::Pong(payload) => assert_eq!(payload, b"still there"),
            ws::Event::Partial { .. } => break,
            other => panic!("{other:?}"),
        }
        rest = rest.get_mut(consumed..).unwrap();
    }
    assert_eq!(events, [true; 1 + 10 + 1 + 1 + 1]);
}
