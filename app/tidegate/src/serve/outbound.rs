//! Sends requests to other machines, over TLS for https URLs. URLs of keys and lists are in the configuration file: the
//! API cannot set them.

mod resolver;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ACCEPT, ETAG, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use resolver::Resolver;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;

use crate::errors;

pub(super) use resolver::Targets;

pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) type Pool = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

const REDIRECTS_MAX: u32 = 3;
const VALIDATOR_MAX: usize = 1024;

/// Returns a client that connects to `targets` only, and also trusts the authorities in the PEM file `ca`.
pub(super) fn pool(targets: &Targets, ca: Option<&Path>) -> Result<Pool> {
    let roots = client::tls::authorities(ca)?;
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    let tls = builder.with_root_certificates(roots).with_no_client_auth();
    let mut tcp = HttpConnector::new_with_resolver(Resolver::new(targets.clone()));
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let connector = connector.enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Requests what the configuration file names a URL of.
pub(super) struct HttpsFetcher(Pool);

/// A request for something that may be known already.
#[derive(Clone, Copy)]
pub(super) struct FetchRequest<'a> {
    /// The URL, which [`config::fetch_port`] accepts.
    pub(super) url: &'a str,
    pub(super) accept: &'static str,
    /// The version that is known.
    pub(super) known: &'a Validators,
    /// Bytes of the longest response.
    pub(super) bytes_max: u64,
    pub(super) timeout: Duration,
    pub(super) follows_redirects: bool,
}

/// The marks by which a server tells versions apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Validators {
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<String>,
}

impl HttpsFetcher {
    pub(super) fn new(ca: Option<&Path>) -> Result<Self> {
        pool(&Targets::Any, ca).map(Self)
    }

    /// Passes the body of a response with status 200 to `take`, part by part, and returns the marks of that version.
    /// Returns `None` if the known version is the present one. `take` counts the bytes: of responses that do not say
    /// how long they are, it refuses the rest.
    pub(super) async fn get(
        &self,
        request: &FetchRequest<'_>,
        take: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<Option<Validators>, String> {
        let fetched = tokio::time::timeout(request.timeout, self.get_slowly(request, take)).await;
        fetched.unwrap_or_else(|_| {
            Err(format!("no complete response within {} s", request.timeout.as_secs()))
        })
    }

    async fn get_slowly(
        &self,
        request: &FetchRequest<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<Option<Validators>, String> {
        let response = self.request(request).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if request.known.are_there() => return Ok(None),
            status => return Err(format!("expected status 200, found {}", status.as_u16())),
        }
        let len = response.body().size_hint().lower();
        if len > request.bytes_max {
            let most = request.bytes_max;
            return Err(format!("expected at most {most} bytes, found a response of {len}"));
        }
        let validators = Validators::of(&response);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                format!("the response is not complete: {}", errors::describe(&error))
            })?;
            if let Some(part) = frame.data_ref() {
                take(part)?;
            }
        }
        Ok(Some(validators))
    }

    /// Sends a request, and again to where the responses refer to.
    async fn request(&self, request: &FetchRequest<'_>) -> Result<Response<Incoming>, String> {
        let mut url = request.url.to_owned();
        let mut redirects = if request.follows_redirects { REDIRECTS_MAX } else { 0 };
        loop {
            let one = request.at(&url)?;
            let response = self.0.request(one).await.map_err(|error| errors::describe(&error))?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED
            {
                return Ok(response);
            }
            let Some(left) = redirects.checked_sub(1) else {
                return if request.follows_redirects {
                    Err(format!("expected at most {REDIRECTS_MAX} redirects"))
                } else {
                    Ok(response)
                };
            };
            redirects = left;
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|location| location.to_str().ok()).unwrap_or_default();
            url = redirect(&url, location)?;
        }
    }
}

/// Returns the URL that a response refers to: by the same scheme and port, which the sandbox allows.
fn redirect(from: &str, location: &str) -> Result<String, String> {
    let (scheme, rest) = from.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let to = match location.starts_with('/') && !location.starts_with("//") {
        true => format!("{scheme}://{authority}{location}"),
        false => location.split('#').next().unwrap_or_default().to_owned(),
    };
    let is_alike = to.split_once("://").is_some_and(|(other, _)| other == scheme)
        && config::fetch_port(&to) == config::fetch_port(from);
    if is_alike {
        return Ok(to);
    }
    let shown = config::without_secrets(&to);
    Err(format!("redirected to {shown}: only URLs of the same scheme and port are followed"))
}

impl FetchRequest<'_> {
    fn at(&self, url: &str) -> Result<Request<Full<Bytes>>, String> {
        let Validators { etag, last_modified } = self.known;
        let mut request = Request::get(url)
            .header(ACCEPT, self.accept)
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(date) = last_modified {
            request = request.header(IF_MODIFIED_SINCE, date);
        }
        request.body(Full::default()).map_err(|error| error.to_string())
    }
}

impl Validators {
    fn of(response: &Response<Incoming>) -> Self {
        let header = |name: HeaderName| {
            let text = response.headers().get(name)?.to_str().ok()?;
            (text.len() <= VALIDATOR_MAX).then(|| text.to_owned())
        };
        Self { etag: header(ETAG), last_modified: header(LAST_MODIFIED) }
    }

    fn are_there(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_keep_scheme_and_port() {
        let from = "https://a.example/list?x";
        let to = |location| redirect(from, location);
        assert_eq!(to("/b#c?"), Ok("https://a.example/b#c?".into()));
        assert_eq!(to("https://b.example/c"), Ok("https://b.example/c".into()));
        assert_eq!(to("https://b.example:443/c#d"), Ok("https://b.example:443/c".into()));
        for bad in [
            "http://a.example/",
            "https://a.example:8443/",
            "//b.example/",
            "list",
            "",
            "file:///etc",
        ] {
            assert!(to(bad).unwrap_err().contains("same scheme and port"), "{bad}");
        }
    }
}
