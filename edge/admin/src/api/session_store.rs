//! The open sessions of the dashboard.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::auth::fingerprint;

/// Lifetime of a session.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Concurrent sessions. A further one ends the oldest.
const SESSIONS_MAX: usize = 100;

/// The open sessions. They end with the process.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Session>>);

struct Session {
    /// The fingerprint of the session id in the cookie.
    digest: [u8; 32],
    token: String,
    /// The fingerprint of the token.
    token_digest: [u8; 32],
    expires: Instant,
}

impl Sessions {
    /// Opens a session for a token.
    pub(super) fn open(&self, id: &str, token: &str) {
        let session = Session {
            digest: fingerprint(id),
            token: token.into(),
            token_digest: fingerprint(token),
            expires: Instant::now() + LIFETIME,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.expires > Instant::now());
        if all.len() >= SESSIONS_MAX {
            all.remove(0);
        }
        all.push(session);
    }

    /// Returns the token of a session.
    pub(super) fn token(&self, id: &str) -> Option<String> {
        // Comparing digests leaks nothing through timing.
        let digest = fingerprint(id);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = all.iter().find(|session| session.digest == digest);
        session.filter(|session| session.expires > Instant::now()).map(|found| found.token.clone())
    }

    /// Closes all sessions of the token with this fingerprint.
    pub(super) fn close_all(&self, token_digest: &[u8; 32]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.token_digest != *token_digest);
    }

    /// Closes a session.
    pub(super) fn close(&self, id: &str) {
        let digest = fingerprint(id);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.digest != digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_expire_and_are_limited() {
        let sessions = Sessions::default();
        sessions.open("one", "tg_1");
        assert_eq!(sessions.token("one").as_deref(), Some("tg_1"));
        assert_eq!(sessions.token("two"), None);
        sessions.open("other", "tg_3");
        sessions.close_all(&fingerprint("tg_3"));
        assert_eq!(sessions.token("other"), None);
        sessions.close("one");
        assert_eq!(sessions.token("one"), None);
        (0..=SESSIONS_MAX).for_each(|number| sessions.open(&number.to_string(), "tg_2"));
        assert!(sessions.token("0").is_none() && sessions.token("1").is_some());
        sessions.0.lock().unwrap()[0].expires = Instant::now();
        assert_eq!(sessions.token("1"), None);
    }
}
