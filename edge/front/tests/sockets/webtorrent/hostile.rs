//! Malformed input, and clients that read or write too slowly or too much.

use std::io::Write;

use types::limits;

use super::*;

//= rfc6455#masked-client
//= type=test
#[test]
fn closes_with_the_right_code_after_broken_frames() {
    let server = HttpServer::start();
    let mut too_big = vec![0x81, 0xff];
    too_big.extend(200_000_u64.to_be_bytes());
    too_big.extend(MASK);
    let mut not_utf8 = vec![0x81, 0x82];
    not_utf8.extend([0; 4]);
    not_utf8.extend([0xff, 0xff]);
    let mut fragments = vec![0x01, 0x80, 0, 0, 0, 0];
    fragments.extend([0x00, 0x80, 0, 0, 0, 0].repeat(5000));
    for (frames, code) in [
        (vec![0x81, 0x02, b'{', b'}'], 1002),
        (vec![0xc1, 0x80, 0, 0, 0, 0], 1002),
        (vec![0x83, 0x80, 0, 0, 0, 0], 1002),
        (vec![0x09, 0x80, 0, 0, 0, 0], 1002),
        (vec![0x80, 0x80, 0, 0, 0, 0], 1002),
        (not_utf8, 1007),
        (too_big, 1009),
        (fragments, 1008),
    ] {
        let mut client = server.web_client();
        client.send(&frames);
        client.expect_close(code);
    }
    let counters = server.finish(Protocol::Ws);
    assert_eq!(counters.drops[DropReason::BadFrame.index()], 7);
    assert_eq!(counters.drops[DropReason::MessageTooLarge.index()], 1);
}

#[test]
fn delivers_the_close_frame_although_more_data_arrives() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    let mut sender = client.client.0.stream.try_clone().unwrap();
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
fn answers_malformed_messages_with_a_failure_reason() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    let ids = r#""info_hash":"hhhhhhhhhhhhhhhhhhhh","peer_id":"pppppppppppppppppppp""#;
    for (text, refusal) in [
        ("".into(), Refusal::NotJson),
        ("null".into(), Refusal::NotJson),
        ("[".repeat(60_000), Refusal::NotJson),
        (r#"{"action":"dance"}"#.into(), Refusal::UnknownAction),
        ("{}".into(), Refusal::UnknownAction),
        (r#"{"action":"announce"}"#.into(), Refusal::InfoHashMissing),
        (
            format!(r#"{{"action":"announce","info_hash":"{}"}}"#, "68".repeat(20)),
            Refusal::InfoHashString,
        ),
        (
            r#"{"action":"announce","info_hash":"hhhhhhhhhhhhhhhhhhhĀ"}"#.into(),
            Refusal::InfoHashString,
        ),
        (
            r#"{"action":"announce","info_hash":"hhhhhhhhhhhhhhhhhhhh"}"#.into(),
            Refusal::PeerIdString,
        ),
        (format!(r#"{{"action":"announce",{ids},"offers":[null]}}"#), Refusal::OfferMalformed),
        (format!(r#"{{"action":"announce",{ids},"offers":{{}}}}"#), Refusal::OfferMalformed),
        (
            format!(r#"{{"action":"announce",{ids},"offers":[{{"offer_id":"x","offer":{{}}}}]}}"#),
            Refusal::OfferMalformed,
        ),
        (format!(r#"{{"action":"announce",{ids},"answer":7}}"#), Refusal::AnswerMalformed),
        (format!(r#"{{"action":"announce",{ids},"answer":{{}}}}"#), Refusal::AnswerMalformed),
        (r#"{"action":"scrape","info_hash":[null]}"#.into(), Refusal::InfoHashString),
    ] {
        client.send_text(&text);
        assert_eq!(client.receive(), Received::Failure(refusal.text().into()), "{text:.80}");
    }
    assert_eq!(client.join(1), announced(0, 1));
}

#[test]
fn closes_clients_that_do_not_read_their_responses_and_serves_others() {
    let options = WebOptions { messages_per_s: 0, ..WebOptions::default() };
    let server = HttpServer::web(options);
    let mut slow = server.web_client();
    slow.join(1);
    let mut busy = server.web_client();
    let slow_reader = DropReason::SlowReader.index();
    // The socket buffers of the client that does not read hold a few megabytes.
    server.wait_for_counts(Protocol::Ws, "a slow reader", |it| {
        (0..10).for_each(|number| slow.send(large_scrape(number)));
        busy.expect_nothing();
        it.drops[slow_reader] == 1
    });
    server.advance(CLOSE_S + 1);
    server.wait_for_web_peers(0);
    drop((slow, busy));
    assert_eq!(server.finish(Protocol::Ws).drops[slow_reader], 1);
}

#[test]
fn delivers_all_responses_to_clients_that_read_late() {
    let web = WebOptions { unread_max: 64 << 20, messages_per_s: 0, ..WebOptions::default() };
    let server = HttpServer::web(web);
    let mut slow = server.web_client();
    let rounds = 800;
    (0..rounds).for_each(|round| slow.send(large_scrape(round)));
    for round in 0..rounds {
        let Received::Scraped(files) = slow.receive() else { panic!("{round}") };
        assert_eq!(files.len(), 128);
        let numbers = files.iter().map(|file| &file.info_hash.0[..2]);
        assert!(numbers.into_iter().all(|number| number == round.to_be_bytes()), "{round}");
    }
    slow.expect_nothing();
}

#[test]
fn limits_torrents_per_connection() {
    let server = HttpServer::web(WebOptions { torrents_max: 3, ..WebOptions::default() });
    let mut client = server.web_client();
    for peer in 1..=3 {
        client.join(peer);
    }
    let refused = Received::Failure(Refusal::TooManyTorrents.text().into());
    assert_eq!(client.join(4), refused);
    assert_eq!(client.join(3), announced(0, 3));
    client.announce(&Announce { event: Event::Stopped, ..leecher(1) });
    client.receive();
    assert_eq!(client.join(4), announced(0, 3));
}

fn numbered_leecher(number: u16) -> Announce<'static> {
    let mut id = [b'a'; 20];
    id[..2].copy_from_slice(&number.to_be_bytes());
    Announce { event: Event::Started, left: Some(7), ..Announce::new(HASH, PeerId(id)) }
}

#[test]
fn a_connection_has_few_peers_of_a_torrent() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    for number in 0..limits::WEB_PEERS_PER_CONNECTION as u16 {
        client.announce(&numbered_leecher(number));
        assert_eq!(client.receive(), announced(0, u64::from(number) + 1));
    }
    let refused = Received::Failure(Refusal::TooManyPeers.text().into());
    for number in [100, 5, 6] {
        client.announce(&numbered_leecher(number));
        assert_eq!(client.receive(), refused);
    }
    client.announce(&numbered_leecher(1));
    assert_eq!(client.receive(), announced(0, 4));
    client.announce(&Announce { event: Event::Stopped, ..numbered_leecher(1) });
    assert_eq!(client.receive(), announced(0, 3));
    client.announce(&numbered_leecher(100));
    assert_eq!(client.receive(), announced(0, 4));
    assert_eq!(server.finish(Protocol::Ws).refusals[Refusal::TooManyPeers.index()], 3);
}

/// Announces with offers, and waits for the answer.
fn announce_as(client: &mut WebClient, number: u16, offers: u16) {
    let offers = (0..offers).map(|at| Offer { id: numbered_offer(at), json: OFFER }).collect();
    client.announce(&Announce { offers, ..numbered_leecher(number) });
    loop {
        match client.receive() {
            Received::Announced { .. } => return,
            Received::Offer { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A torrent of 100 honest browsers, and one address with 100 WebSockets that have as many peers as
/// each may. Returns how many peers the address holds, and how many of an honest browser's 100 offers
/// reach other honest ones.
fn drown(peer_caps: PeerCaps) -> (u64, u32) {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let server = HttpServer::with(HttpOptions { trusted_proxies, ..HttpOptions::default() });
    server.tracker.reconfigure(&Policy { peer_caps, ..Policy::default() });
    let mut honest: Vec<WebClient> =
        (0..100).map(|number| web_client_at(&server, &format!("45.0.{number}.1"))).collect();
    (0..).zip(&mut honest).for_each(|(number, client)| announce_as(client, number, 0));
    let mut hostile: Vec<WebClient> =
        (0..100).map(|_| web_client_at(&server, "93.184.216.34")).collect();
    for (number, client) in (1000..).step_by(10).zip(&mut hostile) {
        let numbers = number..number + limits::WEB_PEERS_PER_CONNECTION as u16;
        numbers.for_each(|number| announce_as(client, number, 0));
    }
    let held = server.web_peers() - 100;
    let mut asker = web_client_at(&server, "45.0.200.1");
    (0..10).for_each(|_| announce_as(&mut asker, 200, 10));
    let mut reached = 0;
    for client in &mut honest {
        let mut frame = Vec::new();
        frames::ping(&mut frame, MASK, b"end");
        client.send(&frame);
        while let Received::Offer { .. } = client.receive() {
            reached += 1;
        }
    }
    (held, reached)
}

#[test]
fn honest_browsers_find_each_other_beside_one_address_with_many_peers() {
    // The effect of the attack without caps.
    let (held, reached) = drown(PeerCaps::default());
    println!(
        "without caps: the address holds {held}; {reached} of 100 offers reach honest browsers"
    );
    assert!(held == 400 && reached < 35, "{held} {reached}");
    let (held, reached) = drown(Policy::default().peer_caps);
    println!("the address holds {held}; {reached} of 100 offers reach honest browsers");
    assert!(held == u64::from(limits::PEERS_PER_ADDRESS) && reached >= 80, "{held} {reached}");
}

/// One address announces more torrents than half of the memory holds. Browsers of other networks still find
/// room.
#[test]
fn one_address_cannot_fill_the_memory_of_browsers() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let web = Some(WebOptions { messages_per_s: 0, ..WebOptions::default() });
    let options = HttpOptions { trusted_proxies, web, ..HttpOptions::default() };
    let server = HttpServer::of(budgeted_tracker(4 << 20), options);
    const TORRENTS: u16 = 6000;
    let mut announces = Vec::new();
    for number in 0..TORRENTS {
        let (mut text, mut hash) = (Vec::new(), [b'x'; 20]);
        hash[..2].copy_from_slice(&number.to_be_bytes());
        messages::announce(&mut text, &Announce { info_hash: InfoHash(hash), ..leecher(2) });
        frames::text(&mut announces, MASK, &String::from_utf8(text).unwrap());
    }
    let mut hostile = web_client_at(&server, "20.9.9.9");
    let mut replies = hostile.client.0.stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut replies, &mut std::io::sink()));
    hostile.send(&announces);
    server.wait_for_counts(Protocol::Ws, "all are answered", |it| {
        it.responses[0][RequestKind::Announce.index()] == u64::from(TORRENTS)
    });
    assert!(server.web_peers() < 600, "{}", server.web_peers());
    for (number, ip) in (1..).zip(["61.1.1.1", "62.2.2.2", "2a01:1:1::1"]) {
        let mut honest = web_client_at(&server, ip);
        assert_eq!(honest.join(number as u8), announced(0, 1));
        let before = server.web_peers();
        drop(honest);
        server.wait_for_web_peers(before - 1);
    }
    drop(hostile.client.0.stream.shutdown(std::net::Shutdown::Both));
    drop(reading.join().unwrap());
    server.wait_for_web_peers(0);
}

#[test]
fn slows_down_floods_of_frames_and_serves_others() {
    let messages_per_s = 10;
    let server = HttpServer::web(WebOptions { messages_per_s, ..WebOptions::default() });
    let mut flooding = server.web_client();
    let mut sender = flooding.client.0.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let mut frame = Vec::new();
        frames::ping(&mut frame, MASK, b"x");
        let _ = sender.write_all(&frame.repeat(1_000_000));
    });
    for _ in 0..3 {
        for _ in 0..messages_per_s {
            assert_eq!(flooding.receive(), Received::Pong(b"x".into()));
        }
        // The worker writes what all connections have, so further pongs would be there by now.
        let mut good = server.web_client();
        assert_eq!(good.join(1), announced(0, 1));
        drop(good);
        flooding.client.0.stream.set_nonblocking(true).unwrap();
        let more = flooding.client.0.receive_more().unwrap_err();
        assert_eq!(more.kind(), std::io::ErrorKind::WouldBlock);
        flooding.client.0.stream.set_nonblocking(false).unwrap();
        server.wait_for_web_peers(0);
        server.advance(1);
    }
    drop(flooding.client.0.stream.shutdown(std::net::Shutdown::Both));
    sending.join().unwrap();
}

#[test]
fn accepts_frames_byte_by_byte() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    let (mut text, mut frame) = (Vec::new(), Vec::new());
    messages::announce(&mut text, &leecher(1));
    frames::text(&mut frame, MASK, &String::from_utf8(text).unwrap());
    for byte in frame {
        client.send([byte]);
    }
    assert_eq!(client.receive(), announced(0, 1));
}
