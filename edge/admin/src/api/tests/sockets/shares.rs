//! Tests of limits that all tokens share, of the part that one token can take, and of webhooks that end with their
//! token.

use harness::network::{Namespace, Network};

use super::*;
use crate::api::session_store::SESSIONS_PER_TOKEN_MAX;
use crate::api::{events, stats_stream};

impl TestApi {
    /// Returns whether the session of this cookie is open.
    fn is_signed_in(&self, cookie: &str) -> bool {
        let response = self.dashboard("GET /session", cookie, "");
        assert!(response.starts_with("HTTP/1.1 20"), "{response}");
        response.starts_with("HTTP/1.1 200")
    }

    /// Returns the status of the response to a request from this address.
    fn status_from(&self, from: IpAddr, target: &str, token: &str) -> u16 {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        );
        let mut response = String::new();
        self.connect(Some(from), &request).read_to_string(&mut response).unwrap();
        response[9..12].parse().unwrap()
    }

    /// Sends an unknown token, and returns whether the response tells that it is unknown. If not, it tells
    /// only that there were too many.
    fn is_guess_judged(&self, from: IpAddr) -> bool {
        let status = self.status_from(from, "/api/v1/stats", &TOKEN.replace('0', "9"));
        assert!([401, 429].contains(&status), "{status}");
        status == 401
    }
}

/// Calls `test` where all addresses of 2001:db8::/32 are this machine's, if such a network can be set up.
fn with_ipv6_networks(test: impl FnOnce() + Send) {
    if let Some(obstacle) = Network::obstacle() {
        return eprintln!("skipped {obstacle}");
    }
    let namespace = Namespace::new().unwrap();
    namespace.ip("link set lo up\nroute add local 2001:db8::/32 dev lo\n").unwrap();
    namespace.set("net/ipv6/ip_nonlocal_bind", "1").unwrap();
    namespace.run(test);
}

/// Returns the address `host` of the /64 `network` of 2001:db8:1::/48.
fn in_network(network: u16, host: u16) -> IpAddr {
    [0x2001, 0xdb8, 1, network, 0, 0, 0, host].into()
}

#[test]
fn guesses_are_limited_by_address_and_in_all_while_valid_tokens_are_served() {
    // Attempts that are used up do not come back.
    let api_server = TestApi::start_at(HOME, PATIENCE, 0);
    let host = |number: u8| IpAddr::from([127, 0, 1, number]);
    let judged = |from: IpAddr| (0..30).filter(|_| api_server.is_guess_judged(from)).count();
    // 20 of each address, and 200 in all.
    let by_address: Vec<_> = (1..=12).map(|number| judged(host(number))).collect();
    assert_eq!(by_address, [[20; 10].as_slice(), &[0, 0]].concat());
    assert_eq!(api_server.status_from(host(1), "/api/v1/stats", TOKEN), 200);
    assert!(api_server.is_signed_in(&api_server.sign_in(TOKEN)));
}

#[test]
fn guesses_of_a_network_of_64_bits_count_together() {
    with_ipv6_networks(|| {
        let api_server = TestApi::start_at("::1".parse().unwrap(), PATIENCE, 0);
        let judged = (1..=30).filter(|host| api_server.is_guess_judged(in_network(1, *host)));
        assert_eq!(judged.count(), 20);
        assert!(api_server.is_guess_judged(in_network(2, 1)));
        assert_eq!(api_server.status_from(in_network(1, 1), "/api/v1/stats", TOKEN), 200);
    });
}

#[test]
fn connections_of_a_network_of_48_bits_lock_no_other_out() {
    with_ipv6_networks(|| {
        let own = "::1".parse().unwrap();
        let api_server = TestApi::start_at(own, 10 * PATIENCE, 0);
        let (_, prometheus) = api_server.token(&["stats:read"], None);
        // It has not sent its request when the others come: each from a /64 of its own.
        let mut probe = api_server.connect(Some(own), "");
        let more = u16::try_from(3 * CONNECTION_LIMITS.connections).unwrap();
        let held: Vec<_> =
            (0..more).map(|network| api_server.connect(Some(in_network(network, 1)), "")).collect();
        probe.write_all(b"GET /health/live HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        probe.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        for (target, token) in [("/metrics", prometheus.as_str()), ("/api/v1/stats", TOKEN)] {
            assert_eq!(api_server.status_from(own, target, token), 200, "{target}");
        }
        drop(held);
    });
}

#[test]
fn a_token_ends_no_sessions_of_others() {
    let api_server = TestApi::start(PATIENCE);
    let (_, limited) = api_server.token(&["stats:read"], None);
    let operator = api_server.sign_in(TOKEN);
    let own: Vec<_> =
        (0..4 * SESSIONS_PER_TOKEN_MAX).map(|_| api_server.sign_in(&limited)).collect();
    assert!(api_server.is_signed_in(&operator));
    // Its own oldest have ended.
    let is_open = own.iter().map(|cookie| api_server.is_signed_in(cookie));
    assert!(is_open.eq((0..own.len()).map(|at| at >= own.len() - SESSIONS_PER_TOKEN_MAX)));
}

#[test]
fn a_token_takes_no_streams_from_others() {
    // Longer than streams are waited for: idle connections do not end them.
    let api_server = TestApi::start(10 * PATIENCE);
    let (_, limited) = api_server.token(&["stats:read", "events:read"], None);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let kinds = [("/stats/stream", stats_stream::STREAMS_MAX), ("/events", events::STREAMS_MAX)];
    for (path, max) in kinds {
        let open = |token: &str| api_server.stream(path, &bearer(token));
        let refused = |token: &str| api_server.ask_as(token, &format!("GET {path}"), None).0 == 429;
        let mut greedy: Vec<_> = (0..max).map(|_| open(&limited)).collect();
        assert!(refused(&limited), "{path}");
        // Another token gets half of all, each from the oldest of those.
        let others: Vec<_> = (0..max / 2).map(|_| open(TOKEN)).collect();
        greedy.drain(..max / 2).for_each(|mut ended| read_to_end(&mut ended));
        assert!(refused(TOKEN) && refused(&limited), "{path}");
        // Streams that clients close are free again.
        drop((greedy, others));
        wait_until("a stream is free", || {
            let mut status = [0; 12];
            api_server
                .send(&format!("GET {path}"), &limited, None)
                .read_exact(&mut status)
                .unwrap();
            &status == b"HTTP/1.1 200"
        });
    }
}

#[test]
fn webhooks_end_with_the_token_that_created_them() {
    let api_server = TestApi::start(PATIENCE);
    let scopes = ["config:read", "config:write", "events:read"];
    let (_, expiring) = api_server.token(&scopes, Some(1_000_500));
    let (revoked_id, revoked) = api_server.token(&scopes, None);
    let [of_expiring, of_revoked, of_environment] = [&expiring, &revoked, TOKEN].map(|token| {
        let body = json!({ "url": "https://hooks.example.org/", "events": ["ban"] });
        let (status, webhook) = api_server.ask_as(token, "POST /webhooks", Some(&body));
        assert_eq!((status, &webhook["active"]), (201, &json!(true)), "{webhook}");
        webhook
    });
    assert_eq!(of_expiring["expires"], 1_000_500);
    assert!(of_revoked["expires"].is_null() && of_environment["expires"].is_null());
    let posts = |webhook: &Value| {
        let path = format!("GET /webhooks/{}/deliveries", webhook["id"]);
        api_server.expect(200, &path, None)["deliveries"].as_array().unwrap().len()
    };
    let ban =
        |network: &str| api_server.expect(201, "POST /bans", Some(&json!({ "network": network })));
    ban("192.0.2.1");
    for webhook in [&of_expiring, &of_revoked, &of_environment] {
        wait_until("the ban is posted", || posts(webhook) == 1);
    }

    api_server.expect(204, &format!("DELETE /tokens/{revoked_id}"), None);
    api_server.clocks.advance(500);
    let left = || {
        let list = api_server.expect(200, "GET /webhooks", None);
        let one = |webhook: &Value| (webhook["id"].clone(), webhook["active"] == true);
        list["webhooks"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    let expected = [(of_expiring["id"].clone(), false), (of_environment["id"].clone(), true)];
    assert_eq!(left(), expected);
    api_server.expect(409, &format!("POST /webhooks/{}/test", of_expiring["id"]), None);
    ban("192.0.2.2");
    wait_until("the ban is posted", || posts(&of_environment) == 2);
    assert_eq!(posts(&of_expiring), 1);
    // Webhooks of expired tokens stay inactive when the clock goes back.
    api_server.clocks.time.store(400_000, Ordering::SeqCst);
    assert_eq!(left(), expected);
}
