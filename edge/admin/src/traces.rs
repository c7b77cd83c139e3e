//! Traces: spans of sampled API requests, for a collector that takes OTLP over HTTP, in JSON
//! (OpenTelemetry Protocol 1.x, W3C Trace Context).
//!
//! ```text
//!  request ─ sampled? ─ yes ─▶ span ─▶ queue, bounded ─▶ a post every other second
//! ```
//!
//! Announces have no spans: nothing is asked of others on their way, so that a span would say no more than
//! the histograms do that are kept of all of them. Where no collector is named, nothing of this is there.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};
use tracing::warn;

use crate::api::{Api, AuthenticatedToken, From, PostRequest, SendPost};

/// Spans that wait to be sent. More are dropped.
const QUEUE_MAX: usize = 2048;
/// Spans of one post.
const BATCH_MAX: usize = 512;
/// How long spans wait for others.
const PERIOD: Duration = Duration::from_secs(2);
/// Pauses before each further try.
const PAUSES_S: [u64; 2] = [1, 5];
/// What a request says of the trace that it belongs to.
const PARENT: &str = "traceparent";
/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// Where spans go, and how many.
#[derive(Clone)]
pub struct TraceOptions {
    /// The URL that takes them, as `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: String,
    /// Of a million requests that belong to no trace yet.
    pub per_million: u32,
    /// Posts them.
    pub send_post: SendPost,
}

/// Spans on their way.
pub(crate) struct Traces {
    options: TraceOptions,
    queue: Mutex<Vec<Span>>,
    /// Spans that were taken.
    pub(crate) sent: AtomicU64,
    /// Spans that were given up, or found no room.
    pub(crate) dropped: AtomicU64,
}

/// A request that was served.
#[derive(Debug)]
struct Span {
    ids: Ids,
    parent: Option<[u8; 8]>,
    method: String,
    route: String,
    status: u16,
    client: Option<IpAddr>,
    /// The token that it was made with.
    token: Option<i64>,
    begun: SystemTime,
    took: Duration,
}

/// Numbers of a trace, and of a span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids {
    trace: [u8; 16],
    span: [u8; 8],
}

/// The trace that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent {
    ids: Ids,
    is_sampled: bool,
}

impl Traces {
    pub(crate) fn new(options: TraceOptions) -> Self {
        let (sent, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { options, queue: Mutex::default(), sent, dropped }
    }

    fn push(&self, span: Span) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < QUEUE_MAX {
            queue.push(span);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those that wait longest, as many as go into a post.
    fn take(&self) -> Vec<Span> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(BATCH_MAX);
        queue.drain(..count).collect()
    }

    /// Sends what waits, for ever.
    pub(crate) async fn work(&self, version: &str) {
        loop {
            tokio::time::sleep(PERIOD).await;
            loop {
                let spans = self.take();
                if spans.is_empty() {
                    break;
                }
                self.send(&spans, version).await;
            }
        }
    }

    async fn send(&self, spans: &[Span], version: &str) {
        let (url, body) = (&self.options.endpoint, document(spans, version).to_string());
        let count = spans.len() as u64;
        for pause_s in PAUSES_S.into_iter().map(Some).chain([None]) {
            let post = PostRequest { url: url.clone(), body: body.clone(), signature: None };
            let (why, is_final) = match (self.options.send_post)(post).await {
                Ok(200..=299) => {
                    self.sent.fetch_add(count, Ordering::Relaxed);
                    return;
                }
                // The collector would say it again.
                Ok(status @ 400..=499) if status != 429 => (format!("it answers {status}"), true),
                Ok(status) => (format!("it answers {status}"), false),
                Err(why) => (why, false),
            };
            match pause_s {
                Some(pause_s) if !is_final => {
                    tokio::time::sleep(Duration::from_secs(pause_s)).await;
                }
                _ => {
                    self.dropped.fetch_add(count, Ordering::Relaxed);
                    return warn!("{count} spans are given up: {url}: {why}");
                }
            }
        }
    }
}

/// Goes before every route, and makes a span of what is sampled. Who is let in decides by his own trace
/// whether that is.
pub(crate) async fn follow(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let Some(traces) = api.traces() else { return next.run(request).await };
    // The route, not the path: what somebody puts there by mistake may be a secret.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let Some(route) = route else { return next.run(request).await };
    let client = request.extensions().get::<ConnectInfo<From>>().map(|from| from.0.0.ip());
    let (method, parent) = (request.method().to_string(), read_parent(request.headers()));
    let (begun, start) = (SystemTime::now(), Instant::now());
    let response = next.run(request).await;
    let token = response.extensions().get::<AuthenticatedToken>().map(|admitted| admitted.0);
    let parent = parent.filter(|_| token.is_some());
    let Some((ids, is_drawn)) = draw(traces.options.per_million) else { return response };
    if parent.map_or(is_drawn, |parent| parent.is_sampled) {
        let ids = Ids { trace: parent.map_or(ids.trace, |parent| parent.ids.trace), ..ids };
        let (parent, status) = (parent.map(|parent| parent.ids.span), response.status().as_u16());
        let took = start.elapsed();
        traces.push(Span { ids, parent, method, route, status, client, token, begun, took });
    }
    response
}

/// New numbers, and whether so many of a million have the luck.
fn draw(per_million: u32) -> Option<(Ids, bool)> {
    let mut random = [0; 28];
    getrandom::fill(&mut random).ok()?;
    let (trace, rest) = random.split_first_chunk()?;
    let (span, rest) = rest.split_first_chunk()?;
    let lot = u64::from(u32::from_le_bytes(*rest.first_chunk()?));
    Some((Ids { trace: *trace, span: *span }, (lot * 1_000_000) >> 32 < per_million.into()))
}

/// `VERSION-TRACE-SPAN-FLAGS`, in hex. What is none belongs to no trace.
fn read_parent(headers: &HeaderMap) -> Option<Parent> {
    let mut parts = headers.get(PARENT)?.to_str().ok()?.split('-');
    let [version] = hex(parts.next()?)?;
    let ids = Ids { trace: hex(parts.next()?)?, span: hex(parts.next()?)? };
    let [flags] = hex(parts.next()?)?;
    // Later versions may say more behind it.
    let is_whole = version != 0 || parts.next().is_none();
    let is_good = version != 0xff && is_whole && ids.trace != [0; 16] && ids.span != [0; 8];
    is_good.then_some(Parent { ids, is_sampled: flags & 1 == 1 })
}

/// Bytes of lower-case hex digits, exactly.
fn hex<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; LEN];
    if text.len() != 2 * LEN {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

/// An `ExportTraceServiceRequest`.
fn document(spans: &[Span], version: &str) -> Value {
    let resource = [text("service.name", "tidegate"), text("service.version", version)];
    let spans: Vec<_> = spans.iter().map(Span::document).collect();
    let scope = json!({ "name": "tidegate", "version": version });
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

impl Span {
    fn document(&self) -> Value {
        let mut attributes = vec![
            text("http.request.method", &self.method),
            text("http.route", &self.route),
            number("http.response.status_code", self.status.into()),
        ];
        attributes.extend(self.client.map(|ip| text("client.address", &ip.to_string())));
        attributes.extend(self.token.map(|token| number("tidegate.token", token)));
        let begun = self.begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut span = json!({
            "traceId": to_hex(&self.ids.trace),
            "spanId": to_hex(&self.ids.span),
            "name": format!("{} {}", self.method, self.route),
            "kind": SERVER,
            // 64 bits are text in JSON of protobuf.
            "startTimeUnixNano": begun.as_nanos().to_string(),
            "endTimeUnixNano": (begun + self.took).as_nanos().to_string(),
            "attributes": attributes,
        });
        if let (Some(parent), Some(span)) = (self.parent, span.as_object_mut()) {
            span.insert("parentSpanId".into(), to_hex(&parent).into());
        }
        if let (500.., Some(span)) = (self.status, span.as_object_mut()) {
            span.insert("status".into(), json!({ "code": ERROR }));
        }
        span
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: i64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(status: u16, parent: Option<[u8; 8]>) -> Span {
        Span {
            ids: Ids { trace: [0xab; 16], span: [0x01; 8] },
            parent,
            method: "GET".into(),
            route: "/api/v1/keys/{id}".into(),
            status,
            client: Some([192, 0, 2, 1].into()),
            token: Some(7),
            begun: SystemTime::UNIX_EPOCH + Duration::from_secs(3),
            took: Duration::from_nanos(5),
        }
    }

    #[test]
    fn spans_are_written_as_the_protocol_says() {
        let document = document(&[span(200, None), span(503, Some([2; 8]))], "1.2.3");
        let all = &document["resourceSpans"][0];
        assert_eq!(all["resource"]["attributes"][1], text("service.version", "1.2.3"));
        let [good, bad] = &all["scopeSpans"][0]["spans"].as_array().unwrap()[..] else {
            panic!("two spans")
        };
        let due = json!({
            "traceId": "ab".repeat(16),
            "spanId": "01".repeat(8),
            "name": "GET /api/v1/keys/{id}",
            "kind": 2,
            "startTimeUnixNano": "3000000000",
            "endTimeUnixNano": "3000000005",
            "attributes": [
                { "key": "http.request.method", "value": { "stringValue": "GET" } },
                { "key": "http.route", "value": { "stringValue": "/api/v1/keys/{id}" } },
                { "key": "http.response.status_code", "value": { "intValue": "200" } },
                { "key": "client.address", "value": { "stringValue": "192.0.2.1" } },
                { "key": "tidegate.token", "value": { "intValue": "7" } },
            ],
        });
        assert_eq!(*good, due);
        assert_eq!(
            (&bad["parentSpanId"], &bad["status"]["code"]),
            (&json!("02".repeat(8)), &json!(2))
        );
    }

    #[test]
    fn a_parent_is_read_if_it_is_one() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(PARENT, text.parse().unwrap());
            read_parent(&headers)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = read(good).unwrap();
        assert_eq!(to_hex(&parent.ids.trace), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            (to_hex(&parent.ids.span).as_str(), parent.is_sampled),
            ("b7ad6b7169203331", true)
        );
        assert_eq!(read(&good.replace("-01", "-00")).map(|it| it.is_sampled), Some(false));
        assert!(read(&good.replacen("00-", "cc-", 1)).is_some());
        assert!(read(&(good.replacen("00-", "cc-", 1) + "-more")).is_some());
        for bad in [
            "",
            "00",
            &good[..54],
            &good.replacen("00-", "ff-", 1),
            &good.to_uppercase(),
            &format!("{good}-more"),
            &good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &good.replace("b7ad6b7169203331", &"0".repeat(16)),
            &good.replace("b7ad", "b7a"),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read_parent(&HeaderMap::new()), None);
    }

    #[test]
    fn so_many_of_a_million_are_drawn() {
        let drawn = |per_million| (0..20_000).filter(|_| draw(per_million).unwrap().1).count();
        assert_eq!((drawn(0), drawn(1_000_000)), (0, 20_000));
        // Twenty times the deviation.
        assert!((7_600..12_400).contains(&drawn(500_000)));
        assert_ne!(draw(0).unwrap().0, draw(0).unwrap().0);
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let send_post: SendPost = Arc::new(|_| Box::pin(async { Ok(200) }));
        let traces =
            Traces::new(TraceOptions { endpoint: String::new(), per_million: 1, send_post });
        (0..QUEUE_MAX + 5).for_each(|_| traces.push(span(200, None)));
        assert_eq!(traces.dropped.load(Ordering::Relaxed), 5);
        let posts: Vec<_> =
            std::iter::from_fn(|| Some(traces.take().len()).filter(|len| *len > 0)).collect();
        assert_eq!(posts, [BATCH_MAX; QUEUE_MAX / BATCH_MAX]);
        traces.push(span(200, None));
        assert_eq!(traces.take().len(), 1);
    }
}
