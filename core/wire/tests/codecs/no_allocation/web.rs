//! Unmasking, parsing, answering and relaying an announce with offers does not allocate, if the buffer
//! has held as much before.

use types::{FamilyCounts, InfoHash, SwarmCounts, limits};
use wire::webtorrent::{Announce, Message, Relay, announce_reply, failure, read, scrape_reply};
use wire::ws;

const COUNTS: SwarmCounts = SwarmCounts {
    v4: FamilyCounts { seeders: 0, leechers: 0 },
    v6: FamilyCounts { seeders: 0, leechers: 0 },
    web: FamilyCounts { seeders: u32::MAX, leechers: 7 },
    partial_seeds: 0,
    downloads: 9,
};

/// A connection's frames: an announce of 12 kB with 10 offers, an answer, a scrape, an invalid message, and a
/// ping after each.
fn frames() -> Vec<u8> {
    const IDS: &str =
        r#""info_hash":"ÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿ","peer_id":"-WW0205-\u0000\u0001\"\\abcdefgh""#;
    const OFFER_ID: &str = r#""offer_id":"oooooooooooooooooooo""#;
    let lines = r"a=candidate:1 udp\r\n".repeat(60);
    let json = format!(r#"{{"type":"offer","sdp":"{lines}é\u00e9"}}"#);
    let offers = vec![format!(r#"{{{OFFER_ID},"offer":{json}}}"#); 10].join(",");
    let mut out = Vec::new();
    for text in [
        format!(r#"{{"action":"announce",{IDS},"offers":[{offers}]}}"#),
        format!(
            r#"{{"action":"announce",{IDS},{OFFER_ID},"to_peer_id":"pppppppppppppppppppp","answer":{json}}}"#
        ),
        r#"{"action":"scrape","info_hash":["aaaaaaaaaaaaaaaaaaaa","bbbbbbbbbbbbbbbbbbbb"]}"#.into(),
        r#"{"action":"announce","left":1}"#.into(),
    ] {
        masked(&mut out, ws::Opcode::Text, text.as_bytes());
        masked(&mut out, ws::Opcode::Ping, b"still there");
    }
    assert!(out.len() > 13_000, "{}", out.len());
    out
}

/// Appends a frame of a client.
fn masked(out: &mut Vec<u8>, opcode: ws::Opcode, payload: &[u8]) {
    const MASK: [u8; 4] = [1, 2, 3, 4];
    let (mut header, len) = ws::frame_header(opcode, payload.len());
    header[1] |= 0x80;
    out.extend([&header[..len], &MASK].concat());
    let start = out.len();
    out.extend(payload);
    ws::mask(&mut out[start..], MASK);
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
    // The reply, ten offers and an answer, the scrape's two torrents, the refusal.
    let text = String::from_utf8_lossy(&out);
    let parts =
        ["\"interval\":120", "\"offer\":{", "\"answer\":{", "bbbb\":{", "\"failure reason\":"];
    assert_eq!(parts.map(|part| text.matches(part).count()), [1, 10, 1, 1, 1]);
    assert_eq!(text.matches("still there").count(), 4);
}
