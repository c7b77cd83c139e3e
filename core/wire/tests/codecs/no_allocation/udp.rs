//! The UDP codec does not allocate, and the bencode encoder only grows its buffer.

use types::{Announce, Event, InfoHash, NumWant, PackedV4, PackedV6, PeerId, SwarmCounts, limits};
use wire::bencode::Encoder;
use wire::udp::{self, Request, UnverifiedRequest, client};

const ANNOUNCE: Announce = Announce {
    info_hash: InfoHash([1; 20]),
    peer_id: PeerId([2; 20]),
    port: 6881,
    event: Event::None,
    left: Some(1),
    uploaded: 2,
    downloaded: 3,
    want: NumWant::Peers(50),
};

/// Every kind of request, valid and invalid.
fn requests() -> Vec<Vec<u8>> {
    let mut requests = vec![Vec::new(); 6];
    let [connect, announce, scrape, bare, unknown, odd] = requests.as_mut_slice() else {
        panic!("six")
    };
    client::connect(connect, 9);
    // Longer than an option can be, so that its parts must be joined.
    client::announce(announce, 1, 9, &ANNOUNCE, &[b'x'; 400]);
    client::scrape(scrape, 1, 9, &[InfoHash([7; 20]); limits::SCRAPE_HASHES_UDP_MAX]);
    client::scrape(bare, 1, 9, &[]);
    unknown.extend([7; 16]);
    client::announce(odd, 1, 9, &ANNOUNCE, b"");
    odd.extend([2, 255]);
    requests
}

/// Decodes a request and writes its longest answer. Returns the answer's length.
fn answer(datagram: &[u8], slot: &mut [u8]) -> usize {
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

/// Encodes an answer like that to an HTTP announce.
fn encode(out: &mut Vec<u8>) {
    let mut encoder = Encoder::new(out);
    encoder.dict();
    encoder.bytes(b"interval");
    encoder.int(u64::MAX);
    encoder.bytes(b"peers");
    encoder.bytes(&[b'p'; 300]);
    encoder.end();
}

#[test]
fn requests_do_not_allocate() {
    let canary = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(canary.count_total, 1, "allocations are not counted");
    let (requests, mut slot) = (requests(), [0; limits::UDP_PAYLOAD_V4_MAX]);
    let mut answered = [0; 6];
    let mut body = Vec::with_capacity(512);
    let info = allocation_counter::measure(|| {
        for (request, len) in requests.iter().zip(&mut answered) {
            // Every length: truncated requests take other branches.
            for cut in 0..=request.len() {
                *len = answer(&request[..cut], &mut slot);
            }
        }
        encode(&mut body);
    });
    assert_eq!(info.count_total, 0);
    // 242 peers, 122 torrents: full datagrams.
    assert_eq!((answered[0], answered[1], answered[2]), (16, 1472, 1472));
    assert!(answered[3] > 8 && answered[4] > 8 && answered[5] == 1472);
    assert!(body.ends_with(b"pe"));
}
