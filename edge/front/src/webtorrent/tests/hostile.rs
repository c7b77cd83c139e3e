//! Clients that do what they should not.

use super::*;

//= rfc6455#masked-client
//= type=test
#[test]
fn broken_frames_end_the_connection_with_the_right_code() {
    let server = Server::start(WebOptions::default());
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
        let mut client = server.client();
        client.say(&frames);
        client.hear_close(code);
    }
    let counters = server.end();
    assert_eq!(counters.drops[DropReason::BadFrame.index()], 7);
    assert_eq!(counters.drops[DropReason::MessageTooLarge.index()], 1);
}

#[test]
fn what_still_comes_behind_a_fault_does_not_lose_the_close_frame() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        // As long as it is taken: the server stops reading, or closes.
        let _ = sender.write_all(&[0xff; 10_000_000]);
    });
    assert_eq!(client.hear(), Heard::Close(Some(1002)));
    assert_eq!(client.hear(), Heard::End);
    drop(client);
    sending.join().unwrap();
}

#[test]
fn messages_that_make_no_sense_get_a_sentence_and_no_more() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
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
        client.text(&text);
        assert_eq!(client.hear(), Heard::Failure(refusal.text().into()), "{text:.80}");
    }
    assert_eq!(client.join(1), announced(0, 1));
}

#[test]
fn who_does_not_read_is_closed_and_others_are_served() {
    let options = WebOptions { unread_max: 64 * 1024, ..WebOptions::default() };
    let server = Server::start(options);
    let mut lazy = server.client();
    lazy.join(1);
    let mut busy = server.client();
    busy.announce(&leecher(2));
    busy.hear();
    // What the kernel takes for the lazy one is a few megabytes.
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(50_000));
    let offer = Offer { id: offer_id(1), json: &json };
    let announce = Announce { offers: [offer].into_iter().collect(), ..leecher(2) };
    let deadline = Instant::now() + PATIENCE;
    while server.counts().web.leechers == 2 {
        busy.announce(&announce);
        assert!(matches!(busy.hear(), Heard::Announced { .. }));
        assert!(Instant::now() < deadline);
    }
    drop((lazy, busy));
    let counters = server.end();
    assert_eq!(counters.drops[DropReason::SlowReader.index()], 1);
}

#[test]
fn who_reads_again_after_a_while_gets_everything() {
    let server = Server::start(WebOptions { unread_max: 64 << 20, ..WebOptions::default() });
    let (mut lazy, mut busy) = (server.client(), server.client());
    lazy.join(1);
    busy.join(2);
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(50_000));
    let rounds = 200;
    for round in 0..rounds {
        let mut id = [0; 20];
        id[..2].copy_from_slice(&u16::to_be_bytes(round));
        let offer = Offer { id: OfferId(id), json: &json };
        busy.announce(&Announce { offers: [offer].into_iter().collect(), ..leecher(2) });
        assert_eq!(busy.hear(), announced(0, 2));
    }
    for round in 0..rounds {
        let Heard::Offer { id, json: heard, .. } = lazy.hear() else { panic!("{round}") };
        assert_eq!((id.0[0], id.0[1]), ((round >> 8) as u8, round as u8));
        assert_eq!(heard.len(), json.len());
    }
    lazy.hears_nothing();
}

#[test]
fn torrents_of_a_connection_are_bounded() {
    let server = Server::start(WebOptions { torrents_max: 3, ..WebOptions::default() });
    let mut client = server.client();
    for peer in 1..=3 {
        client.join(peer);
    }
    let refused = Heard::Failure(Refusal::TooManyTorrents.text().into());
    assert_eq!(client.join(4), refused);
    assert_eq!(client.join(3), announced(0, 3));
    client.announce(&Announce { event: Event::Stopped, ..leecher(1) });
    client.hear();
    assert_eq!(client.join(4), announced(0, 3));
}

#[test]
fn floods_of_frames_wait_while_others_are_served() {
    let server = Server::start(WebOptions { messages_per_s: 10, ..WebOptions::default() });
    let mut flooding = server.client();
    let mut sender = flooding.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let mut frame = Vec::new();
        ws::client::ping(&mut frame, MASK, b"x");
        let _ = sender.write_all(&frame.repeat(1_000_000));
    });
    let before = Instant::now();
    for _ in 0..25 {
        assert_eq!(flooding.hear(), Heard::Pong(b"x".into()));
    }
    // 25 of 10 in a second: at least one second has passed on the server's clock.
    assert!(before.elapsed() >= Duration::from_millis(500));
    let mut good = server.client();
    assert_eq!(good.join(1), announced(0, 1));
    drop(flooding.stream.shutdown(std::net::Shutdown::Both));
    sending.join().unwrap();
}

#[test]
fn one_byte_at_a_time_is_well() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    let (mut text, mut frame) = (Vec::new(), Vec::new());
    client::announce(&mut text, &leecher(1));
    ws::client::text(&mut frame, MASK, &String::from_utf8(text).unwrap());
    for byte in frame {
        client.say(&[byte]);
    }
    assert_eq!(client.hear(), announced(0, 1));
}
