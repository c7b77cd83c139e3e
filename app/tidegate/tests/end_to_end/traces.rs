//! Traces as a collector receives them.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::api::{Caller, TOKEN};
use crate::post_receiver::{Post, Receiver};
use crate::process::{Directory, Tracker, unused_address};

const PATH: &str = "/v1/traces";
const SPANS: &str = "tidegate_trace_spans_total";

fn start(collector: SocketAddr, per_million: u32) -> (Tracker, Caller) {
    let more = format!(
        "requests_per_s = 0\n[trace]\nendpoint = \"http://{collector}{PATH}\"\n\
         sample_per_million = {per_million}\n"
    );
    let tracker =
        Tracker::start_with(Directory::new(), &more, &[("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)]);
    let api = Caller::of(&tracker);
    (tracker, api)
}

/// Returns the spans of all posts.
fn spans(posts: &[Post]) -> Vec<Value> {
    let of = |post: &Post| {
        let resource = post.json()["resourceSpans"][0].clone();
        let service = &resource["resource"]["attributes"][0];
        assert_eq!(
            *service,
            json!({ "key": "service.name", "value": { "stringValue": "tidegate" } })
        );
        resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    };
    posts.iter().flat_map(of).collect()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    &attributes.iter().find(|it| it["key"] == key).unwrap_or(&Value::Null)["value"]
}

#[test]
fn exports_a_span_per_request() {
    let address = unused_address();
    // The collector fails at first: refused posts are sent again.
    let collector = Receiver::listen(address, &[503]);
    let (tracker, api) = start(address, 1_000_000);
    for number in 0..5 {
        api.expect(201, "POST /keys", Some(&json!({ "name": number.to_string() })));
    }
    api.expect(404, "GET /keys/99", None);
    let anonymous = Caller { token: String::new(), ..api.clone() };
    anonymous.expect(401, "GET /stats", None);
    // Unknown paths are not sampled.
    api.ask("GET /nothing", None);
    let posts = collector.wait_until(|posts| spans(&posts[1.min(posts.len())..]).len() >= 7);
    assert!(posts[0].head.starts_with(&format!("POST {PATH} HTTP/1.1\r\n")), "{}", posts[0].head);
    assert_eq!(posts[0].body, posts[1].body, "it is sent again");
    let spans = spans(&posts[1..]);
    assert_eq!(spans.len(), 7);
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names[..5], ["POST /api/v1/keys"; 5]);
    assert_eq!(names[5..], ["GET /api/v1/keys/{id}", "GET /api/v1/stats"]);
    let ids: HashSet<_> = spans.iter().map(|span| span["traceId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 7);
    for span in &spans {
        assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(span["spanId"].as_str().unwrap().len(), 16);
        assert!(span.get("parentSpanId").is_none() && span["kind"] == 2);
        let nanos = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        let (begun, ended) = (nanos("startTimeUnixNano"), nanos("endTimeUnixNano"));
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        assert!(begun <= ended && begun.abs_diff(now) < 300_000_000_000);
        assert_eq!(*attribute(span, "client.address"), json!({ "stringValue": "127.0.0.1" }));
    }
    let status = |span: &Value| attribute(span, "http.response.status_code")["intValue"].clone();
    assert_eq!((status(&spans[0]), status(&spans[5])), (json!("201"), json!("404")));
    assert_eq!(*attribute(&spans[0], "tidegate.token"), json!({ "intValue": "0" }));
    assert_eq!(
        (status(&spans[6]), attribute(&spans[6], "tidegate.token")),
        (json!("401"), &Value::Null)
    );
    tracker.wait_until("counted", |it| it.metric(&format!("{SPANS}{{result=\"sent\"}}")) == 7.0);
    assert_eq!(tracker.metric(&format!("{SPANS}{{result=\"dropped\"}}")), 0.0);
}

#[test]
fn samples_traces_by_the_traceparent_of_authorized_callers() {
    let address = unused_address();
    let collector = Receiver::listen(address, &[]);
    let (_tracker, api) = start(address, 0);
    let anonymous = Caller { token: String::new(), ..api.clone() };
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = |flags: &str| format!("traceparent: 00-{trace}-b7ad6b7169203331-{flags}\r\n");
    api.try_send("GET /keys", &parent("00"), None).unwrap();
    api.try_send("GET /keys", "traceparent: nonsense\r\n", None).unwrap();
    anonymous.try_send("GET /bans", &parent("01"), None).unwrap();
    api.try_send("GET /tokens", &parent("01"), None).unwrap();
    let spans = spans(&collector.wait_for(1));
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(span["name"], "GET /api/v1/tokens");
    assert_eq!(
        (&span["traceId"], &span["parentSpanId"]),
        (&json!(trace), &json!("b7ad6b7169203331"))
    );
}

#[test]
fn drops_and_counts_spans_that_the_collector_refuses() {
    let address = unused_address();
    let _collector = Receiver::listen(address, &[400]);
    let (tracker, api) = start(address, 1_000_000);
    api.expect(200, "GET /stats", None);
    let dropped = format!("{SPANS}{{result=\"dropped\"}}");
    tracker.wait_until("dropped", |it| it.metric(&dropped) == 1.0);
    tracker.wait_for_log("WARN traces: trace spans dropped count=1");
}

#[test]
fn has_no_trace_metrics_without_a_collector() {
    let tracker = Tracker::start(Directory::new(), "");
    assert!(!tracker.admin("/metrics").1.contains(SPANS));
}
