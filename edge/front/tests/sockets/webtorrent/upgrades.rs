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

//= rfc6455#client-handshake
//= type=test
//= rfc6455#extensions
//= type=test
#[test]
fn ignores_the_case_of_upgrade_headers() {
    let server = HttpServer::start();
    let mut client = server.client();
    let head = client.send(request("/", "")).receive_head();
    assert_eq!(head.status, 101);
    assert_eq!(head.header("Sec-WebSocket-Protocol"), None);
    assert_eq!(head.header("Sec-WebSocket-Extensions"), None);
}

#[test]
fn accepts_frames_with_the_upgrade_request() {
    let server = HttpServer::start();
    let mut client = server.client();
    let mut bytes = request("/", "").into_bytes();
    bytes.extend(announce_frame(&leecher(1)));
    client.send(&bytes);
    let mut first = WebClient::expect_upgrade(client);
    assert_eq!(first.receive(), announced(0, 1));
    // Behind another request on the same connection, byte by byte.
    let mut client = server.client();
    assert_eq!(client.request("GET /none HTTP/1.1\r\n\r\n").status, 404);
    for byte in &bytes {
        client.send([*byte]);
    }
    let mut second = WebClient::expect_upgrade(client);
    assert_eq!(second.receive(), announced(0, 2));
    drop((first, second));
    server.wait_for_web_peers(0);
    let http = server.counters(Protocol::Http);
    let web = server.finish(Protocol::Ws);
    assert_eq!((web.connections_opened, web.connections_closed), (2, 2));
    assert_eq!(http.drops, Counters::default().drops);
}

#[test]
fn upgrades_at_the_configured_paths() {
    let server = HttpServer::start();
    for (path, expected) in [
        ("/", 101),
        ("/ws?x=y", 101),
        ("/0123456789abcdef", 101),
        ("/announce", 101),
        ("/announce?info_hash=x&peer_id=y&port=1", 101),
        ("/announce/", 101),
        ("/scrape", 101),
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

#[test]
fn explains_the_endpoint_to_browsers() {
    let server = HttpServer::start();
    let mut client = server.client();
    let page = client.request("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!((page.status, page.header("Upgrade")), (426, Some("websocket")));
    assert!(page.has("WebTorrent clients connect here by WebSocket"), "{}", page.text());
}

//= rfc6455#version
//= type=test
#[test]
fn answers_malformed_upgrade_requests_with_their_fault() {
    let server = HttpServer::start();
    let good = request("/", "");
    for (request, expected) in [
        (good.replace("13\r\n", "8\r\n"), 426),
        (good.replace("==\r\n", "\r\n"), 400),
        (good.replace("keep-alive, Upgrade", "keep-alive"), 400),
        (good.replace("host: x\r\n", ""), 400),
        (good.replace("HTTP/1.1", "HTTP/1.0"), 400),
    ] {
        assert_eq!(status(&server, &request), expected, "{request}");
    }
    assert_eq!(server.finish(Protocol::Http).drops[DropReason::BadUpgrade.index()], 5);
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

#[test]
fn takes_client_addresses_from_trusted_proxies() {
    let forwarded = request("/", "X-Forwarded-For: 2001:db8::1\r\n");
    let wrapped = proxy_line("2001:db8::1") + &request("/", "");
    for (options, text) in [(behind_proxy(), forwarded), (behind_proxy_protocol(), wrapped)] {
        let server = HttpServer::with(options);
        let mut client = server.client();
        client.send(text);
        let mut client = WebClient::expect_upgrade(client);
        client.join(1);
        drop(client);
        assert_eq!(server.finish(Protocol::Ws).requests[1][RequestKind::Announce.index()], 1);
    }
}

#[test]
fn limits_http_and_websocket_connections_together() {
    let server = HttpServer::with(HttpOptions { connections_max: 2, ..HttpOptions::default() });
    let (one, _two) = (server.web_client(), server.web_client());
    assert_eq!(server.client().send(request("/", "")).receive_rest(), b"");
    drop(one);
    wait_until("another is let in", || {
        server.client().send(request("/", "")).0.receive_head().is_ok()
    });
}
