//! WebSockets at a private door, and of those who are banned.

use super::*;
use tracker::{BanReason, BanRules, IpPrefix, KeyId, KeyRules, KeyTotals};
use types::UserKey;

const TEXT: &str = "user-key-012345678";

/// A private tracker with one key.
fn start() -> Server {
    let server = Server::start(WebOptions::default());
    server
        .tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { private: true, ..ListenerPolicy::default() }]);
    put(&server, KeyRules::default());
    server
}

fn put(server: &Server, rules: KeyRules) {
    server.tracker.passkeys().put(KeyId(1), UserKey::parse(TEXT).unwrap(), rules);
}

fn user(server: &Server, target: &str) -> Client {
    let mut client = server.connect();
    client.upgrade(target);
    client
}

fn failure(refusal: Refusal) -> Heard {
    Heard::Failure(refusal.text().into())
}

#[test]
fn a_key_in_the_url_holds_for_all_that_comes_on_the_connection() {
    let server = start();
    let targets = ["/", "/announce/", "/?passkey=", "/x?key=", "/announce?passkey="];
    for (number, target) in (1..).zip(targets) {
        let mut client = user(&server, &format!("{target}{TEXT}"));
        assert_eq!(client.join(number), announced(0, 1), "{target}");
        client.send(|out| client::scrape(out, &[HASH]));
        assert!(matches!(client.hear(), Heard::Scraped(files) if files.len() == 1));
        drop(client);
        server.await_peers(0);
    }
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    let announces = targets.len() as u64;
    assert_eq!(totals, [(KeyId(1), KeyTotals { announces, ..KeyTotals::default() })]);
}

#[test]
fn nobody_comes_in_without_a_key_that_is_good() {
    let server = start();
    for (target, refusal) in [
        ("/", Refusal::KeyMissing),
        ("/announce", Refusal::KeyMissing),
        ("/?key=1A2B3C4D", Refusal::KeyMissing),
        ("/user-key-012345679", Refusal::KeyUnknown),
        ("/announce/short", Refusal::KeyUnknown),
    ] {
        let mut client = server.connect();
        let mut request = Vec::new();
        ws::client::request(&mut request, "tracker.test", target, KEY);
        client.say(&request);
        let answer = client.read_all();
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{target}: {answer}");
        assert!(answer.ends_with(refusal.text()), "{target}: {answer}");
    }
}

#[test]
fn bytes_are_counted_and_a_revoked_key_is_good_for_nothing_more() {
    let server = start();
    let mut client = user(&server, &format!("/{TEXT}"));
    client.join(1);
    let moved = Announce { uploaded: 70, downloaded: 5, event: Event::None, ..leecher(1) };
    client.announce(&moved);
    assert_eq!(client.hear(), announced(0, 1));
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    let KeyTotals { uploaded, announces, .. } = totals[0].1;
    assert_eq!((uploaded, announces), (70, 2));
    put(&server, KeyRules { announces_per_minute: 1, ..KeyRules::default() });
    client.announce(&moved);
    assert_eq!(client.hear(), announced(0, 1));
    client.announce(&moved);
    assert_eq!(client.hear(), failure(Refusal::KeyRate));
    assert!(server.tracker.passkeys().remove(KeyId(1)));
    client.announce(&moved);
    assert_eq!(client.hear(), failure(Refusal::KeyUnknown));
}

#[test]
fn who_is_banned_is_told_and_goes() {
    let mut server = Server::start(WebOptions::default());
    let mut client = server.client();
    client.join(1);
    let home: IpPrefix = "127.0.0.0/8".parse().unwrap();
    server.tracker.bans().put(&[(home, None)]);
    client.announce(&leecher(1));
    assert_eq!(client.hear(), failure(Refusal::Banned));
    client.hear_close(CloseCode::POLICY.0);
    let mut late = server.connect();
    assert!(!late.read_more(), "closed as it comes");
    server.tracker.bans().remove(&[home]);
    assert_eq!(server.client().join(1), announced(0, 1));
    server.stop_all();
    assert_eq!(server.counters(Protocol::Http).drops[DropReason::Banned.index()], 1);
}

#[test]
fn broken_frames_and_messages_are_evidence() {
    let server = Server::start(WebOptions::default());
    let rules = BanRules { malformed_per_min: 3, time_s: 60, ..BanRules::default() };
    server.tracker.bans().set_rules(rules);
    // A minute may begin on the way.
    for _ in 0..8 {
        let mut client = server.client();
        client.text("no JSON");
        assert!(matches!(client.hear(), Heard::Failure(_)));
    }
    let mut made = Vec::new();
    server.tracker.bans().take_automatic(&mut made);
    assert!(matches!(made[..], [(_, Some(_), BanReason::Malformed)]), "{made:?}");
}
