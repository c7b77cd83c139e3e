//! WebSockets at a private listener, of banned clients, and over their limits.

use tracker::{
    Access, BanReason, BanRules, KeyId, KeyRules, KeyTotals, Limits, Rate, TokenFault,
    TokenVerifier, VerifiedToken,
};
use types::{Tick, UserKey};

use super::*;

const TEXT: &str = "user-key-012345678";
const BANNED: &str = "93.184.216.34";

/// A private tracker with one key.
fn start() -> HttpServer {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Private);
    put(&server, 1, TEXT, KeyRules::default());
    server
}

fn put(server: &HttpServer, id: u32, text: &str, rules: KeyRules) {
    server.tracker.passkeys().put(KeyId(id), UserKey::parse(text).unwrap(), rules);
}

#[test]
fn applies_the_key_of_the_url_to_the_whole_connection() {
    let server = start();
    // Only keys with such a bound have sessions.
    put(&server, 1, TEXT, KeyRules { peers_per_torrent: 1, ..KeyRules::default() });
    let mut client = WebClient::open(server.client(), &format!("/{TEXT}"));
    assert_eq!(client.join(1), announced(0, 1));
    client.announce(&Announce { uploaded: 7, event: Event::None, ..leecher(1) });
    assert_eq!(client.receive(), announced(0, 1));
    let mut totals = Vec::new();
    server.tracker.passkeys().take_totals(&mut totals);
    let expected = KeyTotals { announces: 2, uploaded: 7, ..KeyTotals::default() };
    assert_eq!(totals, [(KeyId(1), expected)]);
    // The key's session ends with the connection.
    assert_eq!(server.tracker.passkeys().sessions(), 1);
    drop(client);
    wait_until("no session", || server.tracker.passkeys().sessions() == 0);
}

#[test]
fn bans_clients_that_send_malformed_messages() {
    let server = HttpServer::start();
    let rules = BanRules { malformed_per_min: 3, time_s: 60, ..BanRules::default() };
    server.tracker.bans().set_rules(rules);
    let mut client = server.web_client();
    for _ in 0..=rules.malformed_per_min {
        client.send_text("no JSON");
        assert!(matches!(client.receive(), Received::Message(Message::Failure { .. })));
    }
    let mut made = Vec::new();
    server.tracker.bans().take_automatic(&mut made);
    assert!(matches!(made[..], [(_, Some(_), BanReason::Malformed)]), "{made:?}");
}

#[test]
fn closes_connections_of_banned_clients_silent_or_not() {
    let server = HttpServer::with(unlimited_behind_proxy());
    let mut silent = web_client_at(&server, BANNED);
    let mut answering = web_client_at(&server, BANNED);
    let mut other = web_client_at(&server, "45.0.0.1");
    answering.join(1);
    other.announce(&offering(2, 1));
    other.receive();
    answering.receive_offers(1);
    server.tracker.bans().put(&[("93.184.216.0/24".parse().unwrap(), None)]);
    answering.answer(1, 2, offer_id(1));
    // The failure comes first, unless the connection was closed before the answer came.
    while !matches!(answering.receive(), Received::Close(Some(1008))) {}
    silent.expect_close(CloseCode::POLICY.0);
    other.expect_nothing();
    drop(answering);
    server.wait_for_web_peers(1);
}

/// Keys that end while their clients are silent: removed, and expired.
#[test]
fn closes_silent_connections_whose_key_has_ended() {
    const TEXTS: [&str; 3] = ["user-key-012345678", "user-key-112345678", "user-key-212345678"];
    let server = start();
    let rules = BanRules { wrong_keys_per_min: 1, time_s: 60, ..BanRules::default() };
    server.tracker.bans().set_rules(rules);
    for (id, text) in (1..).zip(TEXTS) {
        put(&server, id, text, KeyRules::default());
    }
    let mut clients = TEXTS.map(|text| WebClient::open(server.client(), &format!("/{text}")));
    for (peer, client) in (1..).zip(&mut clients) {
        client.join(peer);
    }
    assert!(server.tracker.passkeys().remove(KeyId(1)));
    put(&server, 2, TEXTS[1], KeyRules { expires: Some(Tick(10)), ..KeyRules::default() });
    server.advance(10);
    let [ended @ .., other] = &mut clients;
    for client in ended {
        client.expect_close(CloseCode::POLICY.0);
    }
    server.wait_for_web_peers(1);
    other.expect_nothing();
    assert!(server.tracker.bans().is_empty(), "the keys were right before");
    drop(clients);
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::AccessEnded.index()], 2);
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
    let mut ended = WebClient::open(server.client(), "/announce?jwt=one");
    ended.join(1);
    server.advance(5);
    let mut other = WebClient::open(server.client(), "/announce?jwt=two");
    other.join(2);
    server.advance(6);
    ended.expect_close(CloseCode::POLICY.0);
    server.wait_for_web_peers(1);
    other.expect_nothing();
}

#[test]
fn refuses_messages_over_the_rate_and_keeps_the_connection() {
    let server = HttpServer::start();
    let announces = Rate { per_s: 1, burst: 3 };
    server.tracker.limiter().replace(Limits { announces, ..Limits::default() });
    let mut client = server.web_client();
    let too_many = failure(Refusal::TooManyRequests);
    assert_eq!((0..20).filter(|_| client.join(1) == too_many).count(), 17);
    client.expect_nothing();
    drop(client);
    let refusals = server.finish(Protocol::Ws).refusals;
    assert_eq!(refusals[Refusal::TooManyRequests.index()], 17);
}

#[test]
fn limits_connections_per_prefix_over_workers_and_protocols() {
    let server =
        HttpServer::set_up(Setup { links: WorkerLink::for_workers(2), ..Setup::default() });
    server.tracker.limiter().replace(Limits { connections: 3, ..Limits::default() });
    let mut held = [0, 1].map(|worker| server.web_client_of(worker));
    // A permit is free for a moment when a connection becomes a WebSocket.
    held.iter_mut().for_each(WebClient::expect_nothing);
    let mut http = Client::connect(server.addresses[1]);
    assert_eq!(http.request(PROBE).status, 404);
    assert_eq!(server.client().send(PROBE).receive_rest(), b"");
    // A connection keeps its permit when it becomes a WebSocket, and returns it at its end.
    let mut web = WebClient::open(http, "/");
    web.expect_nothing();
    assert_eq!(server.client().send(PROBE).receive_rest(), b"");
    drop(web);
    wait_until("a permit is free", || server.has_free_permit("127.0.0.1"));
}

#[test]
fn limits_websockets_behind_a_proxy_by_their_clients() {
    let server = HttpServer::with(behind_proxy());
    server.tracker.limiter().replace(Limits { connections: 1, ..Limits::default() });
    let one = web_client_at(&server, "192.0.2.1");
    assert_eq!(upgrade_from(&server, "192.0.2.1").receive().status, 503);
    let _other = web_client_at(&server, "192.0.2.2");
    drop(one);
    wait_until("a permit is free", || server.has_free_permit("192.0.2.1"));
    web_client_at(&server, "192.0.2.1");
}
