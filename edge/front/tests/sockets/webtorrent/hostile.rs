//! Malformed input, and clients that read or write too slowly or too much.

use std::io::Write;

use tracker::{Limits, Rate};
use types::{Tick, limits};

use super::*;

/// Each kind of fault has a code; which frames have which fault is tested with the codec.
//= rfc6455#masked-client
//= type=test
#[test]
fn closes_with_the_right_code_after_broken_frames() {
    let server = HttpServer::start();
    let too_big = [&[0x81, 0xff], &200_000_u64.to_be_bytes()[..], &MASK].concat();
    let not_utf8 = vec![0x81, 0x82, 0, 0, 0, 0, 0xff, 0xff];
    for (frames, code) in [(vec![0x81, 0x02, b'{', b'}'], 1002), (not_utf8, 1007), (too_big, 1009)]
    {
        let mut client = server.web_client();
        client.send(&frames);
        client.expect_close(code);
    }
    let counters = server.finish(Protocol::Ws);
    assert_eq!(counters.drops[DropReason::BadFrame.index()], 2);
    assert_eq!(counters.drops[DropReason::MessageTooLarge.index()], 1);
}

#[test]
fn delivers_the_close_frame_although_more_data_arrives() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    let mut sender = client.client.tcp();
    let sending = std::thread::spawn(move || {
        // The write fails when the server closes.
        let _ = sender.write_all(&[0xff; 10_000_000]);
    });
    assert_eq!(client.receive(), Received::Close(Some(1002)));
    assert_eq!(client.receive(), Received::End);
    drop(client);
    sending.join().unwrap();
}

#[test]
fn closes_clients_that_do_not_read_their_responses_and_serves_others() {
    let server = HttpServer::with(unlimited_behind_proxy());
    for (protocol, mut slow) in server.both_web_clients() {
        slow.join(1);
        let mut busy = server.web_client();
        let slow_reader = DropReason::SlowReader.index();
        let hashes: Vec<InfoHash> = (0..128).map(numbered_hash).collect();
        server.wait_for_counts(protocol, "a slow reader", |it| {
            (0..10).for_each(|_| slow.scrape(&hashes));
            busy.expect_nothing();
            it.drops[slow_reader] == 1
        });
        // More than a client has to answer a close frame.
        server.advance(10);
        server.wait_for_web_peers(0);
    }
}

#[test]
fn a_connection_has_few_peers_of_a_torrent_and_a_bounded_number_in_all() {
    let of_one = limits::WEB_PEERS_PER_CONNECTION as u8;
    let torrents_max = limits::WEB_PEERS_PER_CONNECTION + 1;
    let server = HttpServer::web(WebOptions { torrents_max, ..WebOptions::default() });
    let mut client = server.web_client();
    for peer in 0..of_one {
        assert_eq!(client.join(peer), announced(0, u64::from(peer) + 1));
    }
    assert_eq!(client.join(100), failure(Refusal::TooManyPeers));
    // A known one is announced again, and another takes the place of one that stops.
    assert_eq!(client.join(1), announced(0, of_one.into()));
    client.announce(&Announce { event: Event::Stopped, ..leecher(1) });
    assert_eq!(client.receive(), announced(0, u64::from(of_one) - 1));
    assert_eq!(client.join(100), announced(0, of_one.into()));
    // Of another torrent there may be one.
    client.announce(&Announce { info_hash: numbered_hash(1), ..leecher(1) });
    client.receive();
    assert_eq!(client.join(101), failure(Refusal::TooManyTorrents));
}

#[test]
fn slows_down_floods_of_frames_and_serves_others() {
    let messages_per_s = 10;
    let server = HttpServer::web(WebOptions { messages_per_s, ..WebOptions::default() });
    let mut flooding = server.web_client();
    flooding.send(written(|out| frames::ping(out, MASK, b"x")).repeat(5 * 10));
    for _ in 0..3 {
        for _ in 0..messages_per_s {
            assert_eq!(flooding.receive(), Received::Pong(b"x".into()));
        }
        // The worker writes what all connections have, so further pongs would be there by now.
        assert_eq!(server.web_client().join(1), announced(0, 1));
        server.wait_for_web_peers(0);
        flooding.client.tcp().set_nonblocking(true).unwrap();
        let more = flooding.client.0.receive_more().unwrap_err();
        assert_eq!(more.kind(), std::io::ErrorKind::WouldBlock);
        flooding.client.tcp().set_nonblocking(false).unwrap();
        server.advance(1);
    }
}

/// A browser that does not read fast enough misses offers, and keeps its connection and its responses.
#[test]
fn offers_that_are_not_read_close_no_browser() {
    let server = HttpServer::with(unlimited_behind_proxy());
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(100_000));
    let unread = DropReason::RelayUnread.index();
    let pairs = server.both_web_clients().into_iter().zip(server.both_web_clients());
    for ((protocol, mut browser), (_, mut hostile)) in pairs {
        browser.join(1);
        server.wait_for_counts(protocol, "offers are dropped", |it| {
            hostile.announce_beside_offers(&offering_json(2, 1, &json));
            it.drops[unread] >= 10
        });
        // Its own response fits behind the offers that it has not read.
        browser.announce(&leecher(1));
        let mut offers = 0;
        while let Received::Message(Message::Offer { offer, .. }) = browser.receive() {
            assert_eq!(offer.json.len(), json.len());
            offers += 1;
        }
        assert!(offers > 0);
        // Later offers are delivered again.
        hostile.announce_beside_offers(&offering(2, 1));
        browser.receive_offers(1);
        drop((browser, hostile));
        server.wait_for_web_peers(0);
    }
    for counters in server.finish_both(WEB) {
        assert_eq!(counters.drops[DropReason::SlowReader.index()], 0);
        assert_eq!(counters.drops[DropReason::UnsentMemory.index()], 0);
    }
}

#[test]
fn offers_over_the_rate_are_not_relayed_and_their_announce_is_answered() {
    let server = HttpServer::start();
    let announces = Rate { per_s: 100_000, burst: 0 };
    server.tracker.limiter().replace(Limits { announces, ..Limits::default() });
    let _others = server.joined(3);
    // All but one of the offers that may come at once.
    let before = limits::OFFERS_BURST as usize - 1;
    let view = server.tracker.view(Tick(0));
    assert_eq!(view.admit_offers([127, 0, 0, 1].into(), before), before);
    let mut offerer = server.web_client();
    offerer.announce(&offering(4, 3));
    assert_eq!(offerer.receive(), announced(0, 4));
    drop(offerer);
    let counters = server.finish(Protocol::Ws);
    assert_eq!((counters.peers_sent, counters.drops[DropReason::OfferRate.index()]), (1, 2));
}
