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

use super::stream::Stream;
use super::upload::Upload;
use crate::ask::{WrongUse, printable};

/// Bytes of an answer that is held as a whole. A page of a thousand torrents has some 200 kB.
const ANSWER_MAX: usize = 64 << 20;
/// How long a list may take to be sent and taken in. The API ends connections that are silent sooner.
const UPLOAD_TIME: Duration = Duration::from_secs(600);

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It makes no sense as it was given: a sentence.
    Use(String),
    /// The tracker cannot be asked, or does not do it: a sentence.
    Failed(String),
    /// Nobody reads what is printed any more.
    Unread,
}

/// Where the API is, and who asks.
#[derive(Clone)]
pub(crate) struct Place {
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
    place: Place,
    runtime: Runtime,
    pool: Pool<HttpsConnector<HttpConnector>, Body>,
}

type Body = Either<Full<Bytes>, Upload>;

impl Api {
    pub(crate) fn new(place: Place) -> Result<Self, Stop> {
        let failed = |error: &dyn fmt::Display| Stop::Failed(error.to_string());
        let trust = Trust::Authorities(Arc::clone(&place.authorities));
        let mut tls = client::tls::config(&trust).map_err(|error| failed(&error))?;
        // The connector sets them itself.
        tls.alpn_protocols.clear();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(place.timeout));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let pool = Pool::builder(TokioExecutor::new());
        let pool = pool.build(connector.enable_http1().wrap_connector(tcp));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        Ok(Self { place, runtime, pool })
    }

    /// Where it is, for people.
    pub(crate) fn url(&self) -> &str {
        &self.place.url
    }

    /// What comes of a request, which is method and path as `GET /keys`; nothing, if nothing is said.
    pub(crate) fn ask(&self, request: &str, body: Option<&Value>) -> Result<Value, Stop> {
        let (_, value) = self.ask_for(request, body, StatusCode::is_success)?;
        Ok(value)
    }

    /// The same if the answer has such a status.
    pub(crate) fn ask_for(
        &self,
        request: &str,
        body: Option<&Value>,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<(StatusCode, Value), Stop> {
        self.runtime.block_on(async {
            let answer = self.exchange(request, body, is_good).await?;
            let status = answer.status();
            let bytes = self.whole(answer).await?;
            if bytes.is_empty() {
                return Ok((status, Value::Null));
            }
            Ok((status, serde_json::from_slice(&bytes).map_err(|_| self.stranger(status))?))
        })
    }

    /// Sends a list as it is read.
    pub(super) fn send(&self, request: &str, list: Upload) -> Result<Value, Stop> {
        let (fault, go) = (list.fault(), list.go());
        let mut request = self.request(request, Either::Right(list))?;
        request.headers_mut().insert(CONTENT_TYPE, TEXT);
        // Who may not send it is told so before it is sent.
        request.headers_mut().insert(EXPECT, CONTINUE);
        hyper::ext::on_informational(&mut request, move |_| go.notify_one());
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(UPLOAD_TIME, self.pool.request(request)).await;
            let answer = match answer.map_err(|_| self.silent())? {
                Ok(answer) => answer,
                Err(error) if error.is_connect() => return Err(self.unreachable(&error)),
                Err(error) => return Err(fault.take().unwrap_or_else(|| self.cut_off(&error))),
            };
            let answer = self.verdict(answer, StatusCode::is_success).await?;
            let (status, bytes) = (answer.status(), self.whole(answer).await?);
            serde_json::from_slice(&bytes).map_err(|_| self.stranger(status))
        })
    }

    /// Gives text to `take` as it comes.
    pub(crate) fn read(
        &self,
        request: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut request = self.request(request, Either::Left(Full::default()))?;
        request.headers_mut().insert(ACCEPT, TEXT);
        self.runtime.block_on(async {
            let answer = self.in_time(self.pool.request(request)).await?;
            let mut body = self.verdict(answer, StatusCode::is_success).await?.into_body();
            while let Some(piece) = self.piece(&mut body).await? {
                take(&piece)?;
            }
            Ok(())
        })
    }

    /// Follows a stream of server-sent events.
    pub(crate) fn follow(&self, request: &str) -> Result<Stream<'_>, Stop> {
        let answer = self.runtime.block_on(self.exchange(request, None, StatusCode::is_success))?;
        Ok(Stream::new(self, answer.into_body()))
    }

    /// The next piece of a body; nothing at its end.
    pub(super) fn next_piece(
        &self,
        body: &mut Incoming,
        wait: Duration,
    ) -> Result<Option<Bytes>, Stop> {
        self.runtime.block_on(async {
            let piece = tokio::time::timeout(wait, self.piece_at_last(body)).await;
            piece.map_err(|_| self.silent())?
        })
    }

    async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, Stop> {
        let piece = tokio::time::timeout(self.place.timeout, self.piece_at_last(body)).await;
        piece.map_err(|_| self.silent())?
    }

    async fn piece_at_last(&self, body: &mut Incoming) -> Result<Option<Bytes>, Stop> {
        loop {
            let Some(frame) = body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(|error| self.broken(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// An answer of a good status. Who asks too much in a second waits as long as the tracker wants, if
    /// that is no longer than any answer is waited for.
    async fn exchange(
        &self,
        request: &str,
        body: Option<&Value>,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<Response<Incoming>, Stop> {
        let start = Instant::now();
        loop {
            let text = body.map(Value::to_string).unwrap_or_default();
            let mut whole = self.request(request, Either::Left(Full::from(text)))?;
            if body.is_some() {
                whole.headers_mut().insert(CONTENT_TYPE, JSON);
            }
            let answer = self.in_time(self.pool.request(whole)).await?;
            let wait = (answer.status() == StatusCode::TOO_MANY_REQUESTS)
                .then(|| answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok());
            let wait = wait.flatten().map(Duration::from_secs);
            match wait.filter(|wait| start.elapsed() + *wait < self.place.timeout) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return self.verdict(answer, is_good).await,
            }
        }
    }

    fn request(&self, request: &str, body: Body) -> Result<Request<Body>, Stop> {
        let (method, path) = request.split_once(' ').unwrap_or(("GET", request));
        let mut head =
            Request::builder().method(method).uri(format!("{}/api/v1{path}", self.url()));
        if let Some(token) = &self.place.token {
            head = head.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        head.body(body).map_err(|error| Stop::Use(format!("{}: {error}", self.url())))
    }

    async fn in_time(
        &self,
        answer: impl Future<Output = Result<Response<Incoming>, hyper_util::client::legacy::Error>>,
    ) -> Result<Response<Incoming>, Stop> {
        let answer = tokio::time::timeout(self.place.timeout, answer).await;
        answer.map_err(|_| self.silent())?.map_err(|error| self.unreachable(&error))
    }

    /// The answer, unless it is that something is wrong.
    async fn verdict(
        &self,
        answer: Response<Incoming>,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<Response<Incoming>, Stop> {
        let status = answer.status();
        if is_good(&status) {
            return Ok(answer);
        }
        let kind = answer.headers().get(CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "application/problem+json") {
            return Err(self.stranger(status));
        }
        let bytes = self.whole(answer).await?;
        let problem: Value = serde_json::from_slice(&bytes).map_err(|_| self.stranger(status))?;
        let part = |name: &str| printable(problem[name].as_str().unwrap_or("?"));
        Err(Stop::Failed(format!("{}: {}", part("title"), part("detail"))))
    }

    async fn whole(&self, answer: Response<Incoming>) -> Result<Bytes, Stop> {
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect();
        let body = tokio::time::timeout(self.place.timeout, body).await;
        let body = body.map_err(|_| self.silent())?;
        body.map(|body| body.to_bytes()).map_err(|error| self.broken(&*error))
    }

    fn unreachable(&self, error: &hyper_util::client::legacy::Error) -> Stop {
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
        Stop::Failed(format!("{} cannot be reached: {why}{hint}", self.url()))
    }

    fn broken(&self, error: &(dyn StdError + 'static)) -> Stop {
        let why = root(error);
        Stop::Failed(format!("{}: the connection broke: {why}", self.url()))
    }

    /// While a list was sent.
    fn cut_off(&self, error: &(dyn StdError + 'static)) -> Stop {
        let (url, why) = (self.url(), root(error));
        Stop::Failed(format!(
            "{url}: the connection broke while the list was sent: {why} \
             (5 million entries at a time are the most, and 75 seconds for them)"
        ))
    }

    fn silent(&self) -> Stop {
        Stop::Failed(format!("{}: no answer in time (--timeout)", self.url()))
    }

    fn stranger(&self, status: StatusCode) -> Stop {
        let (url, status) = (self.url(), status.as_u16());
        Stop::Failed(format!(
            "{url} answers {status}, and not as tidegate does: is this its admin listener?"
        ))
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

impl From<WrongUse> for Stop {
    fn from(WrongUse(text): WrongUse) -> Self {
        Self::Use(text)
    }
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
