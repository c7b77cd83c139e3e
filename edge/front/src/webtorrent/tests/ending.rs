//! How connections end.

use super::*;

//= webtorrent#leave
//= type=test
#[test]
fn whoever_goes_leaves_all_torrents() {
    let server = Server::start(WebOptions::default());
    for way in 0..3 {
        let mut client = server.client();
        client.join(1);
        client.announce(&Announce { info_hash: InfoHash([b'i'; 20]), ..leecher(1) });
        while server.tracker.totals().web.leechers != 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        match way {
            0 => {
                let mut frame = Vec::new();
                ws::client::close(&mut frame, MASK, CloseCode(1001), "bye");
                client.say(&frame);
                while client.read_more() {}
                assert!(client.heard.ends_with(&[0x88, 2, 3, 0xe9]));
            }
            // Half closed, and with a reset, since something is unread.
            1 => client.stream.shutdown(std::net::Shutdown::Write).unwrap(),
            _ => drop(client),
        }
        let deadline = Instant::now() + PATIENCE;
        while server.tracker.totals().web.leechers != 0 {
            assert!(Instant::now() < deadline, "{way}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    client.announce(&leecher(1));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.hear(), announced(0, 1));
    assert_eq!(client.hear(), Heard::End);
    server.await_peers(0);
}

//= rfc6455#close-answer
//= type=test
#[test]
fn a_close_without_a_code_is_answered() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    client.say(&[0x88, 0x80, 0, 0, 0, 0]);
    client.hear_close(1000);
}

#[test]
fn stopping_says_so_to_everybody() {
    let mut server = Server::with(2, HttpOptions::default());
    let mut clients: Vec<Client> = (0..20).map(|n| server.client_of(n % 2)).collect();
    for (peer, client) in (1..).zip(&mut clients) {
        client.join(peer);
    }
    let stopping = server.stop.clone();
    stopping.send_replace(true);
    for client in &mut clients {
        client.hear_close(1001);
    }
    drop(clients);
    server.stop_all();
    assert_eq!(server.tracker.totals().web.leechers, 0);
}

#[test]
fn who_is_silent_is_pinged_and_then_gone() {
    let options = WebOptions { ping_s: 1, idle_timeout_s: 3, ..WebOptions::default() };
    let server = Server::start(options);
    let (mut alive, mut dead) = (server.client(), server.client());
    alive.join(1);
    dead.join(2);
    for _ in 0..3 {
        assert_eq!(alive.hear(), Heard::Ping(Vec::new()));
        let mut frame = Vec::new();
        ws::client::pong(&mut frame, MASK, b"");
        alive.say(&frame);
    }
    server.await_peers(1);
    assert_eq!(dead.hear(), Heard::Ping(Vec::new()));
    assert_eq!(dead.hear(), Heard::End);
    alive.join(1);
    drop((alive, dead));
    assert_eq!(server.end().drops[DropReason::TimedOut.index()], 1);
}
