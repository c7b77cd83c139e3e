//! The tokens at the start: the one from the environment, and the first one, which is created if none has
//! full access. The first token is for setting up others: it ends when another one takes over, which may
//! expire. Then the next start creates a first token again, so that no operator is locked out.

use std::fmt;
use std::io;
use std::sync::Arc;

use tracing::{info, warn};

use super::auth::{self, Caller};
use super::scope::{Scope, Scopes};
use super::state::Api;
use crate::log_levels::AUDIT;
use crate::records::tables::tokens::TokenRow;
use crate::records::{OpenError, RecordOp};

/// Shows a token that is not yet recorded. Returns false if there is no place for it: then there is no first
/// token.
type ShowToken = Box<dyn Fn(&str) -> io::Result<bool> + Send + Sync>;

/// Where the application shows the first token to its operator.
pub struct FirstTokenDisplay {
    /// Shows it.
    pub show: ShowToken,
    /// Removes the token from where it is shown, because it has ended.
    pub remove: Box<dyn Fn() + Send + Sync>,
}

/// Why the API cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The records cannot be used.
    Records(OpenError),
    /// The bootstrap token is in the records, with this id, name and scopes.
    RecordedToken(i64, String, String),
    /// The first token cannot be shown.
    FirstToken(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(error) => error.fmt(f),
            Self::RecordedToken(id, name, scopes) => write!(
                f,
                "the bootstrap token is already recorded, as token {id} ({name:?}) with the scopes {scopes}: a \
                 bootstrap token has full access, so choose a new one"
            ),
            Self::FirstToken(error) => write!(f, "cannot write the first token: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Adds the bootstrap token to `known`. If none has full access then, at the Unix time `now`, generates the
/// first one, shows it and returns it, to be recorded.
pub(super) fn create(
    known: &mut Vec<TokenRow>,
    bootstrap: Option<&str>,
    now: i64,
    display: &FirstTokenDisplay,
) -> Result<Option<TokenRow>, StartError> {
    let row = |token: &str, name: &str| TokenRow {
        id: 0,
        digest: auth::fingerprint(token),
        name: name.into(),
        scopes: Scopes::ALL.to_string(),
        created: 0,
        expires: None,
        is_first: false,
    };
    if let Some(token) = bootstrap {
        let row = row(token, "environment");
        // A recorded token may be limited, and must not gain full access.
        if let Some(known) = known.iter().find(|known| known.digest == row.digest) {
            let TokenRow { id, name, scopes, .. } = known.clone();
            return Err(StartError::RecordedToken(id, name, scopes));
        }
        known.push(row);
    }
    let has_full_access = |known: &TokenRow| {
        !known.has_expired(now) && Scopes::parse(&known.scopes).allow(Scope::All)
    };
    if known.iter().any(has_full_access) {
        return Ok(None);
    }
    let Ok(token) = auth::generate_token() else { return Ok(None) };
    // Before it is recorded: a token that no one has seen would keep the next start from creating one.
    let is_shown = (display.show)(&token).map_err(StartError::FirstToken)?;
    let first = TokenRow { created: now, is_first: true, ..row(&token, "first") };
    Ok(is_shown.then_some(first))
}

impl Api {
    /// Ends the first token if `caller` shows that it is no longer needed: its token is another one with full
    /// access.
    pub(super) fn end_first_token(self: &Arc<Self>, caller: &Caller) {
        for first in self.authenticator().ended_first(caller) {
            self.end_token(first, caller);
        }
    }

    fn end_token(self: &Arc<Self>, first: i64, caller: &Caller) {
        let (api, caller) = (Arc::clone(self), caller.clone());
        // It is refused already; the records follow.
        self.forget_token(first);
        tokio::spawn(async move {
            match api.records().change(RecordOp::TokenRemoved { id: first }).await {
                Ok(_) => {
                    let Caller { token, name, .. } = caller;
                    info!(
                        target: AUDIT, token, token_name = name,
                        "revoked token {first}, the first one: another token with full access is in use"
                    );
                }
                // The next start makes it valid again, until the other token is used again.
                Err(error) => {
                    warn!(%error, "the first token could not be removed from the records")
                }
            }
        });
    }

    /// Forgets a token that was revoked, and the sessions that were opened with it.
    pub(crate) fn forget_token(&self, id: i64) {
        if let Some(token) = self.authenticator().remove(id) {
            self.sessions.close_all(&token.digest);
            self.access_changed.notify_waiters();
            if token.is_first {
                (self.deps.first_token.remove)();
            }
        }
    }
}
