//! Request heads, queries and responses.

use std::net::IpAddr;

use types::{
    Event, FamilyCounts, InfoHash, Notice, NumWant, PackedV4, PackedV6, PeerId, PeerKey, Refusal,
    Retry, SwarmCounts, limits,
};

use super::*;

const ANNOUNCE: &str = "GET /announce?info_hash=%00%01%02%03%04%05%06%07%08%09%0a%0B%0c%0d%0e%0f%10%11%12a\
     &peer_id=-qB4600-abcdefghijkl&port=6881&uploaded=1&downloaded=2&left=3&corrupt=0&key=%08%8F%8E\
     &event=started&numwant=200&compact=1&no_peer_id=1&supportcrypto=1&redundant=0 HTTP/1.1\r\n\
     Host: tracker.example:6969\r\nUser-Agent: qBittorrent/4.6.0\r\nAccept-Encoding: gzip\r\n\r\n";

fn complete(input: &[u8]) -> RequestHead<'_> {
    match read_head(input) {
        ParsedRequest::Complete(request) => request,
        other => panic!("{other:?}"),
    }
}

fn request(lines: &str) -> String {
    format!("{}\r\n\r\n", lines.replace('\n', "\r\n"))
}

fn query_of(parameters: &str) -> Result<AnnounceQuery, Refusal> {
    announce_query(parameters.as_bytes())
}

fn valid_and(more: &str) -> AnnounceQuery {
    query_of(&format!("info_hash={0}&peer_id={0}&port=1{more}", "x".repeat(20))).unwrap()
}

//= bep3#announce-request
//= bep3#percent-encoding
//= type=test
#[test]
fn reads_a_real_announce() {
    let request = complete(ANNOUNCE.as_bytes());
    assert_eq!((request.method, request.keep_alive), (Method::Get, true));
    assert_eq!(request.consumed, ANNOUNCE.len());
    let Target::Announce(query) = request.target else { panic!("{:?}", request.target) };
    let query = announce_query(query).unwrap();
    let mut hash: [u8; 20] = std::array::from_fn(|at| at as u8);
    hash[19] = b'a';
    assert_eq!(query.announce.info_hash, InfoHash(hash));
    assert_eq!(query.announce.peer_id, PeerId(*b"-qB4600-abcdefghijkl"));
    assert_eq!((query.announce.port, query.announce.left), (6881, Some(3)));
    assert_eq!((query.announce.uploaded, query.announce.downloaded), (1, 2));
    assert_eq!((query.announce.event, query.announce.want), (Event::Started, NumWant::Peers(200)));
    assert!(query.compact && query.no_peer_id);
}

#[test]
fn every_prefix_of_a_request_is_partial() {
    for len in 0..ANNOUNCE.len() {
        assert_eq!(read_head(&ANNOUNCE.as_bytes()[..len]), ParsedRequest::Partial, "{len}");
    }
}

/// `edge/front/tests/sockets/http/browsers.rs` has the headers of browsers and clients.
#[test]
fn browsers_are_known_by_single_headers() {
    let is_browser = |header: &str| {
        complete(request(&format!("GET / HTTP/1.1\n{header}")).as_bytes()).is_browser
    };
    for (header, expected) in [
        ("oRiGiN: x", true),
        ("Referer:", true),
        ("User-Agent: \tMozilla/", true),
        ("sec-fetch-site: none", true),
        ("Sec-Fetch-Dest: image", true),
        ("Host: x\nReferer: x\nHost: y", true),
        ("User-Agent: app/1.0\nUser-Agent: Mozilla/5.0", true),
        ("Origi: x\nRefer: x\nX-Origin: x\nOrigins: x\nReferrer: x", false),
        ("User-Agent: mozilla/5.0", false),
        ("User-Agent: Mozilla", false),
        ("User-Agenx: Mozilla/5.0", false),
        ("User-Agent: BitTorrent (not Mozilla/5.0)", false),
        ("User-Agent: node\nAccept-Language: *\nSec-Fetch-Mode: cors", false),
        ("Sec-Fetch-User: ?1\nAccept: text/html", false),
    ] {
        assert_eq!(is_browser(header), expected, "{header}");
    }
    assert!(!complete(ANNOUNCE.as_bytes()).is_browser);
}

#[test]
fn keep_alive_depends_on_version_and_header() {
    let keeps = |lines: &str| complete(request(lines).as_bytes()).keep_alive;
    assert!(keeps("GET / HTTP/1.1"));
    assert!(!keeps("GET / HTTP/1.0"));
    assert!(keeps("GET / HTTP/1.0\nConnection: Keep-Alive"));
    assert!(!keeps("GET / HTTP/1.1\nCONNECTION: foo, Close"));
    assert!(!keeps("GET / HTTP/1.1\nConnection: keep-alive, close"));
}

#[test]
fn rejects_invalid_requests_by_kind() {
    let headers = "\na: b".repeat(limits::HTTP_HEADERS_MAX + 1);
    let long = format!("GET /{}", "a".repeat(limits::HTTP_HEAD_MAX));
    for (text, expected) in [
        (&*request("POST /announce HTTP/1.1"), RequestError::MethodNotAllowed),
        ("\x16\x03\x01\x02", RequestError::Tls),
        ("\x16\x02", RequestError::BadRequest),
        (&request("GET / HTTP/1.1\nContent-Length: 5"), RequestError::BadRequest),
        (&request("GET / HTTP/1.1\nTransfer-Encoding: chunked"), RequestError::BadRequest),
        (&request(&format!("GET / HTTP/1.1{headers}")), RequestError::HeadersTooLarge),
        (&format!("GET / HTTP/1.1\r\na: {long}"), RequestError::HeadersTooLarge),
        (&long, RequestError::UriTooLong),
        // Complete, but over the limit.
        (&request(&format!("{long} HTTP/1.1")), RequestError::UriTooLong),
    ] {
        assert_eq!(read_head(text.as_bytes()), ParsedRequest::Invalid(expected), "{text}");
    }
}

//= bep3#announce-left
//= bep3#announce-event
//= bep21#event-paused
//= bep23#compact-advisory
//= type=test
#[test]
fn reads_parameters_leniently_where_clients_differ() {
    let left = |more: &str| valid_and(more).announce.left;
    assert_eq!((left(""), left("&left="), left("&left=0")), (None, None, Some(0)));
    assert_eq!(left("&left=18446744073709551615"), Some(u64::MAX));
    assert_eq!(left("&left=99999999999999999999999"), Some(u64::MAX));
    assert_eq!(left("&left=-1"), Some(u64::MAX));
    let event = |more: &str| valid_and(more).announce.event;
    assert_eq!(event("&event="), Event::None);
    assert_eq!(event("&event=empty"), Event::None);
    assert_eq!(event("&event=paused"), Event::Paused);
    assert_eq!(event("&event=stopped&event=started"), Event::Stopped);
    let want = |more: &str| valid_and(more).announce.want;
    assert_eq!((want(""), want("&numwant=-1")), (NumWant::Default, NumWant::Default));
    assert_eq!((want("&numwant=x"), want("&numwant=0")), (NumWant::Default, NumWant::Peers(0)));
    assert_eq!(want("&numwant=99999"), NumWant::Peers(u16::MAX));
    assert_eq!(valid_and("&uploaded=x").announce.uploaded, 0);
    assert!(!valid_and("&compact=0").compact && valid_and("&compact=").compact);
}

//= bep48#scrape-request
//= bep48#full-scrape
//= type=test
#[test]
fn scraped_hashes_are_sorted_and_distinct() {
    let mut buffer = [ScrapedHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
    let name = |letter: &str| format!("info_hash={}", letter.repeat(20));
    let query = [name("c"), name("a"), "x=y".into(), name("c"), name("b")].join("&");
    let hashes = ScrapeQuery::new(query.as_bytes()).read_into(&mut buffer).unwrap();
    assert_eq!(hashes, [b'a', b'b', b'c'].map(named));
    assert_eq!(ScrapeQuery::new(b"").read_into(&mut buffer), Err(Refusal::FullScrape));
    let bad = ScrapeQuery::new(b"info_hash=short").read_into(&mut buffer);
    assert_eq!(bad, Err(Refusal::InfoHashMalformed));
    let many = vec![name("q"); 2 * limits::SCRAPE_HASHES_HTTP_MAX].join("&");
    assert_eq!(ScrapeQuery::new(many.as_bytes()).read_into(&mut buffer).unwrap().len(), 1);
}

/// A v1 hash of 20 equal bytes.
fn named(byte: u8) -> ScrapedHash {
    ScrapedHash { info_hash: InfoHash([byte; 20]), rest: None }
}

//= bep52#truncated-hash
//= bep52#full-hash
//= type=test
#[test]
fn v2_hashes_are_truncated_and_repeated_as_given() {
    let full: Vec<u8> = (0xd0..0xf0).collect();
    let encoded: String = full.iter().map(|byte| format!("%{byte:02x}")).collect();
    let announce = format!("info_hash={encoded}&peer_id={}&port=1", "x".repeat(20));
    let announced = query_of(&announce).unwrap().announce.info_hash;
    assert_eq!(announced.0, full[..20]);
    // The 20 bytes that most clients send name the same torrent.
    assert_eq!(
        query_of(&announce.replace(&encoded, &encoded[..60])).unwrap().announce.info_hash,
        announced
    );
    let query = format!("info_hash={encoded}&info_hash={}&info_hash={encoded}", &encoded[..60]);
    let mut buffer = [ScrapedHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
    let hashes = ScrapeQuery::new(query.as_bytes()).read_into(&mut buffer).unwrap();
    assert!(hashes.len() == 2 && hashes.iter().all(|hash| hash.info_hash == announced));
    let mut body = Vec::new();
    scrape(&mut body, hashes, &[REPLY.counts; 2]);
    let counts = b"d8:completei4e10:downloadedi9e11:downloadersi5e10:incompletei6ee";
    let files = [b"20:", &full[..20], counts, b"32:", &full[..], counts].concat();
    assert_eq!(body, [b"d5:filesd".as_slice(), &files, b"ee"].concat());
    for len in [0, 1, 19, 21, 31, 33, 40, 64] {
        let query = format!("info_hash={}&peer_id={}&port=1", "y".repeat(len), "x".repeat(20));
        assert_eq!(query_of(&query).unwrap_err(), Refusal::InfoHashMalformed, "{len}");
        let scraped = ScrapeQuery::new(query.as_bytes()).read_into(&mut buffer).map(<[_]>::len);
        assert_eq!(scraped, Err(Refusal::InfoHashMalformed), "{len}");
    }
}

const REPLY: AnnounceReply<'_> = AnnounceReply {
    peer_format: PeerFormat::Compact,
    counts: SwarmCounts {
        v4: FamilyCounts { seeders: 1, leechers: 2 },
        v6: FamilyCounts { seeders: 3, leechers: 4 },
        web: FamilyCounts { seeders: 0, leechers: 0 },
        partial_seeds: 1,
        downloads: 9,
    },
    v4: 0,
    v6: 0,
    external_ip: IpAddr::V4(std::net::Ipv4Addr::new(1, 2, 3, 4)),
    interval_s: 1800,
    interval_min_s: 900,
    warning: None,
};

/// Encodes a body, with peers appended in runs of `run`.
fn body(reply: AnnounceReply<'_>, v4: &[PackedV4], v6: &[PackedV6], run: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let reply = AnnounceReply { v4: v4.len() as u16, v6: v6.len() as u16, ..reply };
    reply.begin(&mut body);
    v4.chunks(run).for_each(|peers| reply.peers_v4(&mut body, peers));
    reply.begin_peers6(&mut body);
    v6.chunks(run).for_each(|peers| reply.peers_v6(&mut body, peers));
    reply.finish(&mut body);
    body
}

//= bep3#announce-reply
//= bep24#external-ip
//= bep21#announce-downloaders
//= type=test
#[test]
fn writes_an_announce_response_without_peers() {
    let expected =
        b"d8:completei4e10:downloadedi9e11:downloadersi5e11:external ip4:\x01\x02\x03\x04\
        10:incompletei6e8:intervali1800e12:min intervali900e5:peers0:e";
    assert_eq!(body(REPLY, &[], &[], 1), expected);
}

//= bep23#peers
//= bep7#peers6
//= type=test
#[test]
fn writes_compact_lists_of_both_families_in_runs_of_any_length() {
    let v4: Vec<PackedV4> = (0..9).map(|n| PackedV4([n, 1, 2, 3, 4, 5, 0xee, 0xee])).collect();
    let v6: Vec<PackedV6> = (0..5).map(|n| PackedV6([n; 20])).collect();
    let packed_v4: Vec<u8> = v4.iter().flat_map(PackedV4::wire).collect();
    let packed_v6: Vec<u8> = v6.iter().flat_map(PackedV6::wire).collect();
    let [peers, no_peers] =
        [[b"5:peers54:".as_slice(), &packed_v4].concat(), b"5:peers0:".to_vec()];
    let peers6 = [b"6:peers690:".as_slice(), &packed_v6].concat();
    let head = body(REPLY, &[], &[], 1).strip_suffix(b"5:peers0:e").unwrap().to_vec();
    for run in 1..10 {
        for (v4, v6, lists) in [
            (&v4[..], &v6[..], [&peers[..], &peers6]),
            (&v4, &[], [&peers, b""]),
            (&[], &v6, [&no_peers, &peers6]),
        ] {
            assert_eq!(body(REPLY, v4, v6, run), [&head, lists[0], lists[1], b"e"].concat());
        }
    }
}

//= bep3#peers-dict
//= type=test
#[test]
fn dictionaries_list_both_families_together() {
    let v4 = PeerKey::V4([1, 2, 3, 4, 0, 80]);
    let v6 = PeerKey::new("2001:db8::1".parse().unwrap(), 443);
    for (peer_format, id) in
        [(PeerFormat::Dict, "7:peer id20:-TG1000-abcdefghijkl"), (PeerFormat::DictNoIds, "")]
    {
        let warning = Some("old client");
        let reply = AnnounceReply { peer_format, v4: 1, v6: 1, warning, ..REPLY };
        let mut body = Vec::new();
        reply.begin(&mut body);
        for peer in [v4, v6] {
            reply.peer_with_id(&mut body, peer, PeerId(*b"-TG1000-abcdefghijkl"));
        }
        reply.finish(&mut body);
        let peers = format!(
            "5:peersld2:ip7:1.2.3.4{id}4:porti80eed2:ip11:2001:db8::1{id}4:porti443eee\
            15:warning message10:old cliente"
        );
        assert!(body.ends_with(peers.as_bytes()), "{}", body.escape_ascii());
    }
}

//= bep48#scrape-reply
//= bep21#scrape-downloaders
//= type=test
#[test]
fn writes_a_scrape_response() {
    let mut body = Vec::new();
    let hashes = [named(1), named(0xff)];
    scrape(&mut body, &hashes, &[REPLY.counts, SwarmCounts::default()]);
    let first = b"d8:completei4e10:downloadedi9e11:downloadersi5e10:incompletei6ee";
    let second = b"d8:completei0e10:downloadedi0e11:downloadersi0e10:incompletei0ee";
    let files = [b"20:", &[1; 20][..], first, b"20:", &[0xff; 20], second].concat();
    assert_eq!(body, [b"d5:filesd".as_slice(), &files, b"ee"].concat());
}

//= bep3#failure-reason
//= bep31#retry-in
//= type=test
#[test]
fn failures_have_a_reason_and_a_retry() {
    let site = Refusal::Site { notice: Notice::new("your account is disabled"), interval_s: 5400 };
    for refusal in Refusal::ALL.into_iter().chain([site]) {
        let mut body = Vec::new();
        failure(&mut body, refusal);
        let given_s = match refusal {
            Refusal::Site { interval_s, .. } => Some(u32::from(interval_s)),
            Refusal::OverBudget { interval_s } => Some(interval_s),
            _ => None,
        };
        let intervals = |s: u32| format!("8:intervali{s}e12:min intervali{s}e");
        let rest = match refusal.retry() {
            Retry::Unspecified => given_s.map_or_else(String::new, intervals),
            Retry::Never => intervals(86_400) + "8:retry in5:never",
            Retry::Minutes(minutes) => {
                intervals(given_s.unwrap_or_else(|| u32::from(minutes) * 60))
                    + &format!("8:retry ini{minutes}e")
            }
        };
        let text = refusal.text();
        let expected = format!("d14:failure reason{}:{text}{rest}e", text.len());
        assert_eq!(body, expected.as_bytes());
    }
}

#[test]
fn writes_response_heads() {
    let mut out = Vec::new();
    ResponseFraming { method: Method::Get, keep_alive: true }.ok(&mut out, b"de");
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nde");
    out.clear();
    ResponseFraming { method: Method::Head, keep_alive: false }.ok(&mut out, b"de");
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    assert_eq!(out, head);
    out.clear();
    request_error(&mut out, RequestError::MethodNotAllowed);
    assert!(out.starts_with(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"));
}
