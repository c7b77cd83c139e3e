//! Refusals that clients do not see as errors, in the form of each protocol.

use client::codec::udp::{Reply, decode_reply};
use tracker::access::{AccessLists, Mode};
use tracker::counters::Protocol;
use tracker::{Access, ListenerPolicy, QuietRefusals, Tracker};
use types::{InfoHash, Notice, Refusal};

use crate::testing::udp::{LEECHER, UdpServer};
use crate::testing::*;

/// The torrent that HTTP clients announce.
const DENIED: InfoHash = InfoHash([b'a'; 20]);

/// Denies a torrent, quietly for two hours, and serves only those of an empty allow list, quietly, too.
fn refuse_quietly(tracker: &Tracker, denied: InfoHash) {
    tracker.denied().insert(&[denied]);
    let lists = AccessLists { mode: Mode::Allow, ..AccessLists::default() };
    set_policy(tracker, ListenerPolicy { lists, ..ListenerPolicy::default() });
    let mut quiet = QuietRefusals::default();
    quiet.add(Refusal::Denied, Some(7200));
    quiet.add(Refusal::NotAllowed, None);
    quiet.add(Refusal::KeyMissing, None);
    quiet.add(Refusal::Torrent { reason: Notice::UNSPECIFIED }, None);
    tracker.set_quiet(quiet);
}

/// Announces over UDP, and returns the interval of the response, which has no peers.
fn udp_interval_s(server: &mut UdpServer) -> u32 {
    let packet = udp::announce(server.id_of("192.0.2.1"), &LEECHER);
    let datagram = server.request("192.0.2.1", &packet);
    assert_eq!(datagram.len(), 20, "no peers");
    match decode_reply(&datagram) {
        Some((9, Reply::Announce { interval_s, leechers: 0, seeders: 0, .. })) => interval_s,
        other => panic!("{other:?}"),
    }
}

#[test]
fn udp_gets_a_long_interval() {
    let mut server = UdpServer::start();
    refuse_quietly(&server.tracker, LEECHER.info_hash);
    assert_eq!(udp_interval_s(&mut server), 7200);
    server.tracker.denied().remove(&[LEECHER.info_hash]);
    // It may be allowed soon.
    assert_eq!(udp_interval_s(&mut server), 60);
    // Refused before the tracker sees it.
    set_access(&server.tracker, Access::Private);
    assert_eq!(udp_interval_s(&mut server), 24 * 3600);
    let packet = udp::scrape(server.id_of("192.0.2.1"), &[LEECHER.info_hash]);
    let datagram = server.request("192.0.2.1", &packet);
    assert!(
        matches!(decode_reply(&datagram), Some((8, Reply::Error(_)))),
        "a scrape has no interval"
    );
    let counters = server.counters();
    for refusal in [Refusal::Denied, Refusal::NotAllowedYet, Refusal::KeyMissing] {
        assert_eq!(counters.refusals[refusal.index()], 1, "{refusal:?}");
    }
    assert!(server.tracker.totals().torrents == 0);
}

#[test]
fn http_has_the_reason_as_a_warning() {
    let server = HttpServer::start();
    refuse_quietly(&server.tracker, DENIED);
    let mut client = server.client();
    let response = client.request(get(&announce(1, ""), ""));
    let intervals = "10:incompletei0e8:intervali7200e12:min intervali7200e5:peers0:";
    assert!(response.has(intervals), "{}", response.text());
    let text = Refusal::Denied.text();
    assert!(response.has(format!("15:warning message{}:{text}e", text.len())));
    // A reason of its own is the warning.
    assert!(server.tracker.torrent_reasons().put(DENIED, "wait for approval"));
    let response = client.request(get(&announce(1, ""), ""));
    assert!(response.has(
        "8:intervali3600e12:min intervali3600e5:peers0:15:warning message17:wait for approvale"
    ));
    server.tracker.torrent_reasons().remove(&[DENIED]);
    // Those that are not quiet are refused, with the interval beside the time of BEP 31.
    server.tracker.set_quiet(QuietRefusals::default());
    let response = client.request(get(&announce(1, ""), ""));
    let failure = "8:intervali86400e12:min intervali86400e8:retry in5:nevere";
    assert!(response.has("14:failure reason") && response.has(failure), "{}", response.text());
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.refusals[Refusal::Denied.index()], 2);
}

#[test]
fn webtorrent_has_it_too_and_no_peer_remains() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    let torrent = leecher(1).info_hash;
    refuse_quietly(&server.tracker, torrent);
    client.announce(&leecher(1));
    let Received::Message(Message::AnnounceReply { info_hash, response }) = client.receive() else {
        panic!("expected a response to the announce");
    };
    assert_eq!((info_hash, response.interval_s), (torrent, Some(7200)));
    assert_eq!(response.warning.as_deref(), Some(Refusal::Denied.text()));
    assert_eq!(server.tracker.totals().torrents, 0);
    server.tracker.set_quiet(QuietRefusals::default());
    client.announce(&leecher(1));
    assert!(matches!(client.receive(), Received::Message(Message::Failure { .. })));
}
