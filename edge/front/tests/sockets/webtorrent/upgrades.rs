//! Upgrades from HTTP to WebSocket.

use super::*;

fn request(target: &str, headers: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nhost: x\r\nUPGRADE: WebSocket\r\nconnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: whatever\r\nSec-WebSocket-Extensions: permessage-deflate\r\n{headers}\r\n"
    )
}

/// Returns the status of the response to a request on a connection of its own.
fn status(server: &HttpServer, request: &str) -> u16 {
    server.client().send(request).receive_head().status
}

#[test]
fn accepts_frames_with_the_upgrade_request() {
    let mut server = HttpServer::start();
    let mut bytes = request("/", "").into_bytes();
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
    server.end();
    for protocol in [Protocol::Ws, Protocol::Wss] {
        let counters = server.counters(protocol);
        assert_eq!((counters.connections_opened, counters.connections_closed), (2, 2));
    }
    assert_eq!(server.counters(Protocol::Http).drops, Counters::default().drops);
}

#[test]
fn upgrades_at_the_configured_paths() {
    let server = HttpServer::start();
    for (path, expected) in [
        ("/0123456789abcdef", 101),
        ("/a/b/c?d", 101),
        ("/announce/0123456789abcdef", 403),
        ("/health/live", 404),
    ] {
        assert_eq!(status(&server, &request(path, "")), expected, "{path}");
    }
    let paths = vec!["/announce".into(), "/ws".into()];
    let server = HttpServer::web(WebOptions { paths, ..WebOptions::default() });
    for (path, expected) in
        [("/announce", 101), ("/announce?x", 101), ("/ws", 101), ("/", 404), ("/ws/", 404)]
    {
        assert_eq!(status(&server, &request(path, "")), expected, "{path}");
    }
    let off = HttpServer::with(HttpOptions { web: None, ..HttpOptions::default() });
    assert_eq!(status(&off, &request("/ws", "")), 404);
}

//= rfc6455#origin
//= type=test
#[test]
fn applies_the_lists_of_origins() {
    let start = |allow: &[&str], deny: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|text| String::from(*text)).collect();
        let (origins_allow, origins_deny) = (owned(allow), owned(deny));
        HttpServer::web(WebOptions { origins_allow, origins_deny, ..WebOptions::default() })
    };
    let (good, bad) = ("https://good.test", "https://bad.test");
    for (server, expected) in [
        (start(&[], &[]), [true, true, true]),
        (start(&[good], &[]), [true, false, false]),
        (start(&[good, ""], &[]), [true, false, true]),
        (start(&[], &[bad]), [true, false, true]),
        (start(&[], &[bad, ""]), [true, false, false]),
        (start(&[good, bad], &[bad]), [true, false, false]),
    ] {
        let headers = ["Origin: HTTPS://good.test\r\n", "Origin: https://bad.test\r\n", ""];
        let made = headers.map(|header| match status(&server, &request("/", header)) {
            101 => true,
            403 => false,
            other => panic!("{other}"),
        });
        assert_eq!(made, expected);
    }
}
