//! Where the management API is, and who asks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use hyper::Uri;

use super::api::Endpoint;
use super::error::ApiError;

/// Where a token may stand that nobody else sees; what serves has its own there, too.
const TOKEN_VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN";

/// In the help of each command.
pub(super) const HELP_HEADING: &str = "The API";

/// How the API is reached.
#[derive(Args)]
pub(crate) struct ApiArgs {
    /// Where the API is; without it, on the admin listener of the configuration (http://127.0.0.1:6970).
    #[arg(long, value_name = "URL", global = true, help_heading = HELP_HEADING)]
    url: Option<String>,
    /// File with the token; without it, the variable TIDEGATE_ADMIN_TOKEN has it. It cannot be an
    /// argument, because everybody on a machine may see those.
    #[arg(long, value_name = "FILE", global = true, help_heading = HELP_HEADING)]
    token_file: Option<PathBuf>,
    /// PEM file of authorities that are believed besides those that browsers trust.
    #[arg(long, value_name = "FILE", global = true, help_heading = HELP_HEADING)]
    ca: Option<PathBuf>,
    /// How long each answer is waited for.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, global = true, help_heading = HELP_HEADING,
          value_parser = value_parser!(u32).range(1..=3600))]
    timeout: u32,
}

impl ApiArgs {
    /// All that is needed to ask, with the configuration in `config` if no URL is given.
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
                "a token is due: in the variable {TOKEN_VARIABLE} or in a file that --token-file names; \
                 the first start prints one"
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
        // It is not shown: whatever it is, somebody means it to be a secret.
        let token = token.into_string().ok().filter(|token| admin::is_token(token));
        let due =
            || ApiError::Usage(format!("{TOKEN_VARIABLE}: tg_ and 32 letters and digits are due"));
        token.map(Some).ok_or_else(due)
    }
}

/// Reads a token from a file.
fn token_in(file: &Path) -> Result<String, ApiError> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| {
        ApiError::Usage(format!("--token-file: {}: cannot be read: {error}", file.display()))
    })?;
    let token = text.trim();
    if admin::is_token(token) {
        return Ok(token.into());
    }
    let file = file.display();
    Err(ApiError::Usage(format!(
        "--token-file: {file}: tg_ and 32 letters and digits are due, and nothing else"
    )))
}

/// The URL without what follows its host and path.
fn checked(text: &str) -> Result<String, String> {
    let bad = |why: &str| format!("{text}: {why}");
    let uri: Uri = text.parse().map_err(|_| bad("no URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("http:// or https:// is due"));
    }
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    if uri.host().is_none_or(str::is_empty) || authority.contains('@') || uri.query().is_some() {
        return Err(bad("a host is due, and neither user nor query"));
    }
    let base = text.trim_end_matches('/');
    Ok(base.strip_suffix("/api/v1").unwrap_or(base).into())
}

/// Where the configuration has it listen.
fn configured(file: Option<&Path>) -> Result<String, ApiError> {
    let (_, config) = crate::load(file).map_err(|problems| ApiError::Usage(problems.join("; ")))?;
    let Some(listen) = config.admin_listen.first() else {
        return Err(ApiError::Usage("[admin] listen is empty, so that there is no API".into()));
    };
    let scheme = if config.admin_tls { "https" } else { "http" };
    Ok(format!("{scheme}://{}", here(*listen)))
}

/// How an address of this machine is reached from it.
fn here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_admin_listeners() {
        for (text, url) in [
            ("http://127.0.0.1:6970", "http://127.0.0.1:6970"),
            ("https://[::1]:6970/", "https://[::1]:6970"),
            ("https://a.example/tidegate/api/v1/", "https://a.example/tidegate"),
        ] {
            assert_eq!(checked(text), Ok(url.into()));
        }
        for bad in
            ["", "127.0.0.1:6970", "udp://a:1", "http://", "http://u:p@a", "http://a/?x", "a b"]
        {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_listens_everywhere_is_here() {
        let url = |listen: &str| here(listen.parse().unwrap()).to_string();
        assert_eq!(url("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(url("[::]:1"), "[::1]:1");
        assert_eq!(url("192.0.2.1:1"), "192.0.2.1:1");
    }
}
