//! Announces of web browsers, which any page can have its visitors send.

use tracker::{Access, BanRules, KeyId, KeyRules};
use types::UserKey;

use super::*;

const KEY_TEXT: &str = "user-key-012345678";

/// The headers of Chromium for an image of a page, over HTTP.
const CHROMIUM: &str = "Connection: keep-alive\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 \
    Safari/537.36\r\n\
    Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8\r\n\
    Referer: http://forum.test/\r\nAccept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\n";

/// A private tracker that bans after an offence.
fn start_banning(options: HttpOptions) -> HttpServer {
    let server = HttpServer::with(options);
    set_access(&server.tracker, Access::Private);
    let key = UserKey::parse(KEY_TEXT).unwrap();
    assert!(server.tracker.passkeys().put(KeyId(1), key, KeyRules::default()));
    let rules = BanRules { wrong_keys_per_min: 1, malformed_per_min: 1, time_s: 60 };
    server.tracker.bans().set_rules(rules);
    server
}

fn with_key(key: &str) -> String {
    announce(443, "").replacen("/announce", &format!("/announce/{key}"), 1)
}

/// A page could otherwise use up its visitor's rate, or the seats of a key that it knows.
#[test]
fn announces_of_browsers_are_refused_and_cost_nothing() {
    // Without WebTorrent, a request for a WebSocket is one like others.
    let server = start_banning(HttpOptions { web: None, ..behind_proxy() });
    let announces = tracker::Rate { per_s: 1, burst: 1 };
    server.tracker.limiter().replace(tracker::Limits { announces, ..Default::default() });
    let reason = Refusal::Browser.text();
    let retry = "8:intervali86400e12:min intervali86400e8:retry in5:never";
    let refusal = format!("d14:failure reason{}:{reason}{retry}e", reason.len());
    let proxied = format!("Via: 1.1 proxy\r\nX-Forwarded-For: 192.0.2.9\r\n{CHROMIUM}");
    let upgrade = format!("{UPGRADE}Origin: https://forum.test\r\n");
    for (_, mut client) in server.both_clients() {
        for headers in [CHROMIUM, &upgrade, &proxied] {
            let request = get(&with_key(KEY_TEXT), headers);
            let response = client.request(&request);
            assert_eq!((response.status, response.text()), (200, refusal.clone()), "{headers}");
            client.send(request.replacen("GET", "HEAD", 1));
            assert_eq!(client.receive_head().status, 200);
        }
    }
    assert_eq!(server.tracker.totals().torrents, 0);
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    assert!(totals.is_empty() && server.tracker.passkeys().sessions() == 0, "{totals:?}");
    assert!(server.client().request(get(&with_key(KEY_TEXT), "")).has("8:complete"));
    assert_eq!(server.finish(Protocol::Http).refusals[Refusal::Browser.index()], 6);
}

#[test]
fn a_page_has_no_visitor_banned() {
    let server = start_banning(HttpOptions::default());
    let wrong = with_key("aaaaaaaaaaaaaaaa");
    let upgrade = format!("{UPGRADE}{CHROMIUM}");
    // Images; a form; `https:` with the port of HTTP; and a WebSocket.
    let sent: [Vec<u8>; 6] = [
        get(&wrong, CHROMIUM).into(),
        get("/scrape/aaaaaaaaaaaaaaaa?info_hash=aaaaaaaaaaaaaaaaaaaa", CHROMIUM).into(),
        get(&format!("/{}", "x".repeat(16 << 10)), CHROMIUM).into(),
        format!("POST /{wrong} HTTP/1.1\r\n{CHROMIUM}Content-Length: 1\r\n\r\nx").into(),
        b"\x16\x03\x01\x02\x00\x01\x00".into(),
        get("/aaaaaaaaaaaaaaaa", &upgrade).into(),
    ];
    for request in sent.iter().cycle().take(40) {
        server.client().send(request).receive_head();
    }
    let mut client = server.client();
    client.send(get(&format!("/{KEY_TEXT}"), &upgrade));
    let mut client = WebClient::expect_upgrade(client);
    for _ in 0..5 {
        client.send_text("no JSON");
        assert!(matches!(client.receive(), Received::Message(Message::Failure { .. })));
    }
    assert!(server.tracker.bans().is_empty());
}
