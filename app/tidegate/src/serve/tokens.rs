//! The tokens that the API starts with: the bootstrap token from the environment, and the first token, which
//! is shown on a terminal or written to a file, but never to a log.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use admin::FirstTokenDisplay;
use anyhow::{Result, bail};
use tracing::warn;

use crate::permissions::write_secret;
use config::Config;

/// A token with full access, chosen by the program that sets up the machine.
pub(super) const BOOTSTRAP_VARIABLE: &str = "TIDEGATE_BOOTSTRAP_TOKEN";
/// The token of the commands that use the API. It may have few scopes.
const CLIENT_VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN";
const FILE: &str = "first-token";

pub(super) fn bootstrap() -> Result<Option<String>> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let Some(token) = variable(BOOTSTRAP_VARIABLE) else {
        if variable(CLIENT_VARIABLE).is_some() {
            warn!(
                "{CLIENT_VARIABLE} is for `tidegate admin` and `tidegate top`: the tracker ignores it. To start \
                 it with a token of full access, set {BOOTSTRAP_VARIABLE}"
            );
        }
        return Ok(None);
    };
    // Never printed: even an invalid token may be a secret.
    let token = token.into_string().ok().filter(|token| admin::is_token(token));
    match token {
        Some(token) => Ok(Some(token)),
        None => bail!(
            "{BOOTSTRAP_VARIABLE}: invalid token: expected `tg_` followed by 32 alphanumeric characters"
        ),
    }
}

#[derive(Clone, Default)]
pub(super) struct FirstToken(Arc<Mutex<Option<Shown>>>);

enum Shown {
    OnTerminal(String),
    InFile(PathBuf),
    /// There is neither a terminal nor a directory, so there is no token.
    Nowhere,
}

impl FirstToken {
    pub(super) fn display(&self, config: &Config) -> FirstTokenDisplay {
        let file = config.state_dir.as_deref().map(|dir| dir.join(FILE));
        let (shown, written) = (Arc::clone(&self.0), file.clone());
        let has_api = !config.admin_listen.is_empty();
        let show = move |token: &str| {
            if !has_api {
                return Ok(false);
            }
            let how = match &written {
                _ if io::stdout().is_terminal() => Shown::OnTerminal(token.into()),
                Some(file) => {
                    write_secret(file, format!("{token}\n").as_bytes(), None)?;
                    Shown::InFile(file.clone())
                }
                None => Shown::Nowhere,
            };
            let is_shown = !matches!(how, Shown::Nowhere);
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
            Ok(is_shown)
        };
        let remove = move || {
            // It was not written if it was printed, and is worthless anyway.
            file.iter().for_each(|file| drop(fs::remove_file(file)));
        };
        FirstTokenDisplay { show: Box::new(show), remove: Box::new(remove) }
    }

    /// Returns the startup text about a token that was just created, or could not be. `dashboard` is the URL to sign in
    /// at, if there is one. A link with the token signs in by itself; browsers send what follows `#` to no server.
    pub(super) fn text(&self, dashboard: Option<&str>) -> String {
        const END: &str =
            "  The token ends when another recorded token with full access is used.\n";
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match shown.take() {
            None => String::new(),
            Some(Shown::OnTerminal(token)) => {
                let link = dashboard
                    .map(|url| format!("  Sign in (shown once): {url}#token={token}\n"))
                    .unwrap_or_default();
                format!("{link}  First API token (full access): {token}\n{END}")
            }
            Some(Shown::InFile(file)) => {
                let link = dashboard
                    .map(|url| format!("  Sign in with it at {url}\n"))
                    .unwrap_or_default();
                format!("  First API token (full access): in {}\n{END}{link}", file.display())
            }
            Some(Shown::Nowhere) => format!(
                "  No API token: set state.dir, or {BOOTSTRAP_VARIABLE} to `tg_` and 32 letters and digits\n"
            ),
        }
    }
}
