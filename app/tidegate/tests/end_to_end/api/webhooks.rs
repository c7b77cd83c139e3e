//! Webhooks as their receivers see them.

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::{Caller, start};
use crate::post_receiver::Answer::{Never, Status};
use crate::post_receiver::{Post, Receiver};
use crate::process::unused_address;

/// Checks that a post was signed with this secret within the last minutes.
fn check(post: &Post, secret: &str) {
    let (time, tag) = post.header("tidegate-signature").split_once(",sha256=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let expected = hmac::sign(&key, format!("{time}.{}", post.body).as_bytes());
    let expected: String = expected.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(tag, expected);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(time.parse::<u64>().unwrap().abs_diff(now) < 300, "{time} is not {now}");
}

/// Creates a webhook for bans. Returns its id and secret.
fn hook(api: &Caller, url: &str) -> (u64, String) {
    let made = api.expect(201, "POST /webhooks", Some(&json!({ "url": url, "events": ["ban"] })));
    (made["id"].as_u64().unwrap(), made["secret"].as_str().unwrap().into())
}

#[test]
fn retries_webhooks_in_order() {
    let addresses = [(); 5].map(|()| unused_address());
    let list = addresses.map(|address| format!("\"{}\"", address.port())).join(", ");
    let (tracker, api) = start(&format!("webhook_ports = [{list}]\n"));
    let [unwilling, hanging, gone, refusing, other] = addresses;
    let unwilling = Receiver::listen(unwilling, &[Status(503), Status(500)]);
    let hanging = Receiver::listen(hanging, &[Never]);
    let refusing = Receiver::listen(refusing, &[Status(400); 100]);
    let (_, secret) = hook(&api, &unwilling.url("/hook"));
    hook(&api, &hanging.url("/hook"));
    hook(&api, &format!("http://{gone}/hook"));
    let (removed, _) = hook(&api, &refusing.url("/hook"));
    // A webhook for other events, which gets nothing.
    let other = Receiver::listen(other, &[]);
    let body = json!({ "url": other.url("/hook"), "events": ["reload"] });
    api.expect(201, "POST /webhooks", Some(&body));
    for network in ["192.0.2.1", "192.0.2.2"] {
        api.expect(201, "POST /bans", Some(&json!({ "network": network })));
    }
    refusing.wait_for(1);
    api.expect(204, &format!("DELETE /webhooks/{removed}"), None);
    let networks = |posts: &[Post]| -> Vec<Value> {
        posts.iter().map(|post| post.json()["data"]["network"].clone()).collect()
    };
    let [one, two] = ["192.0.2.1/32", "192.0.2.2/32"];
    let posts = unwilling.wait_for(4);
    assert_eq!(networks(&posts), [one, one, one, two]);
    // Each attempt sends the same event with a new signature.
    assert!(posts[..3].iter().all(|post| post.body == posts[0].body));
    posts.iter().for_each(|post| check(post, &secret));
    assert!(posts[0].head.starts_with("POST /hook HTTP/1.1\r\n"));
    assert_eq!(posts[0].json()["kind"], "ban");
    assert!(posts[0].json()["id"].as_u64() < posts[3].json()["id"].as_u64());
    // A receiver that returns gets the events it has missed.
    let returned = Receiver::listen(gone, &[]);
    assert_eq!(networks(&returned.wait_for(2)), [one, two]);
    // A receiver that never answers is tried again after the timeout.
    assert_eq!(networks(&hanging.wait_for(3)), [one, one, two]);
    tracker.wait_until("all delivered", |it| {
        it.metric("tidegate_webhook_posts_total{result=\"delivered\"}") == 6.0
    });
    assert!(tracker.metric("tidegate_webhook_posts_total{result=\"failed\"}") >= 4.0);
    assert_eq!(tracker.metric("tidegate_webhook_posts_total{result=\"dropped\"}"), 0.0);
    // By now a third attempt would have come; a second may have been on its way.
    assert!(refusing.posts().len() <= 2, "{:?}", refusing.posts());
    assert!(other.posts().is_empty());
}
