//! Requests against the tracker's decoder, and replies against its encoders.

use types::{PackedV4, PeerId};
use wire::udp::{
    AnnounceHead, Request, UnverifiedRequest, announce_reply, append_peers_v4, connect_reply,
    decode, error_reply,
};

use super::*;

#[test]
fn announces_round_trip() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..5_000 {
        let amount = |random: &mut fastrand::Rng| random.u64(..) >> random.u32(..64);
        let announce = Announce {
            info_hash: InfoHash([random.u8(..); 20]),
            peer_id: PeerId([random.u8(..); 20]),
            port: random.u16(..),
            event: [Event::None, Event::Completed, Event::Started, Event::Stopped]
                [random.usize(..4)],
            // All ones means "unknown".
            left: Some(amount(&mut random)).filter(|left| *left != u64::MAX),
            uploaded: amount(&mut random),
            downloaded: amount(&mut random),
            want: match random.bool() {
                true => NumWant::Default,
                false => NumWant::Peers(random.u16(..)),
            },
        };
        let url: Vec<u8> = (0..random.usize(..700)).map(|at| at as u8).collect();
        let (id, number, key) = (random.u64(..), random.u32(..), random.u32(..));
        let request = AnnounceRequest {
            connection_id: id,
            transaction_id: number,
            announce: &announce,
            key,
            url: &url,
        };
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        assert_eq!(bytes[84..92], u64::from(key).to_be_bytes(), "no address, and the key");
        let Ok(Request::Connected {
            connection_id,
            transaction_id,
            request: UnverifiedRequest::Announce { announce: decoded, options },
        }) = decode(&bytes)
        else {
            panic!("{}", bytes.escape_ascii())
        };
        assert_eq!((connection_id, transaction_id, decoded), (id, number, announce));
        assert_eq!(options.url_data(&mut [0; 1000]), url);
    }
}

#[test]
fn connects_and_scrapes_round_trip() {
    let mut bytes = Vec::new();
    connect(&mut bytes, 9);
    assert_eq!(decode(&bytes), Ok(Request::Connect { transaction_id: 9 }));
    let hashes = [InfoHash([1; 20]), InfoHash([2; 20])];
    let mut bytes = Vec::new();
    scrape(&mut bytes, 7, 9, &hashes);
    let Ok(Request::Connected {
        connection_id: 7,
        transaction_id: 9,
        request: UnverifiedRequest::Scrape(named),
    }) = decode(&bytes)
    else {
        panic!("{}", bytes.escape_ascii())
    };
    assert!(named.iter().eq(hashes));
}

#[test]
fn truncated_replies_decode_to_none_or_less() {
    let mut slot = [0xaa; 64];
    let connected = connect_reply(&mut slot, 9, 7);
    let reply = Reply::Connect { connection_id: 7 };
    assert_eq!(decode_reply(&slot[..connected]), Some((9, reply)));
    for len in 0..connected {
        assert_eq!(decode_reply(&slot[..len]), None, "connect, {len}");
    }
    let head = AnnounceHead { transaction_id: 9, interval_s: 1800, leechers: 3, seeders: 4 };
    let announced = announce_reply(&mut slot, &head);
    let len = append_peers_v4(&mut slot, announced, &[PackedV4([5; 8])]);
    let reply = Reply::Announce { interval_s: 1800, leechers: 3, seeders: 4, peers: &[5; 6] };
    assert_eq!(decode_reply(&slot[..len]), Some((9, reply)));
    for len in 0..announced {
        assert_eq!(decode_reply(&slot[..len]), None, "announce, {len}");
    }
    let refused = error_reply(&mut slot, 9, "no");
    for len in 0..=refused {
        let text = slot[..len].get(8..).map(|text| (9, Reply::Error(text)));
        assert_eq!(decode_reply(&slot[..len]), text, "error, {len}");
    }
    slot[3] = action::SCRAPE as u8;
    assert_eq!(decode_reply(&slot[..20]), Some((9, Reply::Scrape(&slot[8..20]))));
    slot[3] = 4;
    assert_eq!(decode_reply(&slot), None, "no such action");
}
