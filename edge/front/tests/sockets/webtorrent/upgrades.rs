//! Upgrades from HTTP to WebSocket.

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
fn upgrades_at_the_configured_paths() {
    let server = HttpServer::start();
    for (path, expected) in
        [("/a/b/c?d", 101), ("/announce/0123456789abcdef", 403), ("/health/live", 404)]
    {
        assert_eq!(status(&server, path, ""), expected, "{path}");
    }
    let paths = vec!["/announce".into(), "/ws".into()];
    let server = HttpServer::web(WebOptions { paths, ..WebOptions::default() });
    for (path, expected) in
        [("/announce", 101), ("/announce?x", 101), ("/ws", 101), ("/", 404), ("/ws/", 404)]
    {
        assert_eq!(status(&server, path, ""), expected, "{path}");
    }
    let off = HttpServer::with(HttpOptions { web: None, ..HttpOptions::default() });
    assert_eq!(status(&off, "/ws", ""), 404);
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
