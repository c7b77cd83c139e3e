//! Ends of connections.

use super::*;

//= webtorrent#leave
//= type=test
//= rfc6455#close-answer
//= type=test
#[test]
fn removes_a_client_from_all_torrents_when_it_leaves() {
    let server = HttpServer::start();
    for ending in 0..4 {
        for (_, mut client) in server.both_web_clients() {
            client.join(1);
            client.announce(&Announce { info_hash: InfoHash([b'i'; 20]), ..leecher(1) });
            server.wait_for_web_peers(2);
            match ending {
                0 => {
                    client.send(written(|out| frames::close(out, MASK, CloseCode(1001), "bye")));
                    assert!(client.client.receive_rest().ends_with(&[0x88, 2, 3, 0xe9]));
                }
                // Without a code.
                1 => {
                    client.send([0x88, 0x80, 0, 0, 0, 0]);
                    assert!(client.client.receive_rest().ends_with(&[0x88, 2, 3, 0xe8]));
                }
                // Half closed: what came before is answered. With TLS, TCP is still open.
                2 => {
                    client.receive();
                    client.announce(&leecher(1));
                    client.client.0.stream.end_output();
                    assert_eq!(client.receive(), announced(0, 1));
                }
                // Closed with unread data, which is a reset.
                _ => drop(client),
            }
            server.wait_for_web_peers(0);
        }
    }
}

#[test]
fn sends_close_frames_to_all_clients_when_stopping() {
    let mut server = HttpServer::start();
    let mut clients: Vec<_> = (0..10).flat_map(|_| server.both_web_clients()).collect();
    for (peer, (_, client)) in (1..).zip(&mut clients) {
        client.join(peer);
    }
    server.begin_stop(Duration::ZERO);
    for (_, mut client) in clients {
        assert_eq!(client.receive(), Received::Close(Some(1001)));
        client.client.expect_end();
    }
    server.end();
    server.wait_for_web_peers(0);
}

#[test]
fn pings_silent_clients_and_then_closes() {
    let WebOptions { ping_s, idle_timeout_s, .. } = WebOptions::default();
    let server = HttpServer::start();
    let (mut alive, mut dead) = (server.web_client(), server.web_client());
    alive.join(1);
    dead.join(2);
    server.advance(ping_s + 1);
    assert_eq!(alive.receive(), Received::Ping(Vec::new()));
    assert_eq!(dead.receive(), Received::Ping(Vec::new()));
    alive.send(written(|out| frames::pong(out, MASK, b"")));
    alive.expect_nothing();
    server.advance(idle_timeout_s - ping_s);
    assert_eq!(dead.receive(), Received::End);
    server.wait_for_web_peers(1);
    // The other one is pinged again.
    assert_eq!(alive.receive(), Received::Ping(Vec::new()));
    assert_eq!(alive.join(1), announced(0, 1));
    drop((alive, dead));
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::TimedOut.index()], 1);
}
