//! From HTTP to WebSocket.

use super::*;
use tracker::Networks;

fn request(target: &str, headers: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nhost: x\r\nUPGRADE: WebSocket\r\nconnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: whatever\r\nSec-WebSocket-Extensions: permessage-deflate\r\n{headers}\r\n"
    )
}

fn status(server: &Server, request: &str) -> String {
    let mut client = server.connect();
    client.say(request.as_bytes());
    while !client.heard.windows(2).any(|end| end == b"\r\n") {
        assert!(client.read_more());
    }
    let text = String::from_utf8_lossy(&client.heard);
    text.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap().into()
}

//= rfc6455#client-handshake
//= type=test
//= rfc6455#extensions
//= type=test
#[test]
fn upgrades_are_made_whatever_the_case_of_the_headers() {
    let server = Server::start(WebOptions::default());
    let mut client = server.connect();
    client.say(request("/", "").as_bytes());
    while !client.heard.ends_with(b"\r\n\r\n") {
        assert!(client.read_more());
    }
    let head = String::from_utf8_lossy(&client.heard).to_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(!head.contains("protocol:") && !head.contains("extensions"), "{head}");
}

#[test]
fn frames_may_come_with_the_request_and_after_other_requests() {
    let server = Server::start(WebOptions::default());
    let mut client = server.connect();
    let mut bytes = request("/", "").into_bytes();
    let mut text = Vec::new();
    client::announce(&mut text, &leecher(1));
    ws::client::text(&mut bytes, MASK, &String::from_utf8(text).unwrap());
    client.say(&bytes);
    client.expect_upgrade();
    assert_eq!(client.hear(), announced(0, 1));
    let first = client;
    // On a connection that was kept; one by one.
    let mut client = server.connect();
    client.say(b"GET /none HTTP/1.1\r\n\r\n");
    while !client.heard.ends_with(b"\n") {
        assert!(client.read_more());
    }
    client.heard.clear();
    for byte in &bytes {
        client.say(std::slice::from_ref(byte));
    }
    client.expect_upgrade();
    assert_eq!(client.hear(), announced(0, 2));
    drop((first, client));
    server.await_peers(0);
    let http = server.counters(Protocol::Http);
    let web = server.end();
    assert_eq!((web.connections_opened, web.connections_closed), (2, 2));
    assert_eq!(http.drops, Counters::default().drops);
}

#[test]
fn paths_are_those_that_mean_nothing_or_those_that_are_named() {
    let server = Server::start(WebOptions::default());
    for (path, expected) in [
        ("/", "101 Switching Protocols"),
        ("/ws?x=y", "101 Switching Protocols"),
        ("/0123456789abcdef", "101 Switching Protocols"),
        ("/announce", "200 OK"),
        ("/scrape", "200 OK"),
        ("/health/live", "404 Not Found"),
    ] {
        assert_eq!(status(&server, &request(path, "")), expected, "{path}");
    }
    let paths = vec!["/announce".into(), "/ws".into()];
    let server = Server::start(WebOptions { paths, ..WebOptions::default() });
    for (path, expected) in [
        ("/announce", "101 Switching Protocols"),
        ("/ws", "101 Switching Protocols"),
        ("/", "404 Not Found"),
        ("/ws/", "404 Not Found"),
    ] {
        assert_eq!(status(&server, &request(path, "")), expected, "{path}");
    }
    let off = Server::with(1, HttpOptions { web: None, ..HttpOptions::default() });
    assert_eq!(status(&off, &request("/", "")), "404 Not Found");
}

#[test]
fn a_browser_gets_a_sentence() {
    let server = Server::start(WebOptions::default());
    let mut client = server.connect();
    client.say(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    let page = client.read_all();
    assert!(page.starts_with("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n"), "{page}");
    assert!(page.contains("WebTorrent clients connect here by WebSocket"), "{page}");
}

//= rfc6455#version
//= type=test
#[test]
fn broken_requests_are_told_what_is_wrong() {
    let server = Server::start(WebOptions::default());
    let good = request("/", "");
    for (request, expected) in [
        (good.replace("13\r\n", "8\r\n"), "426 Upgrade Required"),
        (good.replace("==\r\n", "\r\n"), "400 Bad Request"),
        (good.replace("keep-alive, Upgrade", "keep-alive"), "400 Bad Request"),
        (good.replace("host: x\r\n", ""), "400 Bad Request"),
        (good.replace("HTTP/1.1", "HTTP/1.0"), "400 Bad Request"),
    ] {
        assert_eq!(status(&server, &request), expected, "{request}");
    }
    drop(server.client());
    server.await_peers(0);
    let mut server = server;
    server.stop_all();
    let counters = server.counters(Protocol::Http);
    assert_eq!(counters.drops[DropReason::BadUpgrade.index()], 5);
}

//= rfc6455#origin
//= type=test
#[test]
fn origins_are_allowed_and_denied() {
    let start = |allow: &[&str], deny: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|text| String::from(*text)).collect();
        let (origins_allow, origins_deny) = (owned(allow), owned(deny));
        Server::start(WebOptions { origins_allow, origins_deny, ..WebOptions::default() })
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
        let made = headers.map(|header| match &*status(&server, &request("/", header)) {
            "101 Switching Protocols" => true,
            "403 Forbidden" => false,
            other => panic!("{other}"),
        });
        assert_eq!(made, expected);
    }
}

#[test]
fn a_trusted_proxy_says_who_connects() {
    let forwarded = request("/", "X-Forwarded-For: 2001:db8::1\r\n");
    let line = "PROXY TCP6 2001:db8::1 2001:db8::2 4711 6969\r\n";
    for (proxy_protocol, text) in [(false, forwarded), (true, line.to_owned() + &request("/", ""))]
    {
        let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
        let options = HttpOptions { trusted_proxies, proxy_protocol, ..HttpOptions::default() };
        let server = Server::with(1, options);
        let mut client = server.connect();
        client.say(text.as_bytes());
        client.expect_upgrade();
        client.join(1);
        drop(client);
        assert_eq!(server.end().requests[1][RequestKind::Announce.index()], 1);
    }
}

#[test]
fn connections_of_both_kinds_are_bounded_together() {
    let server = Server::with(1, HttpOptions { connections_max: 2, ..HttpOptions::default() });
    let (one, _two) = (server.client(), server.client());
    let mut above = server.connect();
    above.say(request("/", "").as_bytes());
    assert_eq!(above.read_all(), "");
    drop(one);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = server.connect();
        client.say(request("/", "").as_bytes());
        if client.read_more() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(Instant::now() < deadline);
    }
}
