//! No request of any protocol makes a codec allocate, if the buffers have held as much before. Allocations are
//! counted for each thread.

use allocation_counter::measure;
use types::{
    FamilyCounts, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Refusal, SwarmCounts, limits,
};
use wire::http::{
    AnnounceReply, ForwardedHeader, Method, ParsedRequest, PeerFormat, ResponseFraming,
    ScrapeQuery, ScrapedHash, Target, announce_query, read_head, request_error, scrape,
};
use wire::udp::{self, Request, UnverifiedRequest};
use wire::webtorrent::{Message, Relay, announce_reply, read, scrape_reply};
use wire::{http, webtorrent, ws};

/// Calls `answer_all` with a buffer for its replies, and again with the same one: the second call must allocate
/// nothing. Returns the replies.
fn replies_without_allocation(mut answer_all: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let cold = measure(|| answer_all(&mut out));
    assert!(cold.count_total > 0, "allocations are not counted");
    let first = out.clone();
    out.clear();
    let warm = measure(|| answer_all(&mut out));
    assert_eq!(warm.count_total, 0);
    assert_eq!(out, first);
    first
}

fn assert_contains(replies: &[u8], parts: &[&str]) {
    let text = String::from_utf8_lossy(replies);
    for part in parts {
        assert!(text.contains(part), "{part}");
    }
}

/// Every kind of UDP request with transaction id 9, valid and invalid, and the length of its reply.
fn udp_requests() -> [(Vec<u8>, usize); 6] {
    let request = |action: u8, body: &[u8]| {
        [&[1; 8], [0, 0, 0, action].as_slice(), &[0, 0, 0, 9], body].concat()
    };
    let announce = [7; 82];
    // Two options, whose data must be joined, and one that is cut short.
    let url = [[2, 200].as_slice(), &[b'x'; 200]].concat();
    [
        ([udp::MAGIC.to_be_bytes().as_slice(), &[0, 0, 0, 0, 0, 0, 0, 9]].concat(), 16),
        // 242 peers, 122 torrents: full datagrams.
        (request(1, &[announce.as_slice(), &url, &url].concat()), 1472),
        (request(1, &[announce.as_slice(), &[2, 255]].concat()), 1472),
        (request(2, &[7; 20 * limits::SCRAPE_HASHES_UDP_MAX]), 1472),
        (request(2, b""), 8 + Refusal::FullScrape.text().len()),
        (request(7, b""), 8 + Refusal::UnknownAction.text().len()),
    ]
}

/// Decodes a request and writes its longest reply. Returns the reply's length.
fn answer_udp(datagram: &[u8], slot: &mut [u8]) -> usize {
    match udp::decode(datagram) {
        Err(_) => 0,
        Ok(Request::Connect { transaction_id }) => udp::connect_reply(slot, transaction_id, 1),
        Ok(Request::Connected { transaction_id, request, .. }) => match request {
            UnverifiedRequest::Announce { options, .. } => {
                let mut room = [0; limits::URL_DATA_MAX];
                let leechers = u32::from(options.is_malformed());
                let seeders = options.url_data(&mut room).len() as u32;
                let head = udp::AnnounceHead { transaction_id, interval_s: 1, leechers, seeders };
                let len = udp::announce_reply(slot, &head);
                udp::append_peers_v6(slot, len, &[PackedV6([6; 20]); 200]);
                udp::append_peers_v4(slot, len, &[PackedV4([4; 8]); 300])
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
    }
}

#[test]
fn udp_requests_do_not_allocate() {
    let (requests, mut slot) = (udp_requests(), [0; limits::UDP_PAYLOAD_V4_MAX]);
    replies_without_allocation(|out| {
        for (request, expected) in &requests {
            let mut len = 0;
            // Every length: truncated requests take other branches.
            for cut in 0..=request.len() {
                len = answer_udp(&request[..cut], &mut slot);
            }
            assert_eq!(len, *expected);
            out.extend(&slot[..len]);
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
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
        std::hint::black_box(request.forwarded_addresses(header).count());
    }
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
    let replies = replies_without_allocation(|out| {
        for request in [ANNOUNCE, SCRAPE] {
            for cut in 0..=request.len() {
                answer_http(&request.as_bytes()[..cut], &mut body, out);
            }
        }
        for request in [
            &b"GET /announce?port=1 HTTP/1.1\r\n\r\n"[..],
            b"GET /scrape HTTP/1.0\r\n\r\n",
            b"GET /nothing HTTP/1.1\r\n\r\n",
            b"POST /announce HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
        ] {
            answer_http(request, &mut body, out);
        }
    });
    let full_scrape = Refusal::FullScrape.text();
    assert_contains(&replies, &["6:peers63600:", "7:peer id20:", "5:filesd20:AAAA", full_scrape]);
    assert_contains(&replies, &["404 Not", "405 Meth", "400 Bad"]);
}

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
        append_masked(&mut out, ws::Opcode::Text, text.as_bytes());
        append_masked(&mut out, ws::Opcode::Ping, b"still there");
    }
    assert!(out.len() > 13_000, "{}", out.len());
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
    match read(text) {
        Ok(Message::Announce(announce)) => {
            ws::text_with(out, |out| announce_reply(out, &announce.info_hash, &COUNTS, 120, None));
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
            ws::text_with(out, |out| scrape_reply(out, hashes, &[COUNTS; 2]));
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
    let replies = replies_without_allocation(|out| {
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
    // The reply, ten offers and an answer, the scrape's two torrents, the refusal, the pings.
    let text = String::from_utf8_lossy(&replies);
    for (part, count) in [
        ("\"interval\":120", 1),
        ("\"offer\":{", 10),
        ("\"answer\":{", 1),
        ("bbbb\":{", 1),
        ("\"failure reason\":", 1),
        ("still there", 4),
    ] {
        assert_eq!(text.matches(part).count(), count, "{part}");
    }
}
