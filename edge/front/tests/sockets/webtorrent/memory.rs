//! Messages that do not end, and the memory that connections hold together.

use super::*;

/// A message in a single frame, whose end is missing.
fn stuck(len: usize) -> Vec<u8> {
    let mut frame = written(|out| frames::text(out, MASK, &"x".repeat(120_000)));
    frame.truncate(len);
    frame
}

/// Sends bytes, and waits until the server has read them.
fn send_and_wait(server: &HttpServer, client: &mut WebClient, bytes: &[u8]) {
    let before = server.counters(Protocol::Ws).bytes_in;
    client.send(bytes);
    let expected = before + bytes.len() as u64;
    server.wait_for_counts(Protocol::Ws, "input is read", |it| it.bytes_in >= expected);
}

#[test]
fn closes_messages_that_do_not_end_in_time() {
    let timeout_s = WebOptions::default().message_timeout_s;
    let mut fragment = written(|out| frames::text(out, MASK, &"x".repeat(70_000)));
    fragment[0] = 0x01;
    // A frame that does not end, and a message whose last frame does not come.
    for (begin, answers_pings) in [(stuck(70_000), false), (fragment, true)] {
        let server = HttpServer::start();
        let mut client = server.web_client();
        send_and_wait(&server, &mut client, &begin);
        // Neither more of the message nor pings in between give it more time.
        for _ in 0..2 {
            server.advance(timeout_s / 2);
            if answers_pings {
                client.ping(b"");
                assert_eq!(client.receive(), Received::Pong([].into()));
            } else {
                send_and_wait(&server, &mut client, b"x");
            }
        }
        server.advance(1);
        client.expect_close(1008);
        drop(client);
        assert_eq!(server.finish(Protocol::Ws).drops[DropReason::SlowMessage.index()], 1);
    }
}

#[test]
fn gives_every_message_its_own_time() {
    let timeout_s = WebOptions::default().message_timeout_s;
    let server = HttpServer::start();
    let mut client = server.web_client();
    let frame = announce_frame(&leecher(1));
    let (begin, end) = frame.split_at(frame.len() / 2);
    // The end of each message comes with the beginning of the next.
    send_and_wait(&server, &mut client, begin);
    for _ in 0..5 {
        server.advance(timeout_s - 1);
        send_and_wait(&server, &mut client, &[end, begin].concat());
        assert_eq!(client.receive(), announced(0, 1));
    }
    client.send(end);
    assert_eq!(client.receive(), announced(0, 1));
    server.advance(timeout_s + 1);
    client.expect_nothing();
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::SlowMessage.index()], 0);
}

#[test]
fn closes_the_largest_holders_of_unfinished_messages() {
    const LEN: usize = 60_000;
    let memory_limits = MemoryLimits { read_max: 10 * LEN, ..MemoryLimits::default() };
    let server = HttpServer::set_up(Setup { memory_limits, ..Setup::default() });
    let mut small = server.web_client();
    send_and_wait(&server, &mut small, &stuck(1000));
    let mut large: Vec<WebClient> = (0..10).map(|_| server.web_client()).collect();
    for client in &mut large {
        send_and_wait(&server, client, &stuck(LEN));
    }
    // The one whose message was too much gets the reason.
    assert_eq!(large[9].receive(), Received::Close(Some(1013)));
    assert_eq!(large[9].receive(), Received::End);
    server.wait_for_counts(Protocol::Ws, "some are closed", |it| {
        it.connections_closed >= 3
            && it.connections_closed == it.drops[DropReason::ReadMemory.index()]
    });
    // The small holder and others are served.
    assert_eq!(server.web_client().join(1), announced(0, 1));
    send_and_wait(&server, &mut small, b"more");
    drop(large);
    server.wait_for_counts(Protocol::Ws, "one is left", |it| it.connections_open == 1);
}

/// Messages of others that wait for many clients close none of them. When they take too much memory, those
/// that read nothing at all make room.
#[test]
fn offers_that_nobody_reads_take_bounded_memory() {
    const CLIENTS: u8 = 6;
    let memory_limits = MemoryLimits { unsent_max: 512 << 10, ..MemoryLimits::default() };
    let options = unlimited_behind_proxy();
    let server = HttpServer::set_up(Setup { options, memory_limits, ..Setup::default() });
    let slow = server.joined(CLIENTS);
    let mut busy = server.web_client();
    busy.join(99);
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(50_000));
    let announce = offering_json(99, 2, &json);
    let of = |it: &Counters, reason: DropReason| it.drops[reason.index()];
    server.wait_for_counts(Protocol::Ws, "offers are dropped", |it| {
        busy.announce_beside_offers(&announce);
        of(it, DropReason::RelayUnread) >= 20 * u64::from(CLIENTS)
    });
    let counters = server.counters(Protocol::Ws);
    assert_eq!((counters.connections_closed, of(&counters, DropReason::UnsentMemory)), (0, 0));
    server.advance(types::limits::RELAYED_UNREAD_S + 1);
    server.wait_for_counts(Protocol::Ws, "one that reads nothing is closed", |it| {
        busy.announce_beside_offers(&announce);
        of(it, DropReason::UnsentMemory) > 0
    });
    drop((slow, busy));
    assert_eq!(of(&server.finish(Protocol::Ws), DropReason::SlowReader), 0);
}

#[test]
fn closes_the_connections_with_the_most_torrents() {
    // One peer id for all.
    const TORRENT_BYTES: usize = 20;
    let torrents_max = 1000 * TORRENT_BYTES;
    let memory_limits = MemoryLimits { torrents_max, ..MemoryLimits::default() };
    let server = HttpServer::set_up(Setup { memory_limits, ..Setup::default() });
    let mut small = server.web_client();
    assert_eq!(small.join(1), announced(0, 1));
    let mut large = server.web_client();
    for number in 0..2000 {
        let announce = Announce { info_hash: numbered_hash(number), ..leecher(2) };
        // The server may close it meanwhile.
        let _ = large.client.0.send(announce_frame(&announce));
    }
    server.wait_for_counts(Protocol::Ws, "the large one is closed", |it| {
        it.drops[DropReason::TorrentMemory.index()] == 1 && it.connections_closed == 1
    });
    server.wait_for_web_peers(1);
    small.expect_nothing();
}
