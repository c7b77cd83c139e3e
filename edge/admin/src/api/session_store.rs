//! The open sessions of the dashboard.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// The fingerprint of the token.
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
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Opens a session for a token.
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
    fn an_upgrade_hands_sessions_over() {
        let old = Sessions::default();
        for number in 0..HANDED_OVER_MAX + 2 {
            old.open(SessionId::of(&number.to_string()), &format!("tg_{number}"));
        }
        old.0.lock().unwrap()[2].expires = Instant::now();
        let new = Sessions::default();
        new.take_over(old.to_hand_over());
        let token = |number: usize| new.token(&SessionId::of(&number.to_string()));
        assert_eq!([0, 1, 2].map(token), [None, None, None], "too many, or expired");
        assert_eq!(token(3).as_deref(), Some("tg_3"));
        let last = HANDED_OVER_MAX + 1;
        assert_eq!(token(last), Some(format!("tg_{last}")));
        let left = new.0.lock().unwrap()[0].expires.duration_since(Instant::now());
        assert!(left <= LIFETIME && left > LIFETIME - Duration::from_secs(60), "{left:?}");
    }

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
