//! The configuration as the API describes and changes it, and the upgrade through the API.

use serde_json::{Value, json};

use super::{Caller, UNBOUND, start};

fn setting(api: &Caller, name: &str) -> Value {
    let all = api.expect(200, "GET /config", None);
    let all = all["settings"].as_array().unwrap();
    all.iter().find(|setting| setting["name"] == name).unwrap().clone()
}

#[test]
fn a_dry_run_changes_nothing() {
    let (_tracker, api) = start("");
    let change = json!({ "tracker.interval_s": 77 });
    let outcome = api.expect(200, "PATCH /config?dry_run=true", Some(&change));
    assert_eq!(outcome["changed"], json!(["tracker.interval_s"]));
    assert_ne!(setting(&api, "tracker.interval_s")["value"], 77);
    api.expect(409, "PATCH /config?dry_run=true", Some(&json!({ "tracker.interval_s": "soon" })));
    api.expect(400, "PATCH /config?dry_run=perhaps", Some(&change));
    api.expect(200, "PATCH /config?dry_run=false", Some(&change));
    assert_eq!(setting(&api, "tracker.interval_s")["value"], 77);
}

/// A token that may change the configuration makes the tracker connect nowhere: not to the machine itself, its private
/// network, or the service of its cloud.
#[test]
fn urls_come_from_the_file_only() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let own = format!("http://{}/internal?x=1", listener.local_addr().unwrap());
    // It allows no ports that are not configured at the start.
    let process = "[process]\nsandbox = \"off\"\n";
    let (tracker, api) = start(process);
    let urls = [
        &own,
        "https://169.254.169.254/",
        "https://[::1]/",
        "https://localhost/k.json",
        "https://a.example/",
    ];
    for key in ["access.jwt_keys", "tls.acme.directory"] {
        for url in urls {
            for query in ["?dry_run=true", ""] {
                let change = json!({ key: url });
                let refusal = api.expect(409, &format!("PATCH /config{query}"), Some(&change));
                let text = refusal.to_string();
                let expected = format!("{key}: cannot be set to a URL through the API");
                assert!(
                    text.contains(&expected) && text.contains("the configuration file"),
                    "{text}"
                );
            }
        }
    }
    assert_eq!(setting(&api, "access.jwt_keys")["value"], "");
    // The file may name it. Neither readers of the configuration nor the log see its query.
    tracker.configure(&format!("{UNBOUND}{process}[access]\njwt = true\njwt_keys = {own:?}\n"));
    api.expect(200, "POST /config/reload", None);
    tracker.wait_until("a request", |_| listener.accept().is_ok());
    let shown = setting(&api, "access.jwt_keys");
    assert!(shown["value"].as_str().unwrap().ends_with("/internal?…"), "{shown}");
    tracker.wait_for_log("/internal?…: ");
    assert!(!tracker.log().contains("x=1"), "{}", tracker.log());
}

/// The file has a new value of a key that no reload applies, beside one of another. It is shown as pending, until an
/// upgrade through the API applies it.
#[test]
fn an_upgrade_applies_what_needs_a_restart() {
    let (tracker, api) = start("");
    let name = "limits.memory_mib";
    assert_eq!(setting(&api, name)["value"], "auto");
    tracker
        .configure(&format!("{UNBOUND}[limits]\nmemory_mib = 64\n[tracker]\ninterval_s = 1600\n"));
    api.expect(200, "POST /config/reload", None);
    tracker.wait_for_log("some changes need a restart changes=\"limits.memory_mib\"");
    assert_eq!(setting(&api, "tracker.interval_s")["value"], 1600);
    let waiting = setting(&api, name);
    assert_eq!((&waiting["value"], &waiting["pending"]), (&json!("auto"), &json!(64)));
    tracker.upgrade_by(|| drop(api.expect(204, "POST /process/upgrade", None)));
    let applied = setting(&Caller::of(&tracker), name);
    assert_eq!((&applied["value"], applied.get("pending")), (&json!(64), None));
}
