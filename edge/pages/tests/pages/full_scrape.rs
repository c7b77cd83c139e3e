//! Scrapes of all torrents: their form, their limits, and clients that do not read.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;

use client::codec::bencode::{Value, parse};
use flate2::read::GzDecoder;
use tracker::{Limits, Tracker};
use types::{Announce, InfoHash, NumWant, limits};

use super::*;
use crate::testing::udp::{self, LEECHER, UdpServer};

/// The hash of a torrent; neighbours are far from each other.
fn hash(number: u32) -> InfoHash {
    let mut hash = [0; 20];
    hash[..4].copy_from_slice(&number.wrapping_mul(0x9E37_79B9).to_be_bytes());
    hash[16..].copy_from_slice(&number.to_be_bytes());
    InfoHash(hash)
}

/// Adds `count` torrents with a seeder each.
pub(super) fn add_torrents(tracker: &Arc<Tracker>, count: u32) {
    let mut udp = UdpServer::of(tracker);
    let id = udp.id_of("192.0.2.1");
    let announce_of = |number| {
        let seeder = Announce { info_hash: hash(number), left: Some(0), ..LEECHER };
        udp::announce(id, &Announce { want: NumWant::Peers(0), ..seeder })
    };
    let announces: Vec<Vec<u8>> = (0..count).map(announce_of).collect();
    let from = SocketAddr::from(([192, 0, 2, 1], 5));
    let datagrams: Vec<_> = announces.iter().map(|packet| (from, &packet[..])).collect();
    assert_eq!(udp.exchange(&datagrams).len(), count as usize);
}

/// A server with full scrapes and `count` torrents, whose clients have no limits.
fn server(options: HttpOptions, count: u32) -> HttpServer {
    let server = start(options, PageOptions::default());
    add_torrents(&server.tracker, count);
    set_policy(&server.tracker, ListenerPolicy { full_scrape: true, ..ListenerPolicy::default() });
    let exempt = Networks::parse(["127.0.0.0/8"]).unwrap();
    server.tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    server
}

/// Checks that a body lists `count` torrents, sorted and each once.
fn check(body: &[u8], count: u32) {
    let value = parse(body).unwrap();
    let Some(Value::Dict(files)) = value.at("files") else { panic!("{value:?}") };
    let listed: BTreeMap<&[u8], Option<i64>> = files
        .iter()
        .map(|(name, file)| (*name, file.at("complete").and_then(Value::int)))
        .collect();
    assert_eq!((files.len(), listed.len()), (count as usize, count as usize));
    for number in 0..count {
        assert_eq!(listed[hash(number).0.as_slice()], Some(1));
    }
}

fn failure(refusal: Refusal, wait_min: u16) -> String {
    let text = refusal.text();
    format!("d14:failure reason{}:{text}8:retry ini{wait_min}ee", text.len())
}

//= bep48#full-scrape
//= type=test
#[test]
fn lists_all_torrents_sorted_in_every_framing() {
    const COUNT: u32 = 3000;
    let server = server(HttpOptions::default(), COUNT);
    let mut client = server.client();
    // Requests behind it wait for the end of the list.
    let pipelined = get("/scrape", "") + &get("/scrape?x=y", "") + &get(&announce(1, ""), "");
    client.send(pipelined);
    for _ in 0..2 {
        let all = client.receive();
        assert_eq!((all.status, all.header("Transfer-Encoding")), (200, Some("chunked")));
        assert_eq!((all.header("Content-Encoding"), all.closes()), (None, false));
        check(&all.body, COUNT);
    }
    assert!(client.receive().has("8:interval"));
    client.request(get(&(announce(1, "") + "&event=stopped"), ""));
    let zipped = client.request(get("/scrape", "Accept-Encoding: deflate, gzip\r\n"));
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
    assert_eq!(zipped.header("Vary"), Some("Accept-Encoding"));
    let mut plain = Vec::new();
    GzDecoder::new(zipped.body.as_slice()).read_to_end(&mut plain).unwrap();
    assert!(zipped.body.len() < plain.len() / 2);
    server.wait_for_counts(Protocol::Http, "three were sent", |it| it.full_scrapes == 3);
    let files = parse(&plain).unwrap();
    let Some(Value::Dict(files)) = files.at("files") else { panic!("{files:?}") };
    // The torrent of the announce is there, without peers.
    assert_eq!(files.len(), COUNT as usize + 1);
    // HTTP/1.0 has no chunks: the body ends with the connection.
    let old = get("/scrape", "Connection: keep-alive\r\n").replace("HTTP/1.1", "HTTP/1.0");
    let mut client = server.client();
    let all = client.request(old);
    assert_eq!((all.header("Transfer-Encoding"), all.closes()), (None, true));
    assert_eq!(all.body, plain);
    // HEAD lists nothing, and the connection stays.
    let mut client = server.client();
    let head = client.send(get("/scrape", "").replace("GET", "HEAD")).receive_head();
    assert_eq!((head.status, head.header("Transfer-Encoding")), (200, Some("chunked")));
    assert_eq!(client.request(get("/none", "")).status, 404);
    let last = server.client().request(get("/scrape", "Connection: close\r\n"));
    assert!(last.closes() && last.body == plain);
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.full_scrapes, 5);
    assert!(counters.full_scrape_bytes > 4 * plain.len() as u64);
    assert_eq!(counters.requests, counters.responses);
}

#[test]
fn lists_all_torrents_over_tls_and_to_clients_that_end_their_output() {
    let server = server(HttpOptions::default(), 5000);
    for (_, mut client) in server.both_clients() {
        check(&client.request(get("/scrape", "")).body, 5000);
        client.send(get("/scrape", "")).0.stream.end_output();
        check(&client.receive().body, 5000);
        client.expect_end();
    }
}

/// Clients that have asked for a list and do not read it, as many as may have one.
fn hold_all(server: &HttpServer) -> Vec<Client> {
    let hold = |_| {
        let mut client = server.client();
        client.send(get("/scrape", "")).receive_head();
        client
    };
    (0..limits::FULL_SCRAPES_AT_ONCE).map(hold).collect()
}

/// Torrents whose list is longer than the buffers between server and client.
const MANY: u32 = 10_000;

#[test]
fn serves_others_while_clients_do_not_read() {
    let options = HttpOptions { write_timeout_s: 3, ..patient() };
    let server = server(options, MANY);
    let mut held = hold_all(&server);
    let busy = Refusal::FullScrapesBusy { wait_min: 0 };
    let mut client = server.client();
    for port in 1..=100 {
        assert_eq!(client.request(get("/scrape", "")).text(), failure(busy, 1));
        assert!(client.request(get(&announce(port, ""), "")).has("8:interval"));
    }
    // One reads all after all, and another one may begin.
    let first = held.remove(0);
    let mut reader = first;
    let mut seen = reader.0.received.len();
    while !reader.0.received.ends_with(b"\r\n0\r\n\r\n") {
        assert!(reader.receive_more());
        seen = seen.max(reader.0.received.len());
    }
    assert!(seen > 800_000, "{seen}");
    wait_until("there is room for another list", || {
        client.request(get("/scrape", "Accept-Encoding: gzip\r\n")).status == 200
            && server.counters(Protocol::Http).full_scrapes >= 2
    });
    // The others are cut when their time is over.
    wait_until("the others are cut", || {
        server.advance(1);
        server.counters(Protocol::Http).drops[DropReason::TimedOut.index()] == held.len() as u64
    });
    for mut client in held {
        assert!(!client.receive_rest().ends_with(b"0\r\n\r\n"));
    }
}

#[test]
fn ends_lists_of_clients_that_are_gone() {
    let server = server(HttpOptions::default(), MANY);
    for _ in 0..3 {
        drop(hold_all(&server));
        wait_until("there is room for another list", || {
            let mut client = server.client();
            client.send(get("/scrape", ""));
            client.receive_head().header("Transfer-Encoding").is_some()
        });
    }
}

#[test]
fn stops_in_the_middle_of_lists() {
    let options = HttpOptions { shutdown_timeout_s: 1, ..patient() };
    let mut server = server(options, MANY);
    let held = hold_all(&server);
    server.end();
    drop(held);
}
