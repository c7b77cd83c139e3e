//! Properties that must hold for any input of each parser. libFuzzer searches for inputs that break
//! them (`cargo xtask fuzz NAME`), and a plain test replays the corpora on the stable toolchain.
#![forbid(unsafe_code)]

mod block;
mod cluster;
mod config;
mod dns;
mod forwarded;
mod frame;
mod geo;
mod import;
mod journal;
mod jwt;
mod letters;
mod lists;
mod networks;
mod site;
mod torrent;
#[path = "../../core/wire/tests/codecs/webtorrent_twin/twin.rs"]
mod webtorrent_twin;
mod ws;

use std::net::IpAddr;

use client::codec::bencode::{Value, dict_entry, parse, parse_lenient};
use client::codec::http as responses;
use client::codec::udp as requests;
use types::limits::{SCRAPE_HASHES_HTTP_MAX, SCRAPE_HASHES_UDP_MAX};
use types::{PackedV4, PackedV6, PeerKey, Refusal, SwarmCounts};
use wire::http::{
    AnnounceQuery, AnnounceReply, ForwardedHeader, ParsedRequest, PeerFormat, ScrapeQuery,
    ScrapedHash, Target, announce_query, failure, host_of, parameter, read_head, scrape,
};
use wire::proxy::{self, ParsedProxyHeader, simple};
use wire::udp::{self, Request, UnverifiedRequest};

/// A parser, and the properties that must hold for each input of it.
#[derive(Debug)]
pub struct Parser {
    pub name: &'static str,
    /// Panics if a property does not hold.
    pub check: fn(&[u8]),
    /// Mutations of the committed inputs that the tests try.
    pub mutations: u32,
}

/// Mutations tried of all inputs of a parser together.
const MUTATIONS: u32 = 200_000;
/// Those of a parser that fills a store with each input.
const STORE_MUTATIONS: u32 = 20_000;
/// Those of a parser that starts threads or writes files.
const SLOW_MUTATIONS: u32 = 4000;

const PARSERS: &[Parser] = &[
    Parser { name: "bencode", check: bencode, mutations: MUTATIONS },
    Parser { name: "block", check: block::check, mutations: STORE_MUTATIONS },
    Parser { name: "cluster", check: cluster::check, mutations: STORE_MUTATIONS },
    Parser { name: "config", check: config::check, mutations: SLOW_MUTATIONS },
    Parser { name: "dns", check: dns::check, mutations: MUTATIONS },
    Parser { name: "forwarded", check: forwarded::check, mutations: MUTATIONS },
    Parser { name: "frame", check: frame::check, mutations: MUTATIONS },
    Parser { name: "geo", check: geo::check, mutations: STORE_MUTATIONS },
    Parser { name: "http", check: http, mutations: MUTATIONS },
    Parser { name: "import", check: import::check, mutations: STORE_MUTATIONS },
    Parser { name: "journal", check: journal::check, mutations: SLOW_MUTATIONS },
    Parser { name: "jwt", check: jwt::check, mutations: STORE_MUTATIONS },
    Parser { name: "letters", check: letters::check, mutations: MUTATIONS },
    Parser { name: "lists", check: lists::check, mutations: MUTATIONS },
    Parser { name: "networks", check: networks::check, mutations: MUTATIONS },
    Parser { name: "proxy", check: proxy, mutations: MUTATIONS },
    Parser { name: "site", check: site::check, mutations: MUTATIONS },
    Parser { name: "torrent", check: torrent::check, mutations: MUTATIONS },
    Parser { name: "udp", check: udp, mutations: MUTATIONS },
    Parser { name: "webtorrent", check: webtorrent, mutations: MUTATIONS },
    Parser { name: "ws", check: ws::check, mutations: MUTATIONS },
];

/// Returns the parser of this name.
pub fn parser(name: &str) -> Option<&'static Parser> {
    PARSERS.iter().find(|parser| parser.name == name)
}

/// Decoded announces round-trip through the encoder, and answers fit their buffers.
fn udp(bytes: &[u8]) {
    let Ok(request) = udp::decode(bytes) else { return };
    let mut buffer = [0; 64];
    match request {
        Request::Connect { .. } => assert!(bytes.len() >= 16),
        Request::Connected { connection_id, transaction_id, request: call } => match call {
            UnverifiedRequest::Announce { announce, options } => {
                let url = options.url_data(&mut buffer).to_vec();
                let mut again = Vec::new();
                requests::announce(&mut again, connection_id, transaction_id, &announce, &url);
                let Ok(Request::Connected {
                    request: UnverifiedRequest::Announce { announce: twin, options },
                    ..
                }) = udp::decode(&again)
                else {
                    panic!("an encoded announce does not decode")
                };
                assert_eq!((twin, options.url_data(&mut buffer)), (announce, url.as_slice()));
            }
            UnverifiedRequest::Scrape(hashes) => {
                assert!((1..=SCRAPE_HASHES_UDP_MAX).contains(&hashes.len()));
                let counts = vec![SwarmCounts::default(); hashes.len()];
                let mut slot = [0; 100];
                assert!(udp::scrape_reply(&mut slot, transaction_id, &counts) <= slot.len());
            }
            UnverifiedRequest::Malformed(refusal) => {
                let mut slot = [0; 30];
                assert!(udp::error_reply(&mut slot, transaction_id, refusal.text()) <= slot.len());
            }
        },
    }
    let _ = requests::decode_reply(bytes);
}

/// A request does not depend on the input after it, and the response to every query is strict
/// bencoding.
fn http(bytes: &[u8]) {
    if let responses::ParsedResponse::Complete(response) = responses::read_head(bytes) {
        assert!((1..=bytes.len()).contains(&response.consumed));
    }
    if let responses::Chunk::Data { consumed, .. } | responses::Chunk::End { consumed } =
        responses::read_chunk(bytes)
    {
        assert!((1..=bytes.len()).contains(&consumed));
    }
    let ParsedRequest::Complete(request) = read_head(bytes) else { return };
    assert!((1..=bytes.len()).contains(&request.consumed));
    let exact = bytes.split_at(request.consumed).0;
    let ParsedRequest::Complete(twin) = read_head(exact) else {
        panic!("the request depends on the input after it")
    };
    assert_eq!((twin.target, twin.keep_alive), (request.target, request.keep_alive));
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
        let _ = request.forwarded_addresses(header).count();
    }
    let _ = (request.accepts_gzip(), request.wants_json());
    if let Some(host) = request.host() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
        assert!(host.bytes().all(is_plain) && host_of(host) == Some(host), "{host}");
    }
    for name in ["mode", "format"] {
        let value = parameter(request.query, name).unwrap_or_default();
        assert!(!value.contains(&b'&'));
    }
    match request.target {
        Target::Announce(query) => match announce_query(query) {
            Ok(query) => check_announce(&query),
            Err(refusal) => check_refusal(refusal),
        },
        Target::Scrape(query) => {
            let mut buffer = [ScrapedHash::default(); SCRAPE_HASHES_HTTP_MAX];
            let query = ScrapeQuery::new(query);
            let read = query.read_into(&mut buffer);
            assert_eq!(query.asks_for_all(), read == Err(Refusal::FullScrape));
            match read {
                Ok(hashes) => check_scrape(hashes),
                Err(refusal) => check_refusal(refusal),
            }
        }
        Target::Unknown => {}
    }
}

/// The response to any announce is strict bencoding in each format, with the right number of peers.
fn check_announce(query: &AnnounceQuery) {
    let key = PeerKey::new(IpAddr::from([192, 0, 2, 1]), query.announce.port);
    let v6 = PackedV6([query.announce.peer_id.0[0]; 20]);
    for model in [PeerFormat::Compact, PeerFormat::Dict, PeerFormat::DictNoIds] {
        let mut body = Vec::new();
        let reply = AnnounceReply {
            peer_format: model,
            counts: SwarmCounts::default(),
            v4: 2,
            v6: u16::from(query.compact),
            external_ip: key.socket_addr().ip(),
            interval_s: 1800,
            interval_min_s: 900,
            warning: query.no_peer_id.then_some("a warning"),
        };
        reply.begin(&mut body);
        reply.peers_v4(&mut body, &[PackedV4([1; 8]), PackedV4([2; 8])]);
        reply.begin_peers6(&mut body);
        reply.peers_v6(&mut body, &[v6][..usize::from(reply.v6)]);
        reply.finish(&mut body);
        let body = parse(&body).unwrap();
        match body.at("peers").unwrap() {
            Value::Bytes(peers) => assert_eq!(peers.len(), 12),
            Value::List(peers) => assert_eq!(peers.len(), 2 + usize::from(reply.v6)),
            other => panic!("{other:?}"),
        }
    }
}

/// Torrents are distinct and in the order of a dictionary.
fn check_scrape(hashes: &[ScrapedHash]) {
    let mut body = Vec::new();
    scrape(&mut body, hashes, &vec![SwarmCounts::default(); hashes.len()]);
    let body = parse(&body).unwrap();
    let Some(Value::Dict(files)) = body.at("files") else { panic!("{body:?}") };
    assert!(!files.is_empty() && files.len() == hashes.len());
}

fn check_refusal(refusal: Refusal) {
    let mut body = Vec::new();
    failure(&mut body, refusal);
    let reason = parse(&body).unwrap().at("failure reason").and_then(Value::bytes);
    assert_eq!(reason, Some(refusal.text().as_bytes()));
}

/// A truncated header is partial, and a route round-trips through a line.
fn proxy(bytes: &[u8]) {
    if let Some(wrapped) = simple::unwrap(bytes) {
        let route = wrapped.route;
        assert!([route.client, route.server].iter().all(|end| end.ip().to_canonical() == end.ip()));
        assert_eq!(wrapped.header.len() + wrapped.datagram.len(), bytes.len());
        assert!(bytes.starts_with(wrapped.header) && bytes.ends_with(wrapped.datagram));
    }
    let ParsedProxyHeader::Complete(header) = proxy::read(bytes) else { return };
    let more = [bytes, b"GET / HTTP/1.1\r\n"].concat();
    assert_eq!(proxy::read(&more), ParsedProxyHeader::Complete(header), "the data changes it");
    assert!(proxy::is_proxy_header(bytes) && header.len <= bytes.len());
    for cut in 0..header.len {
        assert_eq!(proxy::read(&bytes[..cut]), ParsedProxyHeader::Partial, "{cut} bytes");
    }
    let Some(route) = header.route else { return };
    assert!([route.client, route.server].iter().all(|end| end.ip().to_canonical() == end.ip()));
    let (client, server) = (route.client, route.server);
    let [from, to] = [client.ip(), server.ip()].map(|ip| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    });
    let line = format!("PROXY TCP6 {from} {to} {} {}\r\n", client.port(), server.port());
    let ParsedProxyHeader::Complete(twin) = proxy::read(line.as_bytes()) else { panic!("{line}") };
    assert_eq!(twin.route, Some(route));
}

/// The parser agrees with `serde_json`, and relays of a message round-trip.
fn webtorrent(bytes: &[u8]) {
    let _ = webtorrent_twin::check(bytes);
}

/// Every value that the strict parser accepts has only one encoding. The lenient parser accepts more,
/// and reports a violation then. The client's parsers accept any input.
fn bencode(bytes: &[u8]) {
    let _ = (responses::parse_announce(bytes), responses::parse_scrape(bytes));
    let lenient = parse_lenient(bytes);
    if let Ok((Value::Dict(entries), _)) = &lenient {
        for (at, (key, value)) in entries.iter().enumerate() {
            let is_first = !entries[..at].iter().any(|(other, _)| other == key);
            let Some(name) = std::str::from_utf8(key).ok().filter(|_| is_first) else { continue };
            let text = dict_entry(bytes, name).unwrap().unwrap();
            assert_eq!(parse_lenient(text).unwrap().0, *value);
        }
    }
    let Ok(value) = parse(bytes) else {
        assert!(!matches!(lenient, Ok((_, None))));
        return;
    };
    assert_eq!(lenient, Ok((value.clone(), None)));
    let mut again = Vec::new();
    write(&mut again, &value);
    assert_eq!(again, bytes);
}

fn write(out: &mut Vec<u8>, value: &Value<'_>) {
    let write_bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend(format!("{}:", bytes.len()).bytes());
        out.extend(bytes);
    };
    match value {
        Value::Int(number) => out.extend(format!("i{number}e").bytes()),
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::List(items) => {
            out.push(b'l');
            items.iter().for_each(|item| write(out, item));
            out.push(b'e');
        }
        Value::Dict(entries) => {
            out.push(b'd');
            for (key, value) in entries {
                write_bytes(out, key);
                write(out, value);
            }
            out.push(b'e');
        }
    }
}
