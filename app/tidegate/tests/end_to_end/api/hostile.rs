//! Unauthorized and malformed requests.

use harness::wait_until;
use serde_json::{Value, json};

use super::{Caller, TOKEN, hash, in_a_second, start};

/// Returns every operation of the OpenAPI document, as method and path with values for its parameters.
fn operations(api: &Caller) -> Vec<(String, Value)> {
    let document = api.expect(200, "GET /openapi.json", None);
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace("{hash}", &hash(1)).replace("{id}", "99").replace("{list}", "deny");
        let path = path.replace("{network}", "192.0.2.1");
        for (method, operation) in item.as_object().unwrap() {
            operations.push((format!("{} {path}", method.to_uppercase()), operation.clone()));
        }
    }
    operations
}

#[test]
fn guards_every_route() {
    let (tracker, api) = start("wrong_tokens_per_min = 1\n");
    let events = api.limited(&["events:read"]);
    let anonymous = Caller { token: String::new(), ..api.clone() };
    let operations = operations(&api);
    assert!(operations.len() >= 39);
    let guarded = operations.iter().filter(|(_, operation)| operation["security"] != json!([]));
    for (request, operation) in guarded.clone() {
        let scopes = &operation["security"];
        if scopes[0]["token"][0] != "events:read" {
            let (status, problem) = events.ask(request, None);
            assert_eq!(status, 403, "{request}: {problem}");
            assert_eq!(problem["type"], "urn:tidegate:problem:forbidden");
        }
    }
    for (request, _) in guarded {
        let (status, problem) = anonymous.ask(request, None);
        assert_eq!(status, 401, "{request}: {problem}");
    }
    // Requests with invalid tokens from the same address do not affect a valid token.
    let wrong = Caller { token: TOKEN.replace("01", "02"), ..api.clone() };
    let statuses: Vec<_> = (0..60).map(|_| wrong.ask("GET /stats", None).0).collect();
    assert!(statuses[0] == 401 && statuses.contains(&429), "{statuses:?}");
    let (status, head, _) = wrong.try_send("GET /stats", "", None).unwrap();
    assert!(status == 429 && head.contains("retry-after: 1"), "{head}");
    api.expect(200, "GET /stats", None);
    sign_in(&api, 200);
    sign_in(&wrong, 429);
    let counted = |reason: &str| {
        tracker.metric(&format!("tidegate_api_refusals_total{{reason=\"{reason}\"}}"))
    };
    assert!(counted("missing_token") >= 20.0);
    assert!(counted("too_many_failures") >= 1.0 && counted("missing_scope") >= 30.0);
}

/// Signs in to the dashboard, and checks the status of the response.
fn sign_in(api: &Caller, expected: u16) {
    let headers = format!(
        "Content-Type: application/json\r\nX-Tidegate: 1\r\nOrigin: http://{}\r\n",
        api.address
    );
    let body = json!({ "token": api.token }).to_string();
    let response =
        harness::http::request(api.address, "POST /session", &headers, body.as_bytes()).unwrap();
    assert_eq!(response.status, expected, "{}", response.text());
}

#[test]
fn refuses_expired_revoked_and_malformed_tokens() {
    let (_tracker, api) = start("");
    let make = |body: &Value| {
        let made = api.expect(201, "POST /tokens", Some(body));
        let token = made["secret"].as_str().unwrap().to_owned();
        (Caller { token, ..api.clone() }, made["id"].clone())
    };
    let (expired, _) = make(&json!({ "name": "old", "scopes": ["*"], "expires": in_a_second() }));
    wait_until("it has expired", || expired.ask("GET /stats", None).0 == 401);
    let detail = expired.expect(401, "GET /stats", None)["detail"].to_string();
    assert!(detail.contains("expired"), "{detail}");
    let (some, id) = make(&json!({ "name": "some", "scopes": ["stats:read"] }));
    some.expect(200, "GET /stats", None);
    let listed = api.expect(200, "GET /tokens", None).to_string();
    assert!(!listed.contains(&some.token) && !listed.contains(TOKEN), "{listed}");
    api.expect(204, &format!("DELETE /tokens/{id}"), None);
    some.expect(401, "GET /stats", None);
    for token in ["tg_", "x", "' OR 1=1 --", "tg_0123456789abcdefghijABCDEFGHIJ0", "\u{e9}"] {
        let wrong = Caller { token: token.into(), ..api.clone() };
        let problem = wrong.expect(401, "GET /stats", None);
        assert_eq!(problem["type"], "urn:tidegate:problem:unauthorized", "{token}");
    }
}

#[test]
fn applies_cors_origins() {
    let (_tracker, api) = start("cors_origins = [\"https://panel.example\"]\n");
    let ask = |request: &str, origin: &str| {
        let more = format!("Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\n");
        api.try_send(request, &more, None).unwrap()
    };
    for request in ["GET /stats", "OPTIONS /stats"] {
        let (_, head, _) = ask(request, "https://evil.example");
        assert!(!head.contains("access-control-"), "{head}");
        let (status, head, _) = ask(request, "https://panel.example");
        assert!(head.contains("access-control-allow-origin: https://panel.example"), "{head}");
        assert!(status == 200 || status == 204);
    }
    let (_plain, api) = start("");
    let origin = "Origin: https://panel.example\r\nAccess-Control-Request-Method: GET\r\n";
    let (status, head, _) = api.try_send("OPTIONS /stats", origin, None).unwrap();
    assert!(status == 405 && !head.contains("access-control-"), "{head}");
}
