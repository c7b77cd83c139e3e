//! The HTTP client for the ACME server: TLS only, with timeouts and size limits, so that no server can
//! make us wait or exhaust memory.

use std::error::Error as StdError;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::client::tls::authorities;
use anyhow::{Context, Result};
use http_body_util::Limited;
use hyper::body::Bytes;
use hyper::header::RETRY_AFTER;
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes. A certificate chain has some 6 kB.
const RESPONSE_MAX: usize = 256 * 1024;

#[derive(Clone)]
pub(super) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    retry_after_s: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(ca: Option<&Path>) -> Result<Self> {
        let roots = roots(ca)?;
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
        let builder = builder.with_safe_default_protocol_versions()?;
        let tls = builder.with_root_certificates(roots).with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1();
        let pool = Pool::builder(TokioExecutor::new());
        Ok(Self { pool: pool.build(https.wrap_connector(tcp)), retry_after_s: Arc::default() })
    }

    /// Returns how long the server asked us to wait, if it has since the last call.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        Some(self.retry_after_s.swap(0, Ordering::Relaxed))
            .filter(|s| *s > 0)
            .map(Duration::from_secs)
    }
}

pub(super) fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    authorities(ca).context("tls.acme.ca")
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let retry_after_s = Arc::clone(&self.retry_after_s);
        let answer = self.pool.request(request);
        Box::pin(async move {
            let answer = tokio::time::timeout(RESPONSE_TIMEOUT, answer).await;
            let answer = answer.map_err(other)?.map_err(other)?;
            let (parts, body) = answer.into_parts();
            let retry_after = parts
                .headers
                .get(RETRY_AFTER)
                .and_then(|retry_after| retry_after.to_str().ok()?.parse().ok());
            if !parts.status.is_success() {
                retry_after_s.store(retry_after.unwrap_or(0), Ordering::Relaxed);
            }
            Ok(Response::from_parts(parts, Limited::new(body, RESPONSE_MAX)).into())
        })
    }
}

fn other(error: impl StdError + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}
