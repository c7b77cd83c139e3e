//! No request of any protocol makes a codec allocate, if the buffers have held as much before. Allocations are
//! counted for each thread.

use allocation_counter::measure;
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, SwarmCounts, limits};
use wire::http::{
    AnnounceReply, ForwardedHeader, Method, ParsedRequest, PeerFormat, ResponseFraming,
    ScrapeQuery, ScrapedHash, Target, announce_query, read_head, request_error, scrape,
};
use wire::udp::{self, Request, UnverifiedRequest};
use wire::webtorrent::{Message, Relay, announce_reply, read, scrape_reply};
use wire::{http, webtorrent, ws};

/// Calls `answer_all` with a buffer for its replies, and again with the same one: the second call must allocate
/// nothing. Checks how often the replies contain some texts.
fn replies_without_allocation(parts: &[(&str, usize)], mut answer_all: impl FnMut(&mut Vec<u8>)) {
    let mut out = Vec::new();
    assert!(measure(|| answer_all(&mut out)).count_total > 0, "allocations are not counted");
    out.clear();
    assert_eq!(measure(|| answer_all(&mut out)).count_total, 0);
    let text = String::from_utf8_lossy(&out);
    for (part, count) in parts {
        assert_eq!(text.matches(part).count(), *count, "{part}");
    }
}

/// Decodes a request and writes its longest reply.
fn answer_udp<'a>(datagram: &[u8], slot: &'a mut [u8]) -> &'a [u8] {
    let len = match udp::decode(datagram) {
        Err(_) => 0,
        Ok(Request::Connect { transaction_id }) => udp::connect_reply(slot, transaction_id, 1),
        Ok(Request::Connected { transaction_id, request, .. }) => match request {
            UnverifiedRequest::Announce { options, .. } => {
                let mut room = [0; limits::URL_DATA_MAX];
                let seeders = options.url_data(&mut room).len() as u32;
                let head =
                    udp::AnnounceHead { transaction_id, interval_s: 1, leechers: 1, seeders };
                let len = udp::announce_reply(slot, &head);
                udp::append_peers_v6(slot, len, &[PackedV6(*b"12345678901234567890"); 200])
            }
            UnverifiedRequest::Scrape(hashes) => {
                let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_UDP_MAX];
                let asked = hashes.copy_to(&mut room).len();
                let counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_UDP_MAX];
                udp::scrape_reply(slot, transaction_id, &counts[..asked])
            }
            UnverifiedRequest::Malformed(refusal) => {
                udp::error_reply(slot, transaction_id, refusal.text())
            }
        },
    };
    &slot[..len]
}

#[test]
fn udp_requests_do_not_allocate() {
    let request = |action: u8, body: &[u8]| {
        [&[1; 8], [0, 0, 0, action].as_slice(), &[0, 0, 0, 9], body].concat()
    };
    // Two options, whose data must be joined.
    let url = [[2, 200].as_slice(), &[b'x'; 200]].concat();
    let requests = [
        [udp::MAGIC.to_be_bytes().as_slice(), &[0, 0, 0, 0, 0, 0, 0, 9]].concat(),
        request(1, &[[7; 82].as_slice(), &url, &url].concat()),
        request(2, &[7; 20 * limits::SCRAPE_HASHES_UDP_MAX]),
        request(7, b""),
    ];
    let mut slot = [0; limits::UDP_PAYLOAD_V4_MAX];
    // A full datagram of peers.
    replies_without_allocation(&[("123456789012345678", 80), ("unknown action", 1)], |out| {
        for request in &requests {
            // Every length: truncated requests take other branches.
            for cut in 0..request.len() {
                answer_udp(&request[..cut], &mut slot);
            }
            out.extend(answer_udp(request, &mut slot));
        }
    });
}

const ANNOUNCE: &str = "GET /announce?info_hash=%00%01%02%03%04%05%06%07%08%09%0a%0B%0c%0d%0e%0f%10%11%12a\
     &peer_id=-qB4600-abcdefghijkl&port=6881&uploaded=1&downloaded=2&left=3&key=%08%8F%8E\
     &event=started&numwant=200&compact=1&no_peer_id=1 HTTP/1.1\r\n\
     Host: tracker.example:6969\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n\r\n";
const SCRAPE: &str = "GET /scrape?info_hash=aaaaaaaaaaaaaaaaaaaa&info_hash=%41AAAAAAAAAAAAAAAAAAA HTTP/1.1\r\n\
     Host: tracker.example\r\n\r\n";
const RESPONSE: ResponseFraming = ResponseFraming { method: Method::Get, keep_alive: true };

/// Answers the HTTP request at the start of `input`, if it is complete.
fn answer_http(input: &[u8], body: &mut Vec<u8>, out: &mut Vec<u8>) {
    let request = match read_head(input) {
        ParsedRequest::Complete(request) => request,
        ParsedRequest::Partial => return,
        ParsedRequest::Invalid(found) => return request_error(out, found),
    };
    std::hint::black_box(request.forwarded_addresses(ForwardedHeader::XForwardedFor).count());
    body.clear();
    match request.target {
        Target::Announce(query) => match announce_query(query) {
            Ok(_) => return announced(body, out),
            Err(refusal) => http::failure(body, refusal),
        },
        Target::Scrape(query) => {
            let mut room = [ScrapedHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
            match ScrapeQuery::new(query).read_into(&mut room) {
                Ok(hashes) => scrape(body, hashes, &[SwarmCounts::default(); 2]),
                Err(refusal) => http::failure(body, refusal),
            }
        }
        Target::Unknown => return RESPONSE.not_found(out),
    }
    RESPONSE.ok(out, body);
}

/// Writes one response in each peer format, as long as possible.
fn announced(body: &mut Vec<u8>, out: &mut Vec<u8>) {
    for peer_format in [PeerFormat::Compact, PeerFormat::Dict, PeerFormat::DictNoIds] {
        let with_id = PeerKey::new([0x2001, 0xdb8, 0, 0, 1, 2, 3, 4].into(), 65_535);
        let reply = AnnounceReply {
            peer_format,
            counts: SwarmCounts { downloads: u32::MAX, ..SwarmCounts::default() },
            v4: 300,
            v6: 200,
            external_ip: [203, 0, 113, 9].into(),
            interval_s: 1800,
            interval_min_s: 900,
            warning: Some("a warning"),
        };
        body.clear();
        reply.begin(body);
        reply.peers_v4(body, &[PackedV4([4; 8]); 300]);
        reply.begin_peers6(body);
        if peer_format == PeerFormat::Compact {
            reply.peers_v6(body, &[PackedV6([6; 20]); 200]);
        } else {
            (0..200).for_each(|_| reply.peer_with_id(body, with_id, PeerId([7; 20])));
        }
        reply.finish(body);
        RESPONSE.ok(out, body);
    }
}

#[test]
fn http_requests_do_not_allocate() {
    let mut body = Vec::new();
    let parts = [("6:peers63600:", 1), ("7:peer id20:", 200), ("5:filesd20:AAAA", 1), ("404 ", 1)];
    replies_without_allocation(&parts, |out| {
        for request in [ANNOUNCE, SCRAPE, "GET /scrape HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"]
        {
            for cut in 0..=request.len() {
                answer_http(&request.as_bytes()[..cut], &mut body, out);
            }
        }
    });
}

/// A connection's frames: an announce of 12 kB with 10 offers, an answer, a scrape, an invalid message, and a
/// ping after each.
fn frames() -> Vec<u8> {
    const IDS: &str =
        r#""info_hash":"ÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿ","peer_id":"-WW0205-\u0000\u0001\"\\abcdefgh""#;
    const OFFER_ID: &str = r#""offer_id":"oooooooooooooooooooo""#;
    let lines = r"a=candidate:1 udp\r\n".repeat(60);
    let json = format!(r#"{{"type":"offer","sdp":"{lines}é\u00e9"}}"#);
    let offers = vec![format!(r#"{{{OFFER_ID},"offer":{json}}}"#); 10].join(",");
    let answer = format!(r#"{OFFER_ID},"to_peer_id":"pppppppppppppppppppp","answer":{json}"#);
    let mut out = Vec::new();
    for text in [
        format!(r#"{{"action":"announce",{IDS},"offers":[{offers}]}}"#),
        format!(r#"{{"action":"announce",{IDS},{answer}}}"#),
        r#"{"action":"scrape","info_hash":["aaaaaaaaaaaaaaaaaaaa","bbbbbbbbbbbbbbbbbbbb"]}"#.into(),
        r#"{"action":"announce","left":1}"#.into(),
    ] {
        append_masked(&mut out, ws::Opcode::Text, text.as_bytes());
        append_masked(&mut out, ws::Opcode::Ping, b"still there");
    }
    out
}

/// Appends a frame of a client.
fn append_masked(out: &mut Vec<u8>, opcode: ws::Opcode, payload: &[u8]) {
    const MASK: [u8; 4] = [1, 2, 3, 4];
    let (mut header, len) = ws::frame_header(opcode, payload.len());
    header[1] |= 0x80;
    out.extend([&header[..len], &MASK].concat());
    let start = out.len();
    out.extend(payload);
    ws::mask(&mut out[start..], MASK);
}

fn answer_message(text: &str, out: &mut Vec<u8>) {
    let counts = SwarmCounts::default();
    match read(text) {
        Ok(Message::Announce(announce)) => {
            ws::text_with(out, |out| announce_reply(out, &announce.info_hash, &counts, 120, None));
            let relay = Relay::new(&announce.info_hash, &announce.peer_id);
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
            ws::text_with(out, |out| scrape_reply(out, hashes, &[counts; 2]));
        }
        Err(bad) => ws::text_with(out, |out| {
            webtorrent::failure(out, bad.refusal, bad.action, bad.info_hash.as_ref());
        }),
    }
}

#[test]
fn webtorrent_messages_do_not_allocate() {
    let frames = frames();
    let mut input = frames.clone();
    let parts = [
        ("\"interval\":120", 1),
        ("\"offer\":{", 10),
        ("\"answer\":{", 1),
        ("bbbb\":{", 1),
        ("\"failure reason\":", 1),
        ("still there", 4),
    ];
    replies_without_allocation(&parts, |out| {
        // The reader unmasks in place.
        input.copy_from_slice(&frames);
        let (mut reader, mut rest) = (ws::Reader::for_client_frames(), &mut input[..]);
        while !rest.is_empty() {
            let read = reader.read(rest, limits::WS_MESSAGE_MAX);
            let consumed = read.consumed;
            match read.event {
                ws::Event::Text(text) => answer_message(&text, out),
                ws::Event::Ping(payload) => ws::pong(out, payload),
                other => panic!("{other:?}"),
            }
            rest = &mut rest[consumed..];
        }
    });
}
