//! `/status`, `/stats/history` and `/names` through the socket.

use harness::{PATIENCE, wait_until};

use super::sockets::TestApi;
use super::*;
use crate::AnnotationKind;

fn item<'a>(status: &'a Value, area: &str) -> &'a Value {
    let items = status["health"].as_array().unwrap();
    items.iter().find(|item| item["area"] == area).unwrap_or(&Value::Null)
}

#[test]
fn status_says_what_is_wrong_and_what_to_do() {
    let server = TestApi::start(PATIENCE);
    let status = server.expect(200, "GET /status", None);
    assert_eq!(status["version"], "1.2.3");
    assert_eq!(status["upgrade_pending"], true);
    assert_eq!(
        status["records"],
        serde_json::json!({ "durable": false, "directory": null, "failing": null, "lag_s": 0 })
    );
    assert_eq!(item(&status, "upgrade")["level"], "info");
    let records = item(&status, "records");
    assert_eq!(records["level"], "warning");
    assert!(records["remedy"].as_str().unwrap().contains("state.dir"));
    // Those of the test's sources: the journal is stopped, a certificate has expired, an interface is down.
    assert_eq!(
        (status["level"].as_str(), item(&status, "journal")["level"].as_str()),
        (Some("error"), Some("error"))
    );
    let levels: Vec<&str> = status["health"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["level"].as_str().unwrap())
        .collect();
    let order = ["error", "warning", "info"];
    assert!(
        levels.is_sorted_by_key(|level| order.iter().position(|one| one == level)),
        "{levels:?}"
    );
}

#[test]
fn history_has_annotations_and_knows_its_spans() {
    let server = TestApi::start(PATIENCE);
    server.api().hub().annotate(AnnotationKind::Start, "Started");
    wait_until("the annotation is kept", || {
        let history = server.expect(200, "GET /stats/history?span=10m", None);
        history["annotations"][0]["kind"] == "start"
    });
    let history = server.expect(200, "GET /stats/history", None);
    assert_eq!((&history["span"], &history["step_s"]), (&"1h".into(), &10.into()));
    assert_eq!(history["fields"][0], "time");
    let names = server.expect(200, "GET /names", None);
    for span in names["spans"].as_array().unwrap() {
        let name = span["name"].as_str().unwrap();
        let history = server.expect(200, &format!("GET /stats/history?span={name}"), None);
        assert_eq!(history["span"], name);
    }
    server.expect(400, "GET /stats/history?span=1y", None);
}

#[test]
fn names_have_titles_without_a_token() {
    let server = TestApi::start(PATIENCE);
    let (status, names) = server.ask_as("", "GET /names", None);
    assert_eq!(status, 200);
    let first = &names["drops"][0];
    assert_eq!((&first["name"], &first["title"]), (&"too_short".into(), &"Too short".into()));
    assert_eq!(first["text"], "UDP: shorter than any request.");
    let mut drops = names["drops"].as_array().unwrap().iter();
    let spelled = drops.find(|row| row["name"] == "bad_connection_id").unwrap();
    assert_eq!(spelled["title"], "Bad connection ID");
    let mut refusals = names["refusals"].as_array().unwrap().iter();
    assert!(refusals.any(|row| row["title"] == "Not JSON"), "{names}");
    for (list, rows) in names.as_object().unwrap() {
        assert!(!rows.as_array().unwrap().is_empty(), "{list}");
    }
}
