//! Scrapes of all torrents: their form, their limits, and clients that do not read.

use std::io::Read;
use std::net::SocketAddr;

use flate2::read::GzDecoder;
use net::sim;
use tracker::{Limits, Tracker};
use types::{Announce, NumWant, limits};

use super::*;
use crate::testing::udp::{self, LEECHER, UdpServer};

/// Adds `count` torrents with a seeder each.
pub(super) fn add_torrents(tracker: &Arc<Tracker>, count: u16) {
    let mut udp = UdpServer::with(tracker, None);
    let id = udp.id_of("192.0.2.1");
    let announce_of = |number| {
        let seeder = Announce { info_hash: numbered_hash(number), left: Some(0), ..LEECHER };
        udp::announce(id, &Announce { want: NumWant::Peers(0), ..seeder })
    };
    let announces: Vec<Vec<u8>> = (0..count).map(announce_of).collect();
    let from = SocketAddr::from(([192, 0, 2, 1], 5));
    let datagrams: Vec<_> = announces.iter().map(|packet| (from, &packet[..])).collect();
    assert_eq!(sim::exchange(&mut udp.handler, 0, &datagrams).len(), count as usize);
}

/// A server with full scrapes and `count` torrents, whose clients have no limits.
fn server(options: HttpOptions, count: u16) -> HttpServer {
    let server = start(options, PageOptions::default());
    add_torrents(&server.tracker, count);
    set_policy(&server.tracker, ListenerPolicy { full_scrape: true, ..ListenerPolicy::default() });
    let exempt = Networks::parse(["127.0.0.0/8"]).unwrap();
    server.tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    server
}

/// Returns the list of `count` such torrents.
fn list(count: u16) -> Vec<u8> {
    let counts = b"d8:completei1e10:downloadedi0e11:downloadersi0e10:incompletei0ee";
    let files = (0..count).flat_map(|at| [b"20:", &numbered_hash(at).0[..], counts].concat());
    [b"d5:filesd".to_vec(), files.collect(), b"ee".to_vec()].concat()
}

//= bep48#full-scrape
//= type=test
#[test]
fn lists_all_torrents_sorted_in_every_framing() {
    const COUNT: u16 = 3000;
    let server = server(HttpOptions::default(), COUNT);
    let plain = list(COUNT);
    let mut client = server.client();
    // Requests behind it wait for the end of the list.
    client.send(get("/scrape", "") + &get("/scrape?x=y", "") + &get("/none", ""));
    for _ in 0..2 {
        let all = client.receive();
        assert_eq!((all.header("Transfer-Encoding"), all.closes()), (Some("chunked"), false));
        assert!(all.header("Content-Encoding").is_none() && all.body == plain);
    }
    assert_eq!(client.receive().status, 404);
    let zipped = client.request(get("/scrape", "Accept-Encoding: deflate, gzip\r\n"));
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
    assert_eq!(zipped.header("Vary"), Some("Accept-Encoding"));
    let mut unzipped = Vec::new();
    GzDecoder::new(zipped.body.as_slice()).read_to_end(&mut unzipped).unwrap();
    assert!(unzipped == plain && zipped.body.len() < plain.len() / 2);
    // HTTP/1.0 has no chunks: the body ends with the connection.
    let old = get("/scrape", "Connection: keep-alive\r\n").replace("HTTP/1.1", "HTTP/1.0");
    let all = server.client().request(old);
    assert_eq!((all.header("Transfer-Encoding"), all.closes()), (None, true));
    assert!(all.body == plain);
    // HEAD lists nothing, and the connection stays.
    let head = client.send(get("/scrape", "").replace("GET", "HEAD")).receive_head();
    assert_eq!((head.status, head.header("Transfer-Encoding")), (200, Some("chunked")));
    let last = client.request(get("/scrape", "Connection: close\r\n"));
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
        assert!(client.request(get("/scrape", "")).body == list(5000));
        client.send(get("/scrape", "")).0.stream.end_output();
        assert!(client.receive().body == list(5000));
        client.expect_end();
    }
}

/// Requests a list and does not read it. Returns `None` if there are as many as there may be.
fn hold(server: &HttpServer) -> Option<Client> {
    let mut client = server.client();
    let head = client.send(get("/scrape", "Connection: close\r\n")).receive_head();
    head.header("Transfer-Encoding").map(|_| client)
}

/// Torrents whose list is longer than the buffers between server and client.
const MANY: u16 = 10_000;

#[test]
fn serves_others_while_clients_do_not_read() {
    let options =
        HttpOptions { write_timeout_s: 3, idle_timeout_s: u32::MAX, ..HttpOptions::default() };
    let server = server(options, MANY);
    let mut held = [(); limits::FULL_SCRAPES_AT_ONCE].map(|()| hold(&server).unwrap());
    let busy = Refusal::FullScrapesBusy { wait_min: 0 };
    let mut client = server.client();
    for port in 1..=100 {
        assert!(client.request(get("/scrape", "")).has(busy.text()));
        assert!(client.request(get(&announce(port, ""), "")).has("8:interval"));
    }
    // One reads all after all, and another one may begin.
    assert!(held[0].receive_rest().len() > usize::from(MANY) * 80);
    wait_until("there is room for another list", || hold(&server).is_some());
    // The others are cut when their time is over.
    wait_until("the others are cut", || {
        server.advance(1);
        server.counters(Protocol::Http).drops[DropReason::TimedOut.index()] > 0
    });
    assert!(!held[1].receive_rest().ends_with(b"0\r\n\r\n"));
}

#[test]
fn ends_lists_of_clients_that_are_gone() {
    let server = server(HttpOptions::default(), MANY);
    for _ in 0..4 * limits::FULL_SCRAPES_AT_ONCE {
        wait_until("there is room for another list", || hold(&server).is_some());
    }
}

#[test]
fn stops_in_the_middle_of_lists() {
    let options = HttpOptions { shutdown_timeout_s: 1, ..HttpOptions::default() };
    let mut server = server(options, MANY);
    let _held = hold(&server).unwrap();
    server.end();
}
