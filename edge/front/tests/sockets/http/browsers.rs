//! Announces of web browsers, which any page can have its visitors send.

use tracker::{Access, BanReason, BanRules, KeyId, KeyRules};
use types::UserKey;

use super::*;

const KEY_TEXT: &str = "user-key-012345678";
const CLOSE: &str = "Connection: close\r\n";
const WRONG_KEY: &str = "aaaaaaaaaaaaaaaa";

/// The headers of Chromium for an image of a page, over HTTP.
const CHROMIUM: &str = "Connection: keep-alive\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 \
    Safari/537.36\r\n\
    Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8\r\n\
    Referer: http://forum.test/\r\nAccept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\n";

/// The headers by which a page asks for a WebSocket.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://forum.test\r\n";

fn refusal() -> Vec<u8> {
    let reason = Refusal::Browser.text();
    format!("d14:failure reason{}:{reason}8:retry in5:nevere", reason.len()).into_bytes()
}

/// A private tracker that bans after an offence, and serves WebTorrent.
fn start_banning() -> HttpServer {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Private);
    let key = UserKey::parse(KEY_TEXT).unwrap();
    assert!(server.tracker.passkeys().put(KeyId(1), key, KeyRules::default()));
    let rules =
        BanRules { wrong_keys_per_min: 1, malformed_per_min: 1, time_s: 60, ..BanRules::default() };
    server.tracker.bans().set_rules(rules);
    server
}

fn with_key(key: &str) -> String {
    announce(1, "").replacen("/announce", &format!("/announce/{key}"), 1)
}

#[test]
fn refuses_announces_of_browsers_and_stores_nothing() {
    // Without WebTorrent, a request for a WebSocket is one like others.
    let server = HttpServer::with(HttpOptions { web: None, ..behind_proxy() });
    let many: String = (0..60).map(|at| format!("X-{at}: {at}\r\n")).collect();
    let last_of_many = many + "Referer: x\r\n";
    let proxied = format!("Via: 1.1 proxy\r\nX-Forwarded-For: 192.0.2.9\r\n{CHROMIUM}");
    let all = [CHROMIUM, UPGRADE, &last_of_many, &proxied];
    for (_, mut client) in server.both_clients() {
        for headers in all {
            let request = get(&announce(443, ""), headers);
            let response = client.request(&request);
            assert_eq!((response.status, response.body), (200, refusal()), "{headers}");
            client.send(request.replacen("GET", "HEAD", 1));
            assert_eq!(client.receive_head().status, 200);
        }
    }
    assert_eq!(server.tracker.totals().torrents, 0);
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.refusals[Refusal::Browser.index()], 2 * all.len() as u64);
}

#[test]
fn a_page_has_no_visitor_banned() {
    let server = start_banning();
    let wrong = with_key(WRONG_KEY);
    let scrape = format!("/scrape/{WRONG_KEY}?info_hash=aaaaaaaaaaaaaaaaaaaa");
    let long = format!("/{}", "x".repeat(16 << 10));
    let mut images: Vec<Vec<u8>> =
        [wrong.as_str(), &scrape, &long].map(|target| get(target, CHROMIUM).into_bytes()).into();
    // Other things that a page can have sent: a form, and `https:` with the port of HTTP.
    images.push(format!("POST /{wrong} HTTP/1.1\r\n{CHROMIUM}Content-Length: 1\r\n\r\nx").into());
    images.push(b"\x16\x03\x01\x02\x00\x01\x00".into());
    let upgrade = format!("{UPGRADE}{CHROMIUM}");
    images.push(get(&format!("/{WRONG_KEY}"), &upgrade).into_bytes());
    for image in images.iter().cycle().take(40) {
        server.client().send(image).receive_head();
    }
    // A WebSocket of a page.
    let mut client = server.client();
    client.send(get(&format!("/{KEY_TEXT}"), &upgrade));
    let mut client = WebClient::expect_upgrade(client);
    for _ in 0..5 {
        client.send_text("no JSON");
        assert!(matches!(client.receive(), Received::Failure(_)));
    }
    assert!(server.tracker.bans().is_empty());
    assert!(server.client().request(get(&with_key(KEY_TEXT), "")).has("8:complete"));
    // The same offence of a program that is no browser.
    for _ in 0..3 {
        server.client().send(get(&wrong, CLOSE)).receive_rest();
    }
    let mut made = Vec::new();
    server.tracker.bans().take_automatic(&mut made);
    assert!(matches!(made[..], [(_, _, BanReason::WrongKeys)]), "{made:?}");
}

/// A page could otherwise use up its visitor's rate, or the seats of a key that it knows.
#[test]
fn announces_of_browsers_cost_a_key_and_its_prefix_nothing() {
    let server = start_banning();
    let announces = tracker::Rate { per_s: 1, burst: 1 };
    server.tracker.limiter().replace(tracker::Limits { announces, ..Default::default() });
    for _ in 0..9 {
        let response = server.client().request(get(&with_key(KEY_TEXT), CHROMIUM));
        assert_eq!(response.body, refusal());
    }
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    assert!(totals.is_empty() && server.tracker.passkeys().sessions() == 0, "{totals:?}");
    assert!(server.client().request(get(&with_key(KEY_TEXT), "")).has("8:complete"));
}
