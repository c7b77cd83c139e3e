//! Sends requests to other machines, over TLS for https URLs. Redirects are not followed. The URL of keys is in the
//! configuration file: the API cannot set it.

mod resolver;

use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use resolver::Resolver;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;

use crate::errors;

pub(super) use resolver::Targets;

/// Longest time of a request until its response is complete.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) type Pool = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// Returns a client that connects to `targets` only.
pub(super) fn pool(targets: &Targets) -> Result<Pool> {
    let roots = client::tls::authorities(None)?;
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    let tls = builder.with_root_certificates(roots).with_no_client_auth();
    let resolver = Resolver::start(resolver::system, targets.clone());
    let mut tcp = HttpConnector::new_with_resolver(resolver.context("cannot start a thread")?);
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let connector = connector.enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Requests what the configuration file names a URL of.
pub(super) struct KeyFetcher(Pool);

impl KeyFetcher {
    /// Starts the threads that resolve names.
    pub(super) fn new() -> Result<Self> {
        pool(&Targets::Any).map(Self)
    }

    /// Returns the body of a response with status 200, of at most `bytes_max` bytes. Redirects are not
    /// followed.
    pub(super) async fn get(&self, url: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let fetched = tokio::time::timeout(RESPONSE_TIMEOUT, self.get_slowly(url, bytes_max)).await;
        fetched.unwrap_or_else(|_| {
            Err(format!("no complete response within {} s", RESPONSE_TIMEOUT.as_secs()))
        })
    }

    async fn get_slowly(&self, url: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let request = Request::get(url)
            .header("accept", "application/json")
            .header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answer = self.0.request(request).await.map_err(|error| errors::describe(&error))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("expected status 200, found {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), bytes_max).collect().await;
        let body = body.map_err(|error| format!("cannot read the response: {error}"))?;
        Ok(body.to_bytes().into())
    }
}
