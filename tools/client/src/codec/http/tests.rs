//! The client against the tracker's own codec, and against responses of other trackers.

use super::*;
use crate::{AnnounceResponse, ScrapeEntry, ScrapeStats};
use types::{PackedV4, PackedV6, PeerId, Refusal, SwarmCounts};
use wire::http::{self, AnnounceReply, PeerFormat, ScrapeQuery, ScrapedHash, Target};

fn request(target: &[u8], close: bool) -> Vec<u8> {
    let mut out = Vec::new();
    get(&mut out, "t.example:80", target, close);
    out
}

#[test]
fn announces_round_trip() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = || std::array::from_fn(|_| random.u8(..));
    for n in 0..1000_u16 {
        let events = [Event::None, Event::Started, Event::Completed, Event::Stopped, Event::Paused];
        let meant = Announce {
            info_hash: InfoHash(bytes()),
            peer_id: PeerId(bytes()),
            port: n + 1,
            event: events[usize::from(n) % 5],
            left: Some(u64::MAX >> (n % 64)),
            uploaded: u64::from(n) << (n % 48),
            downloaded: n.into(),
            want: if n % 2 == 0 { NumWant::Default } else { NumWant::Peers(n) },
        };
        let mut target = Vec::new();
        announce_target(&mut target, "/announce/secret?a=b", &meant, 7);
        let close = n % 2 == 0;
        let bytes = request(&target, close);
        let http::ParsedRequest::Complete(read) = http::read_head(&bytes) else {
            panic!("{bytes:?}")
        };
        assert!(read.keep_alive != close && read.key == Some(b"secret"));
        let Target::Announce(query) = read.target else { panic!("{:?}", read.target) };
        assert!(query.starts_with(b"a=b&info_hash=") && query.ends_with(b"&key=00000007"));
        let parsed = http::announce_query(query).unwrap();
        assert_eq!((parsed.announce, parsed.compact), (meant, true));
    }
}

//= bep48#scrape-url
//= type=test
#[test]
fn derives_scrape_target_from_announce_url() {
    let target = |url| {
        let mut out = Vec::new();
        scrape_target(&mut out, url, &[InfoHash(*b"aaaaaaaaaaaaaaaaaaaa")])
            .map(|()| String::from_utf8(out).unwrap())
    };
    let hash = "info_hash=aaaaaaaaaaaaaaaaaaaa";
    for (url, scrape) in [
        ("/announce", format!("/scrape?{hash}")),
        ("/x/announce.php?y=/z", format!("/x/scrape.php?y=/z&{hash}")),
        ("/announce/key", format!("/scrape/key?{hash}")),
    ] {
        assert_eq!(target(url), Some(scrape), "{url}");
    }
    for none in ["/a", "/x?/announce", "", "/", "/key/tracker"] {
        assert_eq!(target(none), None, "{none}");
    }
    let hashes: Vec<InfoHash> = (0..9).map(|n| InfoHash([n * 31; 20])).collect();
    let mut out = Vec::new();
    scrape_target(&mut out, "/announce", &hashes).unwrap();
    let bytes = request(&out, false);
    let http::ParsedRequest::Complete(read) = http::read_head(&bytes) else { panic!("{bytes:?}") };
    let Target::Scrape(query) = read.target else { panic!("{:?}", read.target) };
    let mut buffer = [ScrapedHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
    let read = ScrapeQuery::new(query).read_into(&mut buffer).unwrap();
    assert_eq!(read.iter().map(|hash| hash.info_hash).collect::<Vec<_>>(), hashes);
}

#[test]
fn response_head_is_complete_at_its_last_byte() {
    let text = b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  5 \r\nLocation: /x\r\n\r\n";
    for len in 0..text.len() {
        assert_eq!(read_head(&text[..len]), ParsedResponse::Partial, "{len}");
    }
    let expected = ResponseHead {
        status: 200,
        length: Length::Bytes(5),
        keep_alive: true,
        location: Some(b"/x"),
        encoding: None,
        consumed: text.len(),
    };
    assert_eq!(read_head(text), ParsedResponse::Complete(expected));
}

#[test]
fn reads_body_length_from_the_head() {
    let parsed = |head: &str| match read_head(format!("{head}\r\n\r\n").as_bytes()) {
        ParsedResponse::Complete(it) => {
            Some((it.status, it.length, it.keep_alive, it.encoding.is_some()))
        }
        _ => None,
    };
    let plain = |length, keep_alive| Some((200, length, keep_alive, false));
    for (head, expected) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", plain(Length::Chunked, true)),
        ("HTTP/1.1 200 OK", plain(Length::Connection, false)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close",
            plain(Length::Bytes(0), false),
        ),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0", plain(Length::Bytes(0), false)),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive",
            plain(Length::Bytes(0), true),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3",
            plain(Length::Bytes(3), true),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3",
            Some((200, Length::Bytes(3), true, true)),
        ),
        ("HTTP/1.1 204 No Content", Some((204, Length::Bytes(0), true, false))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4", None),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1", None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999", None),
        ("SSH-2.0-x", None),
    ] {
        assert_eq!(parsed(head), expected, "{head}");
    }
}

#[test]
fn reads_chunked_bodies() {
    let text = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nHTTP";
    let end = text.len() - 4;
    let (mut at, mut body) = (0, Vec::new());
    loop {
        let start = at;
        match read_chunk(&text[at..]) {
            Chunk::Data { bytes, consumed } => {
                body.extend_from_slice(bytes);
                at += consumed;
            }
            Chunk::End { consumed } => {
                at += consumed;
                break;
            }
            other => panic!("{other:?}"),
        }
        for cut in start..at {
            assert_eq!(read_chunk(&text[start..cut]), Chunk::Partial, "{start} {cut}");
        }
    }
    assert_eq!((body.as_slice(), at), (b"abc0123456789".as_slice(), end));
    for bad in [b"x\r\n".as_slice(), b"1\r\nab\r\n", b"fffffffffffffffff\r\n"] {
        assert_eq!(read_chunk(bad), Chunk::Invalid, "{bad:?}");
    }
    assert_eq!(read_chunk(b"ffffffffffffffff\r\n"), Chunk::Partial);
}

fn granted(body: &[u8]) -> AnnounceResponse {
    match parse_announce(body) {
        Ok(TrackerResponse::Success(it)) => it,
        other => panic!("{}: {other:?}", body.escape_ascii()),
    }
}

#[test]
fn parses_our_own_responses() {
    let v4 = PackedV4([1, 2, 3, 4, 0, 9, 0, 0]);
    let mut bytes = [0; 20];
    (bytes[0], bytes[15], bytes[17]) = (0x20, 1, 8);
    let v6 = PackedV6(bytes);
    let mut counts = SwarmCounts::default();
    (counts.v4.seeders, counts.v6.leechers, counts.downloads) = (1, 3, 2);
    for peer_format in [PeerFormat::Compact, PeerFormat::Dict, PeerFormat::DictNoIds] {
        let external_ip = [127, 0, 0, 1].into();
        let (interval_s, interval_min_s, warning) = (1800, 60, Some("soon closed"));
        let reply = AnnounceReply {
            peer_format,
            counts,
            v4: 1,
            v6: 1,
            external_ip,
            interval_s,
            interval_min_s,
            warning,
        };
        let mut body = Vec::new();
        reply.begin(&mut body);
        reply.peers_v4(&mut body, &[v4]);
        reply.begin_peers6(&mut body);
        reply.peers_v6(&mut body, &[v6]);
        reply.finish(&mut body);
        let expected = AnnounceResponse {
            interval_s: Some(1800),
            min_interval_s: Some(60),
            seeders: Some(1),
            leechers: Some(3),
            downloads: Some(2),
            peers: vec![v4.key().socket_addr(), v6.key().socket_addr()],
            external_ip: Some(external_ip),
            warning: Some("soon closed".into()),
            violation: None,
        };
        assert_eq!(granted(&body), expected);
        for len in 0..body.len() {
            assert!(
                matches!(parse_announce(&body[..len]), Err(ResponseError::Bencoding(_))),
                "{len}"
            );
        }
    }
    let mut body = Vec::new();
    let hash = InfoHash([7; 20]);
    let named = ScrapedHash { info_hash: hash, rest: None };
    http::scrape(&mut body, &[named], &[counts]);
    let stats = ScrapeStats { seeders: 1, downloads: Some(2), leechers: 3 };
    let entry = ScrapeEntry { info_hash: hash, stats };
    assert_eq!(parse_scrape(&body), Ok(TrackerResponse::Success(vec![entry])));
    let mut body = Vec::new();
    http::failure(&mut body, Refusal::InfoHashMissing);
    let reason = Refusal::InfoHashMissing.text().as_bytes();
    assert_eq!(parse_announce(&body), Ok(TrackerResponse::Failure(reason)));
    assert_eq!(parse_scrape(&body), Ok(TrackerResponse::Failure(reason)));
}

#[test]
fn reports_tolerated_violations() {
    const INVALID: &str = "a peer has no IP address or no port";
    const TRUNCATED: &str = "the peer list ends within a peer";
    for (body, violation) in [
        (b"d8:intervali9e5:peers0:e".as_slice(), None),
        (b"d5:peers0:8:intervali9ee", Some("not strict bencoding: byte 10: key out of order")),
        (
            b"d8:intervali9e5:peers0:e\r\n",
            Some("not strict bencoding: byte 24: unexpected data after the value"),
        ),
        (b"d5:peers0:e", Some("interval is missing")),
        (b"d8:intervali9ee", Some("peers are missing")),
        (b"d8:intervali9e5:peers7:1234567e", Some(TRUNCATED)),
        (b"d8:intervali9e6:peers66:123456e", Some(TRUNCATED)),
        (b"d8:intervali9e5:peersld2:ip7:1.2.3.44:porti9eed2:ip1:x4:porti9eeee", Some(INVALID)),
        (b"d8:intervali9e5:peersld2:ip7:1.2.3.44:porti70000eeee", Some(INVALID)),
        (b"d8:intervali9e5:peersi1ee", Some(INVALID)),
    ] {
        assert_eq!(granted(body).violation.as_deref(), violation, "{}", body.escape_ascii());
    }
}

#[test]
fn rejects_bodies_that_are_not_responses() {
    assert_eq!(parse_announce(b"i1e"), Err(ResponseError::NotADictionary));
    assert_eq!(parse_announce(b"de"), Err(ResponseError::MissingKeys));
    assert_eq!(parse_scrape(b"de"), Err(ResponseError::MissingKeys));
    assert_eq!(parse_scrape(b"d5:filesd3:abcdeee"), Err(ResponseError::InvalidInfoHash));
    assert!(matches!(parse_announce(b"<html>"), Err(ResponseError::Bencoding(_))));
    assert!(matches!(parse_scrape(b""), Err(ResponseError::Bencoding(_))));
}
