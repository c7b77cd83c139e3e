//! Where the management API is, and how to access it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use hyper::Uri;

use super::api::Endpoint;
use super::error::ApiError;

/// The variable that holds the token. `tidegate serve` does not read it: it may have few scopes.
const TOKEN_VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN";

const INVALID_TOKEN: &str = "invalid token: expected `tg_` followed by 32 alphanumeric characters";

pub(super) const HELP_HEADING: &str = "API options";

/// Options for reaching the API.
#[derive(Args)]
pub(crate) struct ApiArgs {
    /// URL of the API [default: the admin listener of the configuration, http://127.0.0.1:6970].
    #[arg(long, value_name = "URL", global = true, help_heading = HELP_HEADING)]
    url: Option<String>,
    /// File with the token [default: the environment variable TIDEGATE_ADMIN_TOKEN]. The token is never an
    /// argument, because all users of a machine can see those.
    #[arg(long, value_name = "FILE", global = true, help_heading = HELP_HEADING)]
    token_file: Option<PathBuf>,
    /// PEM file with additional trusted CAs.
    #[arg(long, value_name = "FILE", global = true, help_heading = HELP_HEADING)]
    ca: Option<PathBuf>,
    /// Timeout of each response.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, global = true, help_heading = HELP_HEADING,
          value_parser = value_parser!(u32).range(1..=3600))]
    timeout: u32,
}

impl ApiArgs {
    /// Returns the endpoint. Without a URL, it is that of the configuration in `config`.
    pub(crate) fn endpoint(
        &self,
        config: Option<&Path>,
        needs_token: bool,
    ) -> Result<Endpoint, ApiError> {
        let url = match &self.url {
            Some(url) => checked(url).map_err(|why| ApiError::Usage(format!("--url: {why}")))?,
            None => configured(config)?,
        };
        let token = self.token()?;
        if needs_token && token.is_none() {
            return Err(ApiError::Usage(format!(
                "missing token: set the variable {TOKEN_VARIABLE} or pass --token-file FILE. The first start \
                 of the tracker writes a token to {}, or prints it on a terminal",
                first_token(config)
            )));
        }
        let authorities = client::tls::authorities(self.ca.as_deref());
        let authorities = authorities.map_err(|bad| ApiError::Usage(format!("--ca: {bad}")))?;
        let timeout = Duration::from_secs(self.timeout.into());
        Ok(Endpoint { url, token, authorities: Arc::new(authorities), timeout })
    }

    fn token(&self) -> Result<Option<String>, ApiError> {
        if let Some(file) = &self.token_file {
            return token_in(file).map(Some);
        }
        let Some(token) = std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        // Never printed: even an invalid token may be a secret.
        let token = token.into_string().ok().filter(|token| admin::is_token(token));
        let due = || ApiError::Usage(format!("{TOKEN_VARIABLE}: {INVALID_TOKEN}"));
        token.map(Some).ok_or_else(due)
    }
}

/// Returns the path of the first token, as far as the configuration tells: the one in `file`, or else that of the only
/// running tracker.
fn first_token(file: Option<&Path>) -> String {
    let running: Vec<PathBuf> = crate::running::files().into_keys().collect();
    let only = if let [only] = running.as_slice() { Some(only.as_path()) } else { None };
    let dir = crate::load(file.or(only)).ok().and_then(|(_, config)| config.state_dir);
    let place = dir.map(|dir| dir.join("first-token").display().to_string());
    place.unwrap_or_else(|| "first-token in its state directory".into())
}

fn token_in(file: &Path) -> Result<String, ApiError> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| {
        ApiError::Usage(format!("--token-file: cannot read {}: {error}", file.display()))
    })?;
    let token = text.trim();
    if admin::is_token(token) {
        return Ok(token.into());
    }
    let file = file.display();
    Err(ApiError::Usage(format!("--token-file: {file}: {INVALID_TOKEN}")))
}

/// Checks a URL, and returns it without a trailing slash or `/api/v1`.
fn checked(text: &str) -> Result<String, String> {
    let bad = |why: &str| format!("{text}: {why}");
    let uri: Uri = text.parse().map_err(|_| bad("expected a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("expected http:// or https://"));
    }
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    if uri.host().is_none_or(str::is_empty) || authority.contains('@') || uri.query().is_some() {
        return Err(bad("expected a host, without user name or query"));
    }
    let base = text.trim_end_matches('/');
    Ok(base.strip_suffix("/api/v1").unwrap_or(base).into())
}

fn configured(file: Option<&Path>) -> Result<String, ApiError> {
    let (_, config) = crate::load(file).map_err(|problems| ApiError::Usage(problems.join("; ")))?;
    let Some(listen) = config.admin_listen.first() else {
        return Err(ApiError::Usage(
            "admin.listen is empty in the configuration, so there is no API: pass --url".into(),
        ));
    };
    let scheme = if config.admin_tls { "https" } else { "http" };
    Ok(format!("{scheme}://{}", here(*listen)))
}

/// Returns the address at which a listener is reached from this machine.
pub(crate) fn here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port())
}
