//! Upgrades from HTTP to WebSocket, and ends of connections.

use super::*;

/// Returns the status of the response to a request for a WebSocket with `headers`.
fn status(server: &HttpServer, path: &str, headers: &str) -> u16 {
    let request = get(path, &format!("{UPGRADE}{headers}"));
    server.client().send(request).receive_head().status
}

#[test]
fn accepts_frames_with_the_upgrade_request() {
    let server = HttpServer::start();
    let mut bytes = web_request("/").into_bytes();
    bytes.extend(announce_frame(&leecher(1)));
    for parts in [1, bytes.len()] {
        for (_, mut client) in server.both_clients() {
            // Behind another request on the same connection.
            assert_eq!(client.request(PROBE).status, 404);
            bytes.chunks(parts).for_each(|part| _ = client.send(part));
            let mut web = WebClient::expect_upgrade(client);
            assert_eq!(web.receive(), announced(0, 1));
            drop(web);
            server.wait_for_web_peers(0);
        }
    }
    for counters in server.finish_both(WEB) {
        assert_eq!((counters.connections_opened, counters.connections_closed), (2, 2));
        assert_eq!(counters.drops, Counters::default().drops);
    }
}

#[test]
fn upgrades_at_every_path() {
    let server = HttpServer::start();
    for (path, expected) in [
        ("/a/b/c?d", 101),
        ("/announce?x", 101),
        ("/announce/0123456789abcdef", 403),
        ("/health/live", 404),
    ] {
        assert_eq!(status(&server, path, ""), expected, "{path}");
    }
}

//= rfc6455#origin
//= type=test
#[test]
fn applies_the_lists_of_origins() {
    let (good, bad) = ("https://good.test", "https://bad.test");
    for (allow, deny, expected) in [
        (&[][..], &[][..], [101, 101, 101]),
        (&[good], &[], [101, 403, 403]),
        (&[good, ""], &[], [101, 403, 101]),
        (&[], &[bad, ""], [101, 403, 403]),
        (&[good, bad], &[bad], [101, 403, 403]),
    ] {
        let [origins_allow, origins_deny] =
            [allow, deny].map(|list| list.iter().copied().map(String::from).collect());
        let web = WebOptions { origins_allow, origins_deny, ..WebOptions::default() };
        let server = HttpServer::web(web);
        let origins = ["Origin: HTTPS://good.test\r\n", "Origin: https://bad.test\r\n", ""];
        assert_eq!(origins.map(|origin| status(&server, "/", origin)), expected);
    }
}

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
    let mut clients = server.both_web_clients();
    clients.iter_mut().for_each(|(_, client)| _ = client.join(1));
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
    drop((alive, dead));
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::TimedOut.index()], 1);
}
