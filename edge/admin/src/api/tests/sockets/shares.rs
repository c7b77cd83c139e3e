//! What one token may take of what all tokens share.

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
        // What clients close is free again.
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
