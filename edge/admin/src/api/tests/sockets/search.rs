//! Searching and paging through keys, bans, tokens and lists, and the tests of webhooks.

use super::*;

/// Returns a page's entries, by a member of each or as they are, and its other members.
fn entries(page: &Value, list: &str, member: Option<&str>) -> Vec<String> {
    let text = |entry: &Value| {
        let value = member.map_or(entry, |member| &entry[member]);
        value.as_str().unwrap().to_owned()
    };
    page[list].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn finds_keys_by_name_beginning_and_id_through_all_pages() {
    let server = TestApi::start(PATIENCE);
    for number in 1..=250 {
        let name = if number % 2 == 0 { format!("Eve {number}") } else { format!("Bob {number}") };
        let key = format!("{number:03}-abcdefghijklmnop");
        server.expect(201, "POST /keys", Some(&json!({ "name": name, "key": key })));
    }
    let find = |query: &str| server.expect(200, &format!("GET /keys?{query}"), None);
    let page = find("q=eVE&limit=100");
    assert_eq!((page["total"].as_u64(), page["keys"].as_array().unwrap().len()), (Some(125), 100));
    let rest = find(&format!("q=eve&limit=100&cursor={}", page["next"]));
    let names = entries(&rest, "keys", Some("name"));
    assert_eq!((names.len(), names[24].as_str(), &rest["next"]), (25, "Eve 250", &Value::Null));
    assert_eq!(entries(&find("q=077-abc"), "keys", Some("name")), ["Bob 77"]);
    // An id, the beginning of ten keys, and a part of two other names.
    assert_eq!(entries(&find("q=24"), "keys", Some("name")).len(), 13);
    assert_eq!(find("q=%25")["total"], 0, "no wildcards");
    assert_eq!(find("")["total"], 250);
    server.expect(400, &format!("GET /keys?q={}", "x".repeat(101)), None);
}

#[test]
fn finds_bans_by_text_and_by_an_address_in_the_network() {
    let server = TestApi::start(PATIENCE);
    for (network, reason) in
        [("192.0.2.0/24", "Flood"), ("192.0.0.0/16", ""), ("192.0.2.7", ""), ("2001:db8::/32", "")]
    {
        server.expect(201, "POST /bans", Some(&json!({ "network": network, "reason": reason })));
    }
    let gone = json!({ "network": "192.0.2.0/25", "expires": 1_000_001 });
    server.expect(201, "POST /bans", Some(&gone));
    server.clocks.advance(2);
    let find = |query: &str| {
        let page = server.expect(200, &format!("GET /bans?q={query}"), None);
        let found = entries(&page, "bans", Some("network"));
        assert_eq!(page["total"].as_u64(), Some(found.len() as u64), "{query}");
        found
    };
    assert_eq!(find("192.0.2.7"), ["192.0.0.0/16", "192.0.2.0/24", "192.0.2.7/32"]);
    assert_eq!(find("2001:DB8:0:1::1"), ["2001:db8::/32"]);
    assert_eq!(find("fLOOD"), ["192.0.2.0/24"]);
    assert_eq!(find("2001:DB8"), ["2001:db8::/32"]);
    assert!(find("198.51.100.1").is_empty() && find("%25").is_empty());
    let page = server.expect(200, "GET /bans?q=192&limit=2", None);
    assert_eq!((&page["total"], &page["next"]), (&json!(3), &json!("192.0.2.0/24")));
    let rest = server.expect(200, "GET /bans?q=192&limit=2&cursor=192.0.2.0/24", None);
    assert_eq!(entries(&rest, "bans", Some("network")), ["192.0.2.7/32"]);
}

#[test]
fn finds_tokens_by_name_and_scope() {
    let server = TestApi::start(PATIENCE);
    for (name, scope) in [("Panel", "stats:read"), ("bot", "bans:write"), ("other", "keys:read")] {
        server.expect(201, "POST /tokens", Some(&json!({ "name": name, "scopes": [scope] })));
    }
    let find = |query: &str| server.expect(200, &format!("GET /tokens?{query}"), None);
    assert_eq!(entries(&find("q=PANEL"), "tokens", Some("name")), ["Panel"]);
    assert_eq!(entries(&find("q=bans:"), "tokens", Some("name")), ["bot"]);
    // With the bootstrap token.
    let first = find("limit=2");
    assert_eq!((first["tokens"].as_array().unwrap().len(), &first["total"]), (2, &json!(4)));
    let rest = find(&format!("limit=2&cursor={}", first["next"]));
    assert_eq!(entries(&rest, "tokens", Some("name")), ["bot", "other"]);
    assert_eq!(rest["next"], Value::Null);
}

#[test]
fn finds_entries_of_lists_by_their_beginning() {
    let server = TestApi::start(PATIENCE);
    let hash = |number: u32| format!("{number:08x}{}", "0".repeat(32));
    let all: Vec<_> = (0..300).map(|number| hash(number << 16)).collect();
    server.expect(200, "POST /lists/deny", Some(&json!(all)));
    let find = |query: &str| server.expect(200, &format!("GET /lists/deny?{query}"), None);
    let page = find("q=00a&limit=10");
    assert_eq!((&page["total"], &page["entries"][0]), (&json!(16), &json!(hash(0xa0 << 16))));
    let next = page["next"].as_str().unwrap();
    let rest = entries(&find(&format!("q=00a&limit=10&cursor={next}")), "entries", None);
    assert_eq!((rest.len(), rest[5].as_str()), (6, hash(0xaf << 16).as_str()));
    assert_eq!(find("q=")["total"], 300);
    assert_eq!(find("q=ff")["entries"], json!([]));
    server.expect(400, "GET /lists/deny?q=xyz", None);
    let answer = read(server.send("GET /lists/deny?q=012&format=text", TOKEN, None));
    assert!(answer.contains("attachment; filename=\"tidegate-deny.txt\""), "{answer}");
    assert_eq!(answer.matches(&"0".repeat(32)).count(), 12, "{answer}");
}

#[test]
fn webhooks_are_tested_and_list_their_deliveries() {
    let server = TestApi::start(PATIENCE);
    let webhook = json!({ "url": "https://hooks.example.org/", "events": ["ban"] });
    let id = server.expect(201, "POST /webhooks", Some(&webhook))["id"].clone();
    let path = |action: &str| format!("/webhooks/{id}/{action}");
    let none = server.expect(200, &format!("GET {}", path("deliveries")), None);
    assert_eq!(none["deliveries"], json!([]));
    let delivery = server.expect(200, &format!("POST {}", path("test")), None);
    assert_eq!((&delivery["kind"], &delivery["status"]), (&json!("test"), &json!(204)));
    assert_eq!((&delivery["outcome"], &delivery["event_id"]), (&json!("delivered"), &json!(0)));
    server.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.1" })));
    let deliveries = || server.expect(200, &format!("GET {}", path("deliveries")), None);
    wait_until("the ban is posted", || deliveries()["deliveries"][0]["kind"] == "ban");
    assert_eq!(deliveries()["deliveries"][1], delivery);
    let list = server.expect(200, "GET /webhooks", None);
    assert_eq!(list["webhooks"][0]["last_delivery"]["kind"], "ban");
    server.expect(404, "POST /webhooks/77/test", None);
    server.expect(404, "GET /webhooks/77/deliveries", None);
}
