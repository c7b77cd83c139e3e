//! Private listeners: what a full table of sessions means for keys with and without bounds.

use super::*;
use tracker::{Access, KeyId, KeyRules};
use types::UserKey;

const BOUNDED: &str = "bounded-key-0000000";
const FREE: &str = "free-key-0000000000";

/// A private tracker with a key of each kind.
fn start() -> HttpServer {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Private);
    let bounds = KeyRules { peers_per_torrent: 10_000, ..KeyRules::default() };
    for (id, text, rules) in [(1, BOUNDED, bounds), (2, FREE, KeyRules::default())] {
        assert!(server.tracker.passkeys().put(KeyId(id), UserKey::parse(text).unwrap(), rules));
    }
    server
}

/// Announces and returns the body of the response.
fn announce_with(client: &mut Client, key: &str, port: u16) -> String {
    let target = announce(port, "").replacen("/announce", &format!("/announce/{key}"), 1);
    client.request(get(&target, "")).text()
}

#[test]
fn a_full_table_refuses_keys_with_bounds_and_serves_others() {
    let mut server = start();
    // One session in each of 1024 shards.
    server.tracker.passkeys().set_session_limits(1024, u32::MAX);
    let mut client = server.client();
    let mut served = 0;
    let refused = (1..2000).find(|port| {
        let body = announce_with(&mut client, BOUNDED, *port);
        served += usize::from(body.contains("8:complete"));
        body.contains(Refusal::KeyTableFull.text())
    });
    let refused = refused.expect("a full shard");
    assert_eq!((served, server.tracker.passkeys().sessions()), (usize::from(refused) - 1, served));
    // A peer that has a session is served, and so is a key without bounds.
    assert!(announce_with(&mut client, BOUNDED, 1).contains("8:complete"));
    server.tracker.passkeys().set_session_limits(0, u32::MAX);
    assert!(announce_with(&mut client, BOUNDED, 1).contains("8:complete"));
    assert!(announce_with(&mut client, BOUNDED, 9999).contains(Refusal::KeyTableFull.text()));
    assert!(announce_with(&mut client, FREE, 9999).contains("8:complete"));
    assert_eq!(server.tracker.passkeys().sessions(), served);
    server.end();
    let refusals = server.counters(Protocol::Http).refusals;
    assert_eq!(refusals[Refusal::KeyTableFull.index()], 2);
}

#[test]
fn a_key_has_a_bounded_number_of_sessions() {
    let server = start();
    server.tracker.passkeys().set_session_limits(usize::MAX, 3);
    let mut client = server.client();
    for key in [BOUNDED, FREE] {
        for port in 1..4 {
            assert!(announce_with(&mut client, key, port).contains("8:complete"));
        }
    }
    assert!(announce_with(&mut client, BOUNDED, 4).contains(Refusal::KeySessions.text()));
    assert!(announce_with(&mut client, FREE, 4).contains("8:complete"));
    assert_eq!(server.tracker.passkeys().sessions(), 6);
}
