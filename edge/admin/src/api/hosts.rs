//! The host names that the admin listeners answer to.
//!
//! A web page of a foreign name can make that name resolve to the tracker's address (DNS rebinding). A browser
//! then takes requests of the page to the tracker for requests to the page's own site. They name the foreign
//! host, and are refused.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::Response;

use super::problem::Problem;
use crate::sources::MetricSources;

/// The names of this tracker.
pub(crate) struct HostNames {
    /// Names that the operator allows; `*` = any.
    pub(crate) allowed: Vec<String>,
    /// Knows the names of the certificates.
    pub(crate) sources: Arc<MetricSources>,
}

/// Middleware: refuses requests for foreign hosts. Health checks may use any name: they show nothing.
pub(crate) async fn check_host(
    State(names): State<Arc<HostNames>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if !request.uri().path().starts_with("/health/") {
        // HTTP/1.0 allows requests without a host. Browsers do not send them.
        if let Some(foreign) = foreign_host(&names, request.uri().authority(), request.headers()) {
            return Err(Problem::foreign_host(&foreign));
        }
    }
    Ok(next.run(request).await)
}

/// Returns the first host that a request names and that is not this tracker.
fn foreign_host(
    names: &HostNames,
    authority: Option<&Authority>,
    headers: &HeaderMap,
) -> Option<String> {
    let of_uri = authority.map(|authority| authority.as_str().as_bytes());
    let hosts = of_uri.into_iter().chain(headers.get_all(HOST).iter().map(|host| host.as_bytes()));
    let mut hosts = hosts.map(|host| match Authority::try_from(host) {
        Ok(authority) if !authority.as_str().contains('@') => authority.host().to_lowercase(),
        _ => String::from_utf8_lossy(host).into_owned(),
    });
    hosts.find(|host| !names.contain(host))
}

impl HostNames {
    /// Returns whether `host`, in lower case and without a port, is this tracker: an IP address, a name of
    /// loopback, an allowed name, or the name of a certificate.
    fn contain(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = host.strip_suffix('.').unwrap_or(host);
        bare.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.allowed.iter().any(|allowed| allowed == "*" || matches(allowed, name))
            || (self.sources.certificates)().keys().any(|known| matches(known, name))
    }
}

/// Returns whether `name` is `pattern`, whose first label may be `*`.
fn matches(pattern: &str, name: &str) -> bool {
    if pattern.is_empty() {
        return false;
    }
    match pattern.strip_prefix("*.") {
        Some(parent) => {
            name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
        }
        None => name.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn finds_foreign_hosts() {
        let certificates = Box::new(|| {
            let names = ["tracker.example.org", "*.wild.example.org", ""];
            names.map(|name| (name.into(), SystemTime::UNIX_EPOCH..SystemTime::now())).into()
        });
        let sources = Arc::new(MetricSources { certificates, ..crate::metrics::tests::sources() });
        let names = HostNames { allowed: vec!["panel.example.org".into()], sources };
        let foreign = |hosts: &[&str]| {
            let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap()));
            foreign_host(&names, None, &headers.collect())
        };
        for host in [
            "127.0.0.1:6970",
            "192.0.2.1",
            "[::1]:6970",
            "[2001:db8::1]",
            "localhost",
            "LocalHost:6970",
            "a.localhost.",
            "panel.example.org:443",
            "Tracker.example.org",
            "a.wild.example.org",
        ] {
            assert_eq!(foreign(&[host]), None, "{host}");
        }
        for host in [
            "evil.example:6970",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0x7f.1",
            "a.tracker.example.org",
            "a.b.wild.example.org",
            "wild.example.org",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
            "a b",
        ] {
            assert!(foreign(&[host]).is_some(), "{host}");
        }
        assert_eq!(foreign(&[]), None);
        assert_eq!(foreign(&["localhost", "evil.example"]).as_deref(), Some("evil.example"));
        let uri = Authority::from_static("evil.example:80");
        assert!(foreign_host(&names, Some(&uri), &HeaderMap::new()).is_some());
        assert!(HostNames { allowed: vec!["*".into()], ..names }.contain("evil.example"));
    }
}
