//! WebSockets at a private listener, and of banned clients.

use super::*;
use tracker::{
    Access, BanReason, BanRules, IpPrefix, KeyId, KeyRules, KeyTotals, TokenFault, TokenVerifier,
    VerifiedToken,
};
use types::{Tick, UserKey};

const TEXT: &str = "user-key-012345678";

/// A private tracker with one key.
fn start() -> HttpServer {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Private);
    put(&server, KeyRules::default());
    server
}

fn put(server: &HttpServer, rules: KeyRules) {
    server.tracker.passkeys().put(KeyId(1), UserKey::parse(TEXT).unwrap(), rules);
}

fn user(server: &HttpServer, target: &str) -> WebClient {
    WebClient::open(server.client(), target)
}

fn failure(refusal: Refusal) -> Received {
    Received::Failure(refusal.text().into())
}

#[test]
fn applies_the_key_of_the_url_to_the_whole_connection() {
    let server = start();
    let targets = ["/", "/announce/", "/?passkey=", "/x?key=", "/announce?passkey="];
    for (number, target) in (1..).zip(targets) {
        let mut client = user(&server, &format!("{target}{TEXT}"));
        assert_eq!(client.join(number), announced(0, 1), "{target}");
        client.scrape(&[HASH]);
        assert!(matches!(client.receive(), Received::Scraped(files) if files.len() == 1));
        drop(client);
        server.wait_for_web_peers(0);
    }
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    let announces = targets.len() as u64;
    assert_eq!(totals, [(KeyId(1), KeyTotals { announces, ..KeyTotals::default() })]);
}

#[test]
fn refuses_upgrades_without_a_valid_key() {
    let server = start();
    for (target, refusal) in [
        ("/", Refusal::KeyMissing),
        ("/announce", Refusal::KeyMissing),
        ("/?key=1A2B3C4D", Refusal::KeyMissing),
        ("/user-key-012345679", Refusal::KeyUnknown),
        ("/announce/short", Refusal::KeyUnknown),
    ] {
        let mut client = server.client();
        let mut request = Vec::new();
        frames::request(&mut request, "tracker.test", target, KEY);
        let response = client.request(&request);
        assert_eq!((response.status, response.text().as_str()), (403, refusal.text()), "{target}");
    }
}

#[test]
fn counts_bytes_per_key_and_refuses_revoked_keys() {
    let server = start();
    let mut client = user(&server, &format!("/{TEXT}"));
    client.join(1);
    let moved = Announce { uploaded: 70, downloaded: 5, event: Event::None, ..leecher(1) };
    client.announce(&moved);
    assert_eq!(client.receive(), announced(0, 1));
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    let KeyTotals { uploaded, announces, .. } = totals[0].1;
    assert_eq!((uploaded, announces), (70, 2));
    put(&server, KeyRules { announces_per_minute: 1, ..KeyRules::default() });
    client.announce(&moved);
    assert_eq!(client.receive(), announced(0, 1));
    client.announce(&moved);
    assert_eq!(client.receive(), failure(Refusal::KeyRate));
    assert!(server.tracker.passkeys().remove(KeyId(1)));
    client.announce(&moved);
    // The connection is closed soon, at worst before the announce comes.
    let refused = client.receive();
    let is_closed = refused == Received::Close(Some(CloseCode::POLICY.0));
    assert!(is_closed || refused == failure(Refusal::KeyUnknown), "{refused:?}");
}

#[test]
fn a_session_belongs_to_its_connection() {
    let server = start();
    put(&server, KeyRules { peers_per_torrent: 1, ..KeyRules::default() });
    let [mut one, mut two] = [(), ()].map(|()| user(&server, &format!("/{TEXT}")));
    assert_eq!(one.join(1), announced(0, 1));
    // The same peer id on another connection is another peer, which ends nothing.
    two.announce(&Announce { event: Event::Stopped, ..leecher(1) });
    assert!(matches!(two.receive(), Received::Announced { .. }));
    assert_eq!(two.join(1), failure(Refusal::KeyPeers));
    assert_eq!(server.tracker.passkeys().sessions(), 1);
    // The session ends with its connection.
    drop(one);
    server.wait_for_web_peers(0);
    wait_until("no session", || server.tracker.passkeys().sessions() == 0);
    assert_eq!(two.join(1), announced(0, 1));
}

#[test]
fn closes_connections_of_banned_clients() {
    let mut server = HttpServer::start();
    let mut client = server.web_client();
    client.join(1);
    let home: IpPrefix = "127.0.0.0/8".parse().unwrap();
    server.tracker.bans().put(&[(home, None)]);
    client.announce(&leecher(1));
    // The failure comes first, unless the connection was closed before the announce came.
    while !matches!(client.receive(), Received::Close(Some(1008))) {}
    drop(client);
    let mut late = server.client();
    late.send("G").receive_rest();
    server.tracker.bans().remove(&[home]);
    assert_eq!(server.web_client().join(1), announced(0, 1));
    server.end();
    assert_eq!(server.counters(Protocol::Http).drops[DropReason::Banned.index()], 1);
}

#[test]
fn bans_clients_that_send_malformed_messages() {
    let server = HttpServer::start();
    let rules = BanRules { malformed_per_min: 3, time_s: 60, ..BanRules::default() };
    server.tracker.bans().set_rules(rules);
    for _ in 0..=rules.malformed_per_min {
        let mut client = server.web_client();
        client.send_text("no JSON");
        assert!(matches!(client.receive(), Received::Failure(_)));
    }
    let mut made = Vec::new();
    server.tracker.bans().take_automatic(&mut made);
    assert!(matches!(made[..], [(_, Some(_), BanReason::Malformed)]), "{made:?}");
}

/// Keys that end while their clients are silent: removed, replaced by another, and expired.
#[test]
fn closes_silent_connections_whose_key_has_ended() {
    const TEXTS: [&str; 4] =
        ["user-key-012345678", "user-key-112345678", "user-key-212345678", "user-key-312345678"];
    let server = start();
    let rules = BanRules { wrong_keys_per_min: 1, time_s: 60, ..BanRules::default() };
    server.tracker.bans().set_rules(rules);
    let keys = server.tracker.passkeys();
    let put = |number: usize, text: &str, rules| {
        let id = KeyId(number as u32 + 1);
        keys.put(id, UserKey::parse(text).unwrap(), rules);
    };
    for (number, text) in TEXTS.iter().enumerate() {
        put(number, text, KeyRules::default());
    }
    let mut clients = TEXTS.map(|text| user(&server, &format!("/{text}")));
    for (peer, client) in (1..).zip(&mut clients) {
        client.join(peer);
    }
    assert!(keys.remove(KeyId(1)));
    put(1, "another-key-123456", KeyRules::default());
    put(2, TEXTS[2], KeyRules { expires: Some(Tick(10)), ..KeyRules::default() });
    server.advance(10);
    let [ended @ .., other] = &mut clients;
    for client in ended {
        client.expect_close(CloseCode::POLICY.0);
    }
    server.wait_for_web_peers(1);
    other.expect_nothing();
    let mut made = Vec::new();
    server.tracker.bans().take_automatic(&mut made);
    assert!(made.is_empty(), "{made:?}");
    drop(clients);
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::AccessEnded.index()], 3);
}

#[test]
fn closes_silent_connections_of_banned_clients() {
    let server = HttpServer::with(unlimited_behind_proxy());
    let mut banned = web_client_at(&server, "93.184.216.34");
    let mut other = web_client_at(&server, "45.0.0.1");
    banned.join(1);
    other.join(2);
    server.tracker.bans().put(&[("93.184.216.0/24".parse().unwrap(), None)]);
    banned.expect_close(CloseCode::POLICY.0);
    server.wait_for_web_peers(1);
    other.announce(&offering(2, 1));
    assert_eq!(other.receive(), announced(0, 1));
    drop((banned, other));
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::Banned.index()], 1);
}

#[test]
fn answers_of_banned_clients_are_not_relayed() {
    let server = HttpServer::with(unlimited_behind_proxy());
    let mut banned = web_client_at(&server, "93.184.216.34");
    let mut other = web_client_at(&server, "45.0.0.1");
    banned.join(1);
    other.announce(&offering(2, 1));
    other.receive();
    assert!(matches!(banned.receive(), Received::Offer { .. }));
    server.tracker.bans().put(&[("93.184.216.34/32".parse().unwrap(), None)]);
    banned.answer(1, 2, offer_id(1));
    // The failure comes first, unless the connection was closed before the answer came.
    while !matches!(banned.receive(), Received::Close(Some(1008))) {}
    other.expect_nothing();
}

/// Permits one torrent for ten seconds, whatever the token.
struct TenSeconds;

impl TokenVerifier for TenSeconds {
    fn verify(&self, _: &[u8]) -> Result<VerifiedToken, TokenFault> {
        Ok(VerifiedToken { info_hash: HASH, valid_s: 10 })
    }
}

#[test]
fn closes_silent_connections_whose_token_has_ended() {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Tokens);
    server.tracker.tokens().set_verifier(Some(Box::new(TenSeconds)));
    let mut ended = user(&server, "/announce?jwt=one");
    ended.join(1);
    server.advance(5);
    let mut other = user(&server, "/announce?jwt=two");
    other.join(2);
    server.advance(6);
    ended.expect_close(CloseCode::POLICY.0);
    server.wait_for_web_peers(1);
    other.expect_nothing();
}
