//! Requests to the management API, one at a time: each call waits for its answer.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::tls::Trust;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, EXPECT, HeaderValue, RETRY_AFTER};
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
use super::upload::Upload;
use crate::cli::printable;

/// Bytes of an answer that is held as a whole. A page of a thousand torrents has some 200 kB.
const RESPONSE_MAX: usize = 64 << 20;
/// How long a list may take to be sent and taken in. The API ends connections that are silent sooner.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a stream may be silent: the API sends something every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Where the API is, and how to access it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Without `/api/v1`.
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// Whose certificates are believed.
    pub(crate) authorities: Arc<RootCertStore>,
    /// How long each answer is waited for.
    pub(crate) timeout: Duration,
}

/// The API of a tracker.
pub(crate) struct Api {
    endpoint: Endpoint,
    runtime: Runtime,
    pool: Pool<HttpsConnector<HttpConnector>, Body>,
}

type Body = Either<Full<Bytes>, Upload>;

impl Api {
    pub(crate) fn new(endpoint: Endpoint) -> Result<Self, ApiError> {
        let failed = |error: &dyn fmt::Display| ApiError::Failed(error.to_string());
        let trust = Trust::Authorities(Arc::clone(&endpoint.authorities));
        let mut tls = client::tls::config(&trust).map_err(|error| failed(&error))?;
        // The connector sets them itself.
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

    /// Where it is, for people.
    pub(crate) fn url(&self) -> &str {
        &self.endpoint.url
    }

    /// What comes of a request, which is method and path as `GET /keys`; nothing, if nothing is said.
    pub(crate) fn request(&self, request: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let (_, value) = self.request_with_status(request, body, StatusCode::is_success)?;
        Ok(value)
    }

    /// The same if the answer has such a status.
    pub(crate) fn request_with_status(
        &self,
        request: &str,
        body: Option<&Value>,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<(StatusCode, Value), ApiError> {
        self.runtime.block_on(async {
            let answer = self.send_request(request, body, is_good).await?;
            let status = answer.status();
            let bytes = self.read_body(answer).await?;
            if bytes.is_empty() {
                return Ok((status, Value::Null));
            }
            Ok((status, serde_json::from_slice(&bytes).map_err(|_| self.not_tidegate(status))?))
        })
    }

    /// Sends a list as it is read.
    pub(super) fn send(&self, request: &str, list: Upload) -> Result<Value, ApiError> {
        let (fault, continue_signal) = (list.error(), list.continue_signal());
        let mut request = self.build(request, Either::Right(list))?;
        request.headers_mut().insert(CONTENT_TYPE, TEXT);
        // Who may not send it is told so before it is sent.
        request.headers_mut().insert(EXPECT, CONTINUE);
        hyper::ext::on_informational(&mut request, move |_| continue_signal.notify_one());
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(UPLOAD_TIMEOUT, self.pool.request(request)).await;
            let answer = match answer.map_err(|_| self.timed_out())? {
                Ok(answer) => answer,
                Err(error) if error.is_connect() => return Err(self.unreachable(&error)),
                Err(error) => {
                    return Err(fault.take().unwrap_or_else(|| self.upload_broken(&error)));
                }
            };
            let answer = self.check_status(answer, StatusCode::is_success).await?;
            let (status, bytes) = (answer.status(), self.read_body(answer).await?);
            serde_json::from_slice(&bytes).map_err(|_| self.not_tidegate(status))
        })
    }

    /// Gives text to `take` as it comes.
    pub(crate) fn read(
        &self,
        request: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut request = self.build(request, Either::Left(Full::default()))?;
        request.headers_mut().insert(ACCEPT, TEXT);
        self.runtime.block_on(async {
            let answer = self.with_timeout(self.pool.request(request)).await?;
            let mut body = self.check_status(answer, StatusCode::is_success).await?.into_body();
            while let Some(chunk) = self.chunk(&mut body).await? {
                take(&chunk)?;
            }
            Ok(())
        })
    }

    /// Follows a stream of server-sent events.
    pub(crate) fn stream_events(&self, request: &str) -> Result<EventStream<'_>, ApiError> {
        let answer =
            self.runtime.block_on(self.send_request(request, None, StatusCode::is_success))?;
        Ok(EventStream { api: self, body: answer.into_body(), parser: SseParser::default() })
    }

    /// The next piece of a body; nothing at its end.
    pub(super) fn next_chunk(
        &self,
        body: &mut Incoming,
        wait: Duration,
    ) -> Result<Option<Bytes>, ApiError> {
        self.runtime.block_on(async {
            let chunk = tokio::time::timeout(wait, self.next_chunk_untimed(body)).await;
            chunk.map_err(|_| self.timed_out())?
        })
    }

    async fn chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
        let chunk =
            tokio::time::timeout(self.endpoint.timeout, self.next_chunk_untimed(body)).await;
        chunk.map_err(|_| self.timed_out())?
    }

    async fn next_chunk_untimed(&self, body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Some(frame) = body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(|error| self.broken(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// An answer of a good status. Who asks too much in a second waits as long as the tracker wants, if
    /// that is no longer than any answer is waited for.
    async fn send_request(
        &self,
        request: &str,
        body: Option<&Value>,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<Response<Incoming>, ApiError> {
        let start = Instant::now();
        loop {
            let text = body.map(Value::to_string).unwrap_or_default();
            let mut read_body = self.build(request, Either::Left(Full::from(text)))?;
            if body.is_some() {
                read_body.headers_mut().insert(CONTENT_TYPE, JSON);
            }
            let answer = self.with_timeout(self.pool.request(read_body)).await?;
            let wait = (answer.status() == StatusCode::TOO_MANY_REQUESTS)
                .then(|| answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok());
            let wait = wait.flatten().map(Duration::from_secs);
            match wait.filter(|wait| start.elapsed() + *wait < self.endpoint.timeout) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return self.check_status(answer, is_good).await,
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
        answer: impl Future<Output = Result<Response<Incoming>, hyper_util::client::legacy::Error>>,
    ) -> Result<Response<Incoming>, ApiError> {
        let answer = tokio::time::timeout(self.endpoint.timeout, answer).await;
        answer.map_err(|_| self.timed_out())?.map_err(|error| self.unreachable(&error))
    }

    /// The answer, unless it is that something is wrong.
    async fn check_status(
        &self,
        answer: Response<Incoming>,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<Response<Incoming>, ApiError> {
        let status = answer.status();
        if is_good(&status) {
            return Ok(answer);
        }
        let kind = answer.headers().get(CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "application/problem+json") {
            return Err(self.not_tidegate(status));
        }
        let bytes = self.read_body(answer).await?;
        let problem: Value =
            serde_json::from_slice(&bytes).map_err(|_| self.not_tidegate(status))?;
        let part = |name: &str| printable(problem[name].as_str().unwrap_or("?"));
        Err(ApiError::Failed(format!("{}: {}", part("title"), part("detail"))))
    }

    async fn read_body(&self, answer: Response<Incoming>) -> Result<Bytes, ApiError> {
        let body = Limited::new(answer.into_body(), RESPONSE_MAX).collect();
        let body = tokio::time::timeout(self.endpoint.timeout, body).await;
        let body = body.map_err(|_| self.timed_out())?;
        body.map(|body| body.to_bytes()).map_err(|error| self.broken(&*error))
    }

    fn unreachable(&self, error: &hyper_util::client::legacy::Error) -> ApiError {
        if !error.is_connect() {
            return self.broken(error);
        }
        let why = root(error);
        let hint = if why.contains("UnknownIssuer") {
            ": --ca FILE names the authority that has issued it"
        } else if why.contains("InvalidContentType") {
            ": is it http:// there, and not https://?"
        } else {
            ""
        };
        ApiError::Failed(format!("{} cannot be reached: {why}{hint}", self.url()))
    }

    fn broken(&self, error: &(dyn StdError + 'static)) -> ApiError {
        let why = root(error);
        ApiError::Failed(format!("{}: the connection broke: {why}", self.url()))
    }

    /// While a list was sent.
    fn upload_broken(&self, error: &(dyn StdError + 'static)) -> ApiError {
        let (url, why) = (self.url(), root(error));
        ApiError::Failed(format!(
            "{url}: the connection broke while the list was sent: {why} \
             (5 million entries at a time are the most, and 75 seconds for them)"
        ))
    }

    fn timed_out(&self) -> ApiError {
        ApiError::Failed(format!("{}: no answer in time (--timeout)", self.url()))
    }

    fn not_tidegate(&self, status: StatusCode) -> ApiError {
        let (url, status) = (self.url(), status.as_u16());
        ApiError::Failed(format!(
            "{url} answers {status}, and not as tidegate does: is this its admin listener?"
        ))
    }
}

/// A stream of server-sent events.
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
            let chunk = self.api.next_chunk(&mut self.body, SILENCE_MAX)?;
            let Some(chunk) = chunk else { return Ok(None) };
            if !self.parser.push(&chunk) {
                let url = self.api.url();
                return Err(ApiError::Failed(format!("{url}: an event is too long")));
            }
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const CONTINUE: HeaderValue = HeaderValue::from_static("100-continue");

/// What an error comes from in the end.
fn root(mut error: &(dyn StdError + 'static)) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    printable(&error.to_string())
}

/// What goes into a path or a query as it is, and the rest escaped.
pub(super) fn escape(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_urls_is_escaped() {
        assert_eq!(escape("2001:db8::/32"), "2001%3Adb8%3A%3A%2F32");
        assert_eq!(escape("ban,key_first_used"), "ban,key_first_used");
        assert_eq!(escape("a&b=c d\n"), "a%26b%3Dc%20d%0A");
    }
}
