//! Requests and replies byte by byte, and against naive loops. Round trips with the encoders of requests are in
//! `tools/client`.

use types::{
    Announce, Event, FamilyCounts, InfoHash, NumWant, PackedV4, PackedV6, PeerId, Refusal,
    SwarmCounts, limits,
};

use super::*;

const ANNOUNCE: Announce = Announce {
    info_hash: InfoHash([1; 20]),
    peer_id: PeerId([2; 20]),
    port: 0x1234,
    event: Event::Started,
    left: Some(5),
    uploaded: 6,
    downloaded: 7,
    want: NumWant::Peers(50),
};

/// The bytes of [`ANNOUNCE`] with connection id 0x0102030405060708 and transaction id 9, and `options`.
fn announce_bytes(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 9];
    bytes.extend([1; 20]);
    bytes.extend([2; 20]);
    [7_u64, 5, 6].iter().for_each(|amount| bytes.extend(amount.to_be_bytes()));
    bytes.extend([0, 0, 0, 2]);
    bytes.extend([203, 0, 113, 9]);
    bytes.extend(*b"key!");
    bytes.extend([0, 0, 0, 50, 0x12, 0x34]);
    bytes.extend(options);
    bytes
}

fn scrape_bytes(hashes: &[InfoHash]) -> Vec<u8> {
    let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2, 0, 0, 0, 9];
    hashes.iter().for_each(|hash| bytes.extend(hash.0));
    bytes
}

fn read(datagram: &[u8]) -> (Announce, Options<'_>) {
    match decode(datagram) {
        Ok(Request::Connected {
            request: UnverifiedRequest::Announce { announce, options },
            ..
        }) => (announce, options),
        other => panic!("{other:?}"),
    }
}

//= bep15#packet-minimum
//= bep15#connect-request
//= type=test
#[test]
fn connect_needs_protocol_id_and_ignores_extra_bytes() {
    let mut bytes = vec![0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3];
    for len in 0..16 {
        assert_eq!(decode(&bytes[..len]), Err(DecodeError::TooShort));
    }
    for len in 16..=19 {
        assert_eq!(decode(&bytes[..len]), Ok(Request::Connect { transaction_id: 9 }));
    }
    bytes[7] ^= 1;
    assert_eq!(decode(&bytes), Err(DecodeError::WrongMagic));
}

//= bep15#announce-request
//= type=test
#[test]
fn decodes_announce_fields() {
    let bytes = announce_bytes(b"");
    assert_eq!(bytes.len(), 98);
    assert_eq!(read(&bytes).0, ANNOUNCE);
    for len in 16..98 {
        let cut = decode(&bytes[..len]);
        let request = UnverifiedRequest::Malformed(Refusal::Truncated);
        let (connection_id, transaction_id) = (0x0102_0304_0506_0708, 9);
        assert_eq!(cut, Ok(Request::Connected { connection_id, transaction_id, request }), "{len}");
    }
}

//= bep15#announce-event
//= type=test
#[test]
fn unknown_event_and_left_decode_to_none() {
    let mut bytes = announce_bytes(b"");
    let events = [Event::None, Event::Completed, Event::Started, Event::Stopped, Event::None];
    for (number, event) in (0..).zip(events) {
        bytes[83] = number;
        assert_eq!(read(&bytes).0.event, event);
    }
    bytes[80] = 0xff;
    assert_eq!(read(&bytes).0.event, Event::None);
    bytes[64..72].fill(0xff);
    assert_eq!(read(&bytes).0.left, None);
    bytes[64..72].fill(0);
    assert_eq!(read(&bytes).0.left, Some(0));
}

//= bep15#announce-num-want
//= type=test
#[test]
fn reads_num_want() {
    let mut bytes = announce_bytes(b"");
    for (sent, want) in [
        (-1, NumWant::Default),
        (i32::MIN, NumWant::Default),
        (0, NumWant::Peers(0)),
        (200, NumWant::Peers(200)),
        (i32::MAX, NumWant::Peers(u16::MAX)),
    ] {
        bytes[92..96].copy_from_slice(&sent.to_be_bytes());
        assert_eq!(read(&bytes).0.want, want);
    }
}

//= bep15#connect-reply
//= bep15#error-reply
//= type=test
#[test]
fn writes_connect_and_error_replies() {
    let mut slot = [0xaa; 64];
    assert_eq!(connect_reply(&mut slot, 9, 0x0102_0304_0506_0708), 16);
    assert_eq!(slot[..16], [0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
    let len = error_reply(&mut slot, 9, "no");
    assert_eq!(slot[..len], [0, 0, 0, 3, 0, 0, 0, 9, b'n', b'o']);
    for buffer in 0..20 {
        let len = error_reply(&mut slot[..buffer], 9, "a longer text");
        assert!(len <= buffer && (len == 0) == (buffer < 8));
        assert_eq!(connect_reply(&mut slot[..buffer], 9, 1), if buffer < 16 { 0 } else { 16 });
    }
}

const HEAD: AnnounceHead =
    AnnounceHead { transaction_id: 9, interval_s: 1800, leechers: 3, seeders: 4 };

//= bep15#announce-reply
//= bep15#announce-reply-v4
//= bep15#announce-reply-v6
//= type=test
#[test]
fn packs_peers_like_a_naive_loop() {
    let v4: Vec<PackedV4> =
        (0..40).map(|n| PackedV4([n, n ^ 0x55, 3, 4, 5, n, 0xee, 0xee])).collect();
    let v6: Vec<PackedV6> = (0..40).map(|n| PackedV6([n; 20])).collect();
    for count in 0..40 {
        for buffer in (0..300).chain([500, 800]) {
            let (mut fast, mut slow) = (vec![0xaa; 800], vec![0xaa; 800]);
            let head = announce_reply(&mut fast[..buffer], &HEAD);
            assert_eq!(head, if buffer < 20 { 0 } else { 20 });
            if head == 0 {
                assert_eq!(fast, slow, "nothing is written that does not fit");
                continue;
            }
            slow[..20].copy_from_slice(&fast[..20]);
            let len = append_peers_v4(&mut fast[..buffer], head, &v4[..count]);
            let fits = count.min((buffer - 20) / 6);
            for (at, peer) in v4[..fits].iter().enumerate() {
                slow[20 + at * 6..26 + at * 6].copy_from_slice(&peer.wire());
            }
            assert_eq!((len, &fast), (20 + fits * 6, &slow));

            let mut fast = vec![0xaa; 800];
            let head = announce_reply(&mut fast[..buffer], &HEAD);
            let len = append_peers_v6(&mut fast[..buffer], head, &v6[..count]);
            let fits = count.min((buffer - 20) / 18);
            let naive: Vec<u8> = v6[..fits].iter().flat_map(PackedV6::wire).collect();
            assert_eq!((len, &fast[20..len]), (20 + fits * 18, &naive[..]));
            assert!(fast[len..].iter().all(|byte| *byte == 0xaa));
        }
    }
    let mut slot = [0; 20];
    announce_reply(&mut slot, &HEAD);
    assert_eq!(slot, [0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 7, 8, 0, 0, 0, 3, 0, 0, 0, 4]);
}

//= bep15#scrape-request
//= bep15#scrape-count
//= type=test
#[test]
fn scrape_keeps_order_and_truncates_at_the_limit() {
    let hashes: Vec<InfoHash> = (0..200).map(|n| InfoHash([n; 20])).collect();
    for count in [1, 2, 74, limits::SCRAPE_HASHES_UDP_MAX, 200] {
        let bytes = scrape_bytes(&hashes[..count]);
        let Ok(Request::Connected { request: UnverifiedRequest::Scrape(named), .. }) =
            decode(&bytes)
        else {
            panic!("a scrape of {count}")
        };
        let served = count.min(limits::SCRAPE_HASHES_UDP_MAX);
        assert!(named.iter().eq(hashes[..served].iter().copied()));
        let mut buffer = [InfoHash::default(); limits::SCRAPE_HASHES_UDP_MAX];
        assert_eq!(named.copy_to(&mut buffer), &hashes[..served]);
    }
    for (len, refusal) in [(0, Refusal::FullScrape), (19, Refusal::Truncated)] {
        let bytes = [scrape_bytes(&[]), vec![7; len]].concat();
        let Ok(Request::Connected { request, .. }) = decode(&bytes) else { panic!("{len}") };
        assert_eq!(request, UnverifiedRequest::Malformed(refusal));
    }
}

//= bep15#scrape-reply
//= type=test
#[test]
fn scrape_reply_has_seeders_first() {
    let counts = SwarmCounts {
        v4: FamilyCounts { seeders: 1, leechers: 2 },
        v6: FamilyCounts { seeders: 10, leechers: 20 },
        web: FamilyCounts::default(),
        partial_seeds: 0,
        downloads: 7,
    };
    let mut slot = [0; 40];
    let len = scrape_reply(&mut slot, 9, &[counts, SwarmCounts::default()]);
    assert_eq!(slot[..8], [0, 0, 0, 2, 0, 0, 0, 9]);
    assert_eq!(slot[8..20], [0, 0, 0, 11, 0, 0, 0, 7, 0, 0, 0, 22]);
    assert_eq!((len, &slot[20..32]), (32, [0; 12].as_slice()));
    assert_eq!(scrape_reply(&mut slot[..31], 9, &[counts; 3]), 20);
    assert_eq!(scrape_reply(&mut slot[..7], 9, &[counts]), 0);
}

//= bep41#end-of-options
//= bep41#nop
//= bep41#unknown-option
//= bep41#option-length
//= type=test
#[test]
fn finds_the_url_among_options() {
    for (tail, url, malformed) in [
        (&[][..], None, false),
        (&[1, 1, 2, 1, b'/', 0, 2, 9], Some(&b"/"[..]), false),
        (&[7, 2, b'a', b'b', 2, 0], Some(b""), false),
        (&[7, 0, 0], None, false),
        (&[2], None, true),
        (&[2, 2, b'x'], None, true),
        (&[2, 1, b'x', 3, 5, b'y'], Some(b"x"), true),
    ] {
        let bytes = announce_bytes(tail);
        let (announce, options) = read(&bytes);
        assert_eq!(announce, ANNOUNCE);
        assert_eq!(
            (options.single_url_data(), options.is_malformed()),
            (url, malformed),
            "{tail:?}"
        );
        assert_eq!(options.is_empty(), tail.is_empty());
    }
}

//= bep41#url-data-concatenated
//= type=test
#[test]
fn joins_url_data_options() {
    let url: Vec<u8> = (0..600).map(|n| b'a' + (n % 26) as u8).collect();
    let option = |piece: &[u8]| [&[2, piece.len() as u8], piece].concat();
    let several = announce_bytes(&url.chunks(255).flat_map(option).collect::<Vec<u8>>());
    let one = announce_bytes(&option(b"/announce?passkey=x"));
    let none = announce_bytes(b"");
    let mut buffer = [0; limits::URL_DATA_MAX];
    assert_eq!(read(&several).1.url_data(&mut buffer), url);
    assert_eq!(read(&several).1.url_data(&mut buffer[..300]), &url[..300]);
    assert_eq!(read(&several).1.single_url_data(), None);
    assert_eq!(read(&one).1.url_data(&mut buffer), b"/announce?passkey=x");
    assert_eq!(read(&one).1.single_url_data(), Some(b"/announce?passkey=x".as_slice()));
    assert!(read(&none).1.url_data(&mut buffer).is_empty());
    assert_eq!(read(&none).1.single_url_data(), None);
}
