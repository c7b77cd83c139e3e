//! The open sessions of the dashboard.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::auth::fingerprint;

/// Lifetime of a session.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Concurrent sessions of a token: browsers of people who share it. A further one ends the oldest of the same
/// token, never that of another. The tokens are limited, so their sessions are in all.
pub(super) const SESSIONS_PER_TOKEN_MAX: usize = 32;

/// Sessions that an upgrade hands over: the newest.
const HANDED_OVER_MAX: usize = 500;

/// The open sessions, oldest first. They survive upgrades, and end with the last process.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Session>>);

/// The fingerprint of the secret in the cookie. Comparing fingerprints leaks nothing through timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionId([u8; 32]);

impl SessionId {
    /// Returns the id of the session with this cookie.
    pub(super) fn of(cookie: &str) -> Self {
        Self(fingerprint(cookie))
    }
}

struct Session {
    id: SessionId,
    token: String,
    token_digest: [u8; 32],
    expires: Instant,
}

/// A session as an upgrade hands it over.
#[derive(Serialize, Deserialize)]
pub(super) struct OpenSession {
    id: [u8; 32],
    token: String,
    left_s: u64,
}

impl Sessions {
    /// Returns the open sessions for the process that replaces this one.
    pub(super) fn to_hand_over(&self) -> Vec<OpenSession> {
        let all = self.0.lock();
        let newest = all.get(all.len().saturating_sub(HANDED_OVER_MAX)..).unwrap_or_default();
        let now = Instant::now();
        let open = newest.iter().filter(|session| session.expires > now);
        let handed_over = open.map(|session| OpenSession {
            id: session.id.0,
            token: session.token.clone(),
            left_s: session.expires.duration_since(now).as_secs(),
        });
        handed_over.collect()
    }

    /// Opens the sessions of the process that this one replaces. Their tokens are checked with each request.
    pub(super) fn take_over(&self, sessions: Vec<OpenSession>) {
        for OpenSession { id, token, left_s } in sessions {
            let lifetime = Duration::from_secs(left_s).min(LIFETIME);
            self.open_for(SessionId(id), &token, lifetime);
        }
    }

    pub(super) fn open(&self, id: SessionId, token: &str) {
        self.open_for(id, token, LIFETIME);
    }

    fn open_for(&self, id: SessionId, token: &str, lifetime: Duration) {
        let session = Session {
            id,
            token: token.into(),
            token_digest: fingerprint(token),
            expires: Instant::now() + lifetime,
        };
        let mut all = self.0.lock();
        all.retain(|session| session.expires > Instant::now());
        let is_same_token = |other: &Session| other.token_digest == session.token_digest;
        if all.iter().filter(|other| is_same_token(other)).count() >= SESSIONS_PER_TOKEN_MAX
            && let Some(oldest) = all.iter().position(is_same_token)
        {
            all.remove(oldest);
        }
        all.push(session);
    }

    pub(super) fn token(&self, id: &SessionId) -> Option<String> {
        let all = self.0.lock();
        let session = all.iter().find(|session| session.id == *id);
        session.filter(|session| session.expires > Instant::now()).map(|found| found.token.clone())
    }

    pub(super) fn is_open(&self, id: &SessionId) -> bool {
        self.token(id).is_some()
    }

    pub(super) fn close_all(&self, token_digest: &[u8; 32]) {
        let mut all = self.0.lock();
        all.retain(|session| session.token_digest != *token_digest);
    }

    pub(super) fn close(&self, id: &SessionId) {
        let mut all = self.0.lock();
        all.retain(|session| session.id != *id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_hands_sessions_over() {
        let old = Sessions::default();
        for number in 0..HANDED_OVER_MAX + 2 {
            old.open(SessionId::of(&number.to_string()), &format!("tg_{number}"));
        }
        old.0.lock()[2].expires = Instant::now();
        let new = Sessions::default();
        new.take_over(old.to_hand_over());
        let token = |number: usize| new.token(&SessionId::of(&number.to_string()));
        assert_eq!([0, 1, 2].map(token), [None, None, None], "too many, or expired");
        assert_eq!(token(3).as_deref(), Some("tg_3"));
        let last = HANDED_OVER_MAX + 1;
        assert_eq!(token(last), Some(format!("tg_{last}")));
        let left = new.0.lock()[0].expires.duration_since(Instant::now());
        assert!(left <= LIFETIME && left > LIFETIME - Duration::from_secs(60), "{left:?}");
    }

    #[test]
    fn sessions_expire() {
        let sessions = Sessions::default();
        sessions.open(SessionId::of("one"), "tg_1");
        assert_eq!(sessions.token(&SessionId::of("one")).as_deref(), Some("tg_1"));
        sessions.0.lock()[0].expires = Instant::now();
        assert_eq!(sessions.token(&SessionId::of("one")), None);
    }
}
