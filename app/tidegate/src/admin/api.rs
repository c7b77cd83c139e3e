//! Requests to the management API. Each call waits for the response.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::tls::Trust;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::error::ApiError;
use super::event_stream::{SseMessage, SseParser};
use crate::cli::printable;
use crate::errors;

/// Bytes of a response that is kept in memory. A page of a thousand torrents has some 200 kB.
const RESPONSE_MAX: usize = 64 << 20;
/// Longest time of an upload. The API closes idle connections earlier.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest time that a stream may be silent. The API sends something every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Without `/api/v1`.
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) authorities: Arc<RootCertStore>,
    pub(crate) timeout: Duration,
}

pub(crate) struct Api {
    endpoint: Endpoint,
    runtime: Runtime,
    pool: Pool<HttpsConnector<HttpConnector>, Body>,
}

type Body = Full<Bytes>;

impl Api {
    pub(crate) fn new(endpoint: Endpoint) -> Result<Self, ApiError> {
        let failed = |error: &dyn fmt::Display| ApiError::Failed(error.to_string());
        let trust = Trust::Roots(Arc::clone(&endpoint.authorities));
        let mut tls = client::tls::config(&trust).map_err(|error| failed(&error))?;
        // The connector requires that they are not set.
        tls.alpn_protocols.clear();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(endpoint.timeout));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let pool = Pool::builder(TokioExecutor::new());
        let pool = pool.build(connector.enable_http1().wrap_connector(tcp));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        Ok(Self { endpoint, runtime, pool })
    }

    pub(crate) fn url(&self) -> &str {
        &self.endpoint.url
    }

    /// Sends a request, method and path such as `GET /keys`. Returns the response; null if it is empty.
    pub(crate) fn request(&self, request: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        self.runtime.block_on(async {
            let response = self.send_request(request, body).await?;
            let status = response.status();
            let bytes = self.read_body(response).await?;
            if bytes.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_slice(&bytes).map_err(|_| self.not_tidegate(status))
        })
    }

    pub(super) fn upload(&self, request: &str, list: String) -> Result<Value, ApiError> {
        let mut upload = self.build(request, list.into())?;
        upload.headers_mut().insert(CONTENT_TYPE, TEXT);
        self.runtime.block_on(async {
            let response = tokio::time::timeout(UPLOAD_TIMEOUT, self.pool.request(upload)).await;
            let response = match response.map_err(|_| self.timed_out())? {
                Ok(response) => response,
                Err(error) => return Err(self.upload_broken(request, &error).await),
            };
            let response = self.check_status(response).await?;
            let (status, bytes) = (response.status(), self.read_body(response).await?);
            serde_json::from_slice(&bytes).map_err(|_| self.not_tidegate(status))
        })
    }

    pub(super) fn text(&self, request: &str) -> Result<String, ApiError> {
        let mut request = self.build(request, Body::default())?;
        request.headers_mut().insert(ACCEPT, TEXT);
        let mut text = Vec::new();
        self.runtime.block_on(async {
            let response = self.with_timeout(self.pool.request(request)).await?;
            let mut body = self.check_status(response).await?.into_body();
            while let Some(chunk) = self.next_chunk(&mut body, self.endpoint.timeout).await? {
                text.extend_from_slice(&chunk);
            }
            Ok(String::from_utf8_lossy(&text).into_owned())
        })
    }

    pub(crate) fn stream_events(&self, request: &str) -> Result<EventStream<'_>, ApiError> {
        let response = self.runtime.block_on(self.send_request(request, None))?;
        Ok(EventStream { api: self, body: response.into_body(), parser: SseParser::default() })
    }

    /// Returns the next chunk of a body; `None` at its end. Fails if no part of it comes for `wait`.
    async fn next_chunk(
        &self,
        body: &mut Incoming,
        wait: Duration,
    ) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = tokio::time::timeout(wait, body.frame()).await;
            let Some(frame) = frame.map_err(|_| self.timed_out())? else { return Ok(None) };
            if let Ok(data) = frame.map_err(|error| self.broken(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// Sends a request, again when the API says so if there are too many. Returns a response without error.
    async fn send_request(
        &self,
        request: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, ApiError> {
        let start = Instant::now();
        loop {
            let text = body.map(Value::to_string).unwrap_or_default();
            let mut read_body = self.build(request, text.into())?;
            if body.is_some() {
                read_body.headers_mut().insert(CONTENT_TYPE, JSON);
            }
            let response = self.with_timeout(self.pool.request(read_body)).await?;
            let wait = (response.status() == StatusCode::TOO_MANY_REQUESTS)
                .then(|| response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok());
            let wait = wait.flatten().map(Duration::from_secs);
            match wait.filter(|wait| start.elapsed() + *wait < self.endpoint.timeout) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return self.check_status(response).await,
            }
        }
    }

    fn build(&self, request: &str, body: Body) -> Result<Request<Body>, ApiError> {
        let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
        let mut head =
            Request::builder().method(method).uri(format!("{}/api/v1{path}", self.url()));
        if let Some(token) = &self.endpoint.token {
            head = head.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        head.body(body).map_err(|error| ApiError::Usage(format!("{}: {error}", self.url())))
    }

    async fn with_timeout(
        &self,
        response: impl Future<Output = Result<Response<Incoming>, hyper_util::client::legacy::Error>>,
    ) -> Result<Response<Incoming>, ApiError> {
        let response = tokio::time::timeout(self.endpoint.timeout, response).await;
        response.map_err(|_| self.timed_out())?.map_err(|error| self.unreachable(&error))
    }

    /// Returns the response, or the API's error. Bad health has a status of errors, and is none.
    async fn check_status(
        &self,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, ApiError> {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE);
        let is_health = status == StatusCode::SERVICE_UNAVAILABLE
            && kind.is_some_and(|kind| kind == "application/json");
        if status.is_success() || is_health {
            return Ok(response);
        }
        if kind.is_none_or(|kind| kind != "application/problem+json") {
            return Err(self.not_tidegate(status));
        }
        let bytes = self.read_body(response).await?;
        let problem: Value =
            serde_json::from_slice(&bytes).map_err(|_| self.not_tidegate(status))?;
        let part = |name: &str| printable(problem[name].as_str().unwrap_or("?"));
        Err(ApiError::Failed(format!("{}: {}", part("title"), part("detail"))))
    }

    async fn read_body(&self, response: Response<Incoming>) -> Result<Bytes, ApiError> {
        let body = Limited::new(response.into_body(), RESPONSE_MAX).collect();
        let body = tokio::time::timeout(self.endpoint.timeout, body).await;
        let body = body.map_err(|_| self.timed_out())?;
        body.map(|body| body.to_bytes()).map_err(|error| self.broken(&*error))
    }

    fn unreachable(&self, error: &hyper_util::client::legacy::Error) -> ApiError {
        if !error.is_connect() {
            return self.broken(error);
        }
        let why = printable(&errors::describe(error));
        let hint = if why.contains("unknown authority") {
            ": if you trust it, pass its certificate with --ca FILE"
        } else if why.contains("does not use TLS") {
            ": try http:// instead of https://"
        } else {
            ""
        };
        ApiError::Failed(format!("cannot reach {}: {why}{hint}", self.url()))
    }

    fn broken(&self, error: &(dyn StdError + 'static)) -> ApiError {
        let why = printable(&errors::describe(error));
        ApiError::Failed(format!("{}: the connection was lost: {why}", self.url()))
    }

    /// Returns why an upload broke off. The API checks the token first, and may have closed the connection before it
    /// had all of the list: an empty one shows that.
    async fn upload_broken(
        &self,
        request: &str,
        error: &hyper_util::client::legacy::Error,
    ) -> ApiError {
        if error.is_connect() {
            return self.unreachable(error);
        }
        if let Ok(empty) = self.build(request, Body::default())
            && let Ok(response) = self.with_timeout(self.pool.request(empty)).await
            && matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            && let Err(refused) = self.check_status(response).await
        {
            return refused;
        }
        let (url, why) = (self.url(), printable(&errors::describe(error)));
        ApiError::Failed(format!(
            "{url}: the connection was lost while the list was sent: {why} (the API accepts 5 million \
             entries at a time, within 75 seconds)"
        ))
    }

    fn timed_out(&self) -> ApiError {
        ApiError::Failed(format!("{}: no response in time (see --timeout)", self.url()))
    }

    fn not_tidegate(&self, status: StatusCode) -> ApiError {
        let (url, status) = (self.url(), status.as_u16());
        let hint = if status == 400 && url.starts_with("http:") {
            ", and whether it uses TLS (https://)"
        } else {
            ""
        };
        ApiError::Failed(format!(
            "{url}: unexpected response (status {status}): check that this is tidegate's admin listener\
             {hint}"
        ))
    }
}

pub(crate) struct EventStream<'a> {
    api: &'a Api,
    body: Incoming,
    parser: SseParser,
}

impl EventStream<'_> {
    /// Waits for the next event. Returns `None` once the tracker has ended the stream.
    pub(crate) fn next(&mut self) -> Result<Option<SseMessage>, ApiError> {
        loop {
            if let Some(message) = self.parser.next() {
                return Ok(Some(message));
            }
            let chunk = self.api.next_chunk(&mut self.body, SILENCE_MAX);
            let Some(chunk) = self.api.runtime.block_on(chunk)? else { return Ok(None) };
            if !self.parser.push(&chunk) {
                let url = self.api.url();
                return Err(ApiError::Failed(format!("{url}: an event is too long")));
            }
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");

pub(super) fn escape(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}
