//! Parsing an HTTP request does not allocate, and neither does a response in buffers that have held one
//! of its length.

use types::{PackedV4, PackedV6, PeerId, PeerKey, Refusal, SwarmCounts, limits};
use wire::http::{
    AnnounceReply, ForwardedHeader, Method, ParsedRequest, PeerFormat, RequestError,
    ResponseFraming, ScrapeQuery, ScrapedHash, Target, announce_query, failure, read_head,
    request_error, scrape,
};

const ANNOUNCE: &str = "GET /announce?info_hash=%00%01%02%03%04%05%06%07%08%09%0a%0B%0c%0d%0e%0f%10%11%12a\
     &peer_id=-qB4600-abcdefghijkl&port=6881&uploaded=1&downloaded=2&left=3&key=%08%8F%8E\
     &event=started&numwant=200&compact=1&no_peer_id=1 HTTP/1.1\r\n\
     Host: tracker.example:6969\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n\r\n";
const SCRAPE: &str = "GET /scrape?info_hash=aaaaaaaaaaaaaaaaaaaa&info_hash=%41AAAAAAAAAAAAAAAAAAA HTTP/1.1\r\n\
     Host: tracker.example\r\n\r\n";
const RESPONSE: ResponseFraming = ResponseFraming { method: Method::Get, keep_alive: true };

/// The buffers that a worker reuses for every request.
#[derive(Default)]
struct Buffers {
    body: Vec<u8>,
    out: Vec<u8>,
}

impl Buffers {
    /// Answers the request at the start of `input`, if it is complete.
    fn answer(&mut self, input: &[u8]) {
        let request = match read_head(input) {
            ParsedRequest::Complete(request) => request,
            ParsedRequest::Partial => return,
            ParsedRequest::Invalid(found) => return request_error(&mut self.out, found),
        };
        for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
            std::hint::black_box(request.forwarded_addresses(header).count());
        }
        self.body.clear();
        match request.target {
            Target::Announce(query) => match announce_query(query) {
                Ok(_) => return self.announced(),
                Err(refusal) => failure(&mut self.body, refusal),
            },
            Target::Scrape(query) => {
                let mut room = [ScrapedHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
                match ScrapeQuery::new(query).read_into(&mut room) {
                    Ok(hashes) => scrape(&mut self.body, hashes, &[SwarmCounts::default(); 2]),
                    Err(refusal) => failure(&mut self.body, refusal),
                }
            }
            Target::Unknown => return RESPONSE.not_found(&mut self.out),
        }
        RESPONSE.ok(&mut self.out, &self.body);
    }

    /// Writes one response in each peer format, as long as possible.
    fn announced(&mut self) {
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
            self.body.clear();
            reply.begin(&mut self.body);
            reply.peers_v4(&mut self.body, &[PackedV4([4; 8]); 300]);
            reply.begin_peers6(&mut self.body);
            if peer_format == PeerFormat::Compact {
                reply.peers_v6(&mut self.body, &[PackedV6([6; 20]); 200]);
            } else {
                (0..200).for_each(|_| reply.peer_with_id(&mut self.body, with_id, PeerId([7; 20])));
            }
            reply.finish(&mut self.body);
            RESPONSE.ok(&mut self.out, &self.body);
        }
    }

    /// Answers complete requests, requests truncated anywhere, and invalid ones.
    fn answer_all(&mut self) {
        for request in [ANNOUNCE, SCRAPE] {
            for cut in 0..=request.len() {
                self.answer(&request.as_bytes()[..cut]);
            }
        }
        self.answer(b"GET /announce?port=1 HTTP/1.1\r\n\r\n");
        self.answer(b"GET /scrape HTTP/1.0\r\n\r\n");
        self.answer(b"GET /nothing HTTP/1.1\r\n\r\n");
        self.answer(b"POST /announce HTTP/1.1\r\n\r\n");
        self.answer(b"\x16\x03\x01\x02\x00");
    }
}

#[test]
fn http_requests_do_not_allocate() {
    let mut buffers = Buffers::default();
    let cold = allocation_counter::measure(|| buffers.answer_all());
    assert!(cold.count_total > 0, "allocations are not counted");
    let first = std::mem::take(&mut buffers.out);
    buffers.out = Vec::with_capacity(first.len());
    let warm = allocation_counter::measure(|| buffers.answer_all());
    assert_eq!(warm.count_total, 0);
    assert_eq!(buffers.out, first);
    let text = String::from_utf8_lossy(&first);
    for part in
        ["6:peers63600:", "7:peer id20:", "5:filesd20:AAAA", "404 Not", "405 Meth", "400 Bad"]
    {
        assert!(text.contains(part), "{part}");
    }
    assert!(text.contains(Refusal::FullScrape.text()));
    let mut long = Vec::new();
    request_error(&mut long, RequestError::UriTooLong);
    assert!(long.starts_with(b"HTTP/1.1 414 "));
}
