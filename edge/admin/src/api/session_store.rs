//! The open sessions of the dashboard.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::auth::fingerprint;

/// Lifetime of a session.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Concurrent sessions of a token: browsers of people who share it. A further one ends the oldest of the same
/// token, never that of another. The tokens are limited, so their sessions are in all.
pub(super) const SESSIONS_PER_TOKEN_MAX: usize = 32;

/// The open sessions, oldest first. They end with the process.
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
    /// The fingerprint of the token.
    token_digest: [u8; 32],
    expires: Instant,
}

impl Sessions {
    /// Opens a session for a token.
    pub(super) fn open(&self, id: SessionId, token: &str) {
        let session = Session {
            id,
            token: token.into(),
            token_digest: fingerprint(token),
            expires: Instant::now() + LIFETIME,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.expires > Instant::now());
        let is_same_token = |other: &Session| other.token_digest == session.token_digest;
        if all.iter().filter(|other| is_same_token(other)).count() >= SESSIONS_PER_TOKEN_MAX
            && let Some(oldest) = all.iter().position(is_same_token)
        {
            all.remove(oldest);
        }
        all.push(session);
    }

    /// Returns the token of a session.
    pub(super) fn token(&self, id: &SessionId) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = all.iter().find(|session| session.id == *id);
        session.filter(|session| session.expires > Instant::now()).map(|found| found.token.clone())
    }

    /// Returns whether a session is open.
    pub(super) fn is_open(&self, id: &SessionId) -> bool {
        self.token(id).is_some()
    }

    /// Closes all sessions of the token with this fingerprint.
    pub(super) fn close_all(&self, token_digest: &[u8; 32]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.token_digest != *token_digest);
    }

    /// Closes a session.
    pub(super) fn close(&self, id: &SessionId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.id != *id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_expire_and_are_limited() {
        let sessions = Sessions::default();
        sessions.open(SessionId::of("one"), "tg_1");
        assert_eq!(sessions.token(&SessionId::of("one")).as_deref(), Some("tg_1"));
        assert_eq!(sessions.token(&SessionId::of("two")), None);
        sessions.open(SessionId::of("other"), "tg_3");
        sessions.close_all(&fingerprint("tg_3"));
        assert_eq!(sessions.token(&SessionId::of("other")), None);
        sessions.close(&SessionId::of("one"));
        assert_eq!(sessions.token(&SessionId::of("one")), None);
        sessions.open(SessionId::of("of another token"), "tg_1");
        (0..=SESSIONS_PER_TOKEN_MAX)
            .for_each(|number| sessions.open(SessionId::of(&number.to_string()), "tg_2"));
        assert!(
            sessions.token(&SessionId::of("0")).is_none()
                && sessions.token(&SessionId::of("1")).is_some()
        );
        assert!(sessions.token(&SessionId::of("of another token")).is_some());
        sessions.0.lock().unwrap()[1].expires = Instant::now();
        assert_eq!(sessions.token(&SessionId::of("1")), None);
    }
}
