//! Tests of limits that all tokens share, of the part that one token can take, and of webhooks that end with their
//! token.

use super::*;
use crate::api::session_store::SESSIONS_PER_TOKEN_MAX;
use crate::api::{events, history};

impl TestApi {
    /// Returns whether the session of this cookie is open.
    fn is_signed_in(&self, cookie: &str) -> bool {
        let response = self.dashboard("GET /session", cookie, "");
        assert!(response.starts_with("HTTP/1.1 20"), "{response}");
        response.starts_with("HTTP/1.1 200")
    }

    /// Returns the status of the response to a request from this address.
    fn status_from(&self, from: IpAddr, target: &str, token: &str) -> u16 {
        let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        let response = read(self.request_from(from, &format!("GET {target}"), &headers, ""));
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

#[test]
fn guesses_are_limited_by_address_and_in_all_while_valid_tokens_are_served() {
    // Attempts that are used up do not come back.
    let api_server = TestApi::start_with(PATIENCE, 0);
    let host = |number: u8| IpAddr::from([127, 0, 1, number]);
    let judged = |from: IpAddr| (0..30).filter(|_| api_server.is_guess_judged(from)).count();
    // 20 of each address, and 200 in all.
    let by_address: Vec<_> = (1..=12).map(|number| judged(host(number))).collect();
    assert_eq!(by_address, [[20; 10].as_slice(), &[0, 0]].concat());
    assert_eq!(api_server.status_from(host(1), "/api/v1/stats", TOKEN), 200);
    assert!(api_server.is_signed_in(&api_server.sign_in(TOKEN)));
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
    let kinds = [("/stats/stream", history::STREAMS_MAX), ("/events", events::STREAMS_MAX)];
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
