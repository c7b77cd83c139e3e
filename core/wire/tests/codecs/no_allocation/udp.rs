//! The UDP codec does not allocate.

use types::{InfoHash, PackedV4, PackedV6, SwarmCounts, limits};
use wire::udp::{self, Request, UnverifiedRequest};

/// A request with transaction id 9.
fn request(action: u8, body: &[u8]) -> Vec<u8> {
    [&[1; 8], [0, 0, 0, action].as_slice(), &[0, 0, 0, 9], body].concat()
}

/// Every kind of request, valid and invalid.
fn requests() -> [Vec<u8>; 6] {
    let announce = [7; 82];
    // Two options, whose data must be joined, and one that is cut short.
    let url = [[2, 200].as_slice(), &[b'x'; 200]].concat();
    [
        [udp::MAGIC.to_be_bytes().as_slice(), &[0, 0, 0, 0, 0, 0, 0, 9]].concat(),
        request(1, &[announce.as_slice(), &url, &url].concat()),
        request(2, &[7; 20 * limits::SCRAPE_HASHES_UDP_MAX]),
        request(2, b""),
        request(7, b""),
        request(1, &[announce.as_slice(), &[2, 255]].concat()),
    ]
}

/// Decodes a request and writes its longest reply. Returns the reply's length.
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

#[test]
fn requests_do_not_allocate() {
    let canary = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(canary.count_total, 1, "allocations are not counted");
    let (requests, mut slot) = (requests(), [0; limits::UDP_PAYLOAD_V4_MAX]);
    let mut answered = [0; 6];
    let info = allocation_counter::measure(|| {
        for (request, len) in requests.iter().zip(&mut answered) {
            // Every length: truncated requests take other branches.
            for cut in 0..=request.len() {
                *len = answer(&request[..cut], &mut slot);
            }
        }
    });
    assert_eq!(info.count_total, 0);
    // 242 peers, 122 torrents: full datagrams.
    assert_eq!((answered[0], answered[1], answered[2]), (16, 1472, 1472));
    assert!(answered[3] > 8 && answered[4] > 8 && answered[5] == 1472);
}
