//! Traces: exports spans of sampled API requests to a collector, with OTLP over HTTP in JSON (OpenTelemetry
//! Protocol 1.x, W3C Trace Context).
//!
//! ```text
//!  request ─ sampled? ─ yes ─▶ span ─▶ bounded queue ─▶ a post every 2 s
//! ```
//!
//! Announces have no spans: they call no other service, so a span would say no more than the histograms that
//! count all of them. Without `[trace] endpoint` nothing here runs.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use serde_json::{Value, json};
use tracing::warn;

use crate::clock::since_epoch;
use crate::outbound::{PostRequest, SendPost};

/// Spans queued for the collector. Further ones are dropped.
const QUEUE_MAX: usize = 2048;
/// Spans in one post.
const BATCH_MAX: usize = 512;
/// Interval of posts.
const PERIOD: Duration = Duration::from_secs(2);
/// Pauses before the second and each further attempt.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The header that names the trace of a request.
const PARENT: &str = "traceparent";
/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// Where spans are sent, and how many requests are sampled.
#[derive(Clone)]
pub struct TraceOptions {
    /// The URL of the collector, as `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: String,
    /// Sampled requests, of a million that belong to no trace yet.
    pub per_million: u32,
    /// Posts spans.
    pub send_post: SendPost,
}

/// Spans queued for the collector, and counts of those sent and dropped.
pub(crate) struct Traces {
    options: TraceOptions,
    /// Between attempts.
    pauses: [Duration; 2],
    queue: Mutex<Vec<Span>>,
    /// Spans accepted by the collector.
    pub(crate) sent: AtomicU64,
    /// Spans dropped: after the last attempt, or because the queue was full.
    pub(crate) dropped: AtomicU64,
}

/// A served request.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) context: SpanContext,
    pub(crate) method: String,
    pub(crate) route: String,
    pub(crate) status: u16,
    pub(crate) client: Option<IpAddr>,
    /// The id of its token.
    pub(crate) token: Option<i64>,
    pub(crate) start: SystemTime,
    pub(crate) duration: Duration,
}

/// The ids of a span and of its parent in the same trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanContext {
    ids: Ids,
    parent: Option<[u8; 8]>,
}

/// The id of a trace, and of a span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids {
    trace: [u8; 16],
    span: [u8; 8],
}

/// The span of the client that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    ids: Ids,
    is_sampled: bool,
}

impl Traces {
    pub(crate) fn new(options: TraceOptions) -> Self {
        let (sent, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { options, pauses: PAUSES, queue: Mutex::default(), sent, dropped }
    }

    /// Decides whether a request is sampled: as its parent is, or at random without one. Returns the ids of its
    /// span if so.
    pub(crate) fn sample(&self, parent: Option<Parent>) -> Option<SpanContext> {
        let (mut ids, is_drawn) = random_ids(self.options.per_million)?;
        let Some(parent) = parent else {
            return is_drawn.then_some(SpanContext { ids, parent: None });
        };
        ids.trace = parent.ids.trace;
        parent.is_sampled.then_some(SpanContext { ids, parent: Some(parent.ids.span) })
    }

    /// Queues a span.
    pub(crate) fn push(&self, span: Span) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < QUEUE_MAX {
            queue.push(span);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the oldest spans, as many as fit a post.
    fn take(&self) -> Vec<Span> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(BATCH_MAX);
        queue.drain(..count).collect()
    }

    /// Sends queued spans for ever.
    pub(crate) async fn run(&self, version: &str) {
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
        for pause in self.pauses.into_iter().map(Some).chain([None]) {
            let post = PostRequest { url: url.clone(), body: body.clone(), signature: None };
            let (reason, is_final) = match (self.options.send_post)(post).await {
                Ok(200..=299) => {
                    self.sent.fetch_add(count, Ordering::Relaxed);
                    return;
                }
                // A client error would come again.
                Ok(status) => {
                    let is_final = (400..500).contains(&status) && status != 429;
                    (format!("the response has status {status}"), is_final)
                }
                Err(reason) => (reason, false),
            };
            match pause {
                Some(pause) if !is_final => tokio::time::sleep(pause).await,
                _ => {
                    self.dropped.fetch_add(count, Ordering::Relaxed);
                    return warn!(count, endpoint = url, reason, "trace spans dropped");
                }
            }
        }
    }
}

/// Returns random ids, and true in `per_million` of a million calls.
fn random_ids(per_million: u32) -> Option<(Ids, bool)> {
    let mut random = [0; 28];
    getrandom::fill(&mut random).ok()?;
    let (trace, rest) = random.split_first_chunk()?;
    let (span, rest) = rest.split_first_chunk()?;
    let draw = u64::from(u32::from_le_bytes(*rest.first_chunk()?));
    Some((Ids { trace: *trace, span: *span }, (draw * 1_000_000) >> 32 < per_million.into()))
}

/// Parses the parent of a request: `VERSION-TRACE-SPAN-FLAGS`, in hex. A malformed header is ignored.
pub(crate) fn read_parent(headers: &HeaderMap) -> Option<Parent> {
    let mut parts = headers.get(PARENT)?.to_str().ok()?.split('-');
    let [version] = hex(parts.next()?)?;
    let ids = Ids { trace: hex(parts.next()?)?, span: hex(parts.next()?)? };
    let [flags] = hex(parts.next()?)?;
    // Later versions may append fields.
    let is_whole = version != 0 || parts.next().is_none();
    let is_valid = version != 0xff && is_whole && ids.trace != [0; 16] && ids.span != [0; 8];
    is_valid.then_some(Parent { ids, is_sampled: flags & 1 == 1 })
}

/// Parses exactly `LEN` bytes of lower-case hex digits.
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

/// Builds an `ExportTraceServiceRequest`.
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
        let SpanContext { ids, parent } = self.context;
        let start = since_epoch(self.start);
        let mut span = json!({
            "traceId": to_hex(&ids.trace),
            "spanId": to_hex(&ids.span),
            "name": format!("{} {}", self.method, self.route),
            "kind": SERVER,
            // Protobuf JSON writes 64-bit integers as strings.
            "startTimeUnixNano": start.as_nanos().to_string(),
            "endTimeUnixNano": (start + self.duration).as_nanos().to_string(),
            "attributes": attributes,
        });
        if let (Some(parent), Some(span)) = (parent, span.as_object_mut()) {
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
    use std::sync::Arc;

    use super::*;

    fn span(status: u16, parent: Option<[u8; 8]>) -> Span {
        Span {
            context: SpanContext { ids: Ids { trace: [0xab; 16], span: [0x01; 8] }, parent },
            method: "GET".into(),
            route: "/api/v1/keys/{id}".into(),
            status,
            client: Some([192, 0, 2, 1].into()),
            token: Some(7),
            start: SystemTime::UNIX_EPOCH + Duration::from_secs(3),
            duration: Duration::from_nanos(5),
        }
    }

    #[test]
    fn writes_spans_in_otlp_json() {
        let document = document(&[span(200, None), span(503, Some([2; 8]))], "1.2.3");
        let all = &document["resourceSpans"][0];
        assert_eq!(all["resource"]["attributes"][1], text("service.version", "1.2.3"));
        let [good, bad] = &all["scopeSpans"][0]["spans"].as_array().unwrap()[..] else {
            panic!("two spans")
        };
        let expected = json!({
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
        assert_eq!(*good, expected);
        assert_eq!(
            (&bad["parentSpanId"], &bad["status"]["code"]),
            (&json!("02".repeat(8)), &json!(2))
        );
    }

    #[test]
    fn reads_valid_parents_only() {
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
    fn samples_the_configured_share() {
        let drawn =
            |per_million| (0..20_000).filter(|_| random_ids(per_million).unwrap().1).count();
        assert_eq!((drawn(0), drawn(1_000_000)), (0, 20_000));
        // Within 20 standard deviations.
        assert!((7_600..12_400).contains(&drawn(500_000)));
        assert_ne!(random_ids(0).unwrap().0, random_ids(0).unwrap().0);
    }

    /// Sends two spans to a collector whose posts get these answers. Returns how many posts were sent, which
    /// must be equal, and how many spans were counted as sent and as dropped.
    fn send(answers: &[Result<u16, String>]) -> (usize, [u64; 2]) {
        let posts = Arc::<Mutex<Vec<String>>>::default();
        let (sink, answers) = (Arc::clone(&posts), answers.to_vec());
        let send_post: SendPost = Arc::new(move |post| {
            let mut posts = sink.lock().unwrap();
            let answer = answers[posts.len()].clone();
            posts.push(post.body);
            Box::pin(async { answer })
        });
        let options = TraceOptions { endpoint: String::new(), per_million: 1, send_post };
        let traces = Traces { pauses: [Duration::ZERO; 2], ..Traces::new(options) };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(traces.send(&[span(200, None), span(404, None)], "1.2.3"));
        let posts = posts.lock().unwrap();
        assert!(posts.iter().all(|post| *post == posts[0]));
        let counts = [&traces.sent, &traces.dropped].map(|count| count.load(Ordering::Relaxed));
        (posts.len(), counts)
    }

    #[test]
    fn sends_spans_again_while_that_may_help() {
        let lost = || Err("timed out".into());
        assert_eq!(send(&[Ok(200)]), (1, [2, 0]));
        assert_eq!(send(&[Ok(503), lost(), Ok(202)]), (3, [2, 0]));
        assert_eq!(send(&[lost(), Ok(429), lost()]), (3, [0, 2]));
        assert_eq!(send(&[Ok(400)]), (1, [0, 2]));
    }

    #[test]
    fn drops_and_counts_spans_above_the_queue() {
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
