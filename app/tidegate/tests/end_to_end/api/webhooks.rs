//! Webhooks as their receivers see them.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::{Caller, start};
use crate::client_commands::fake_trackers::{read_head, tcp};
use crate::process::{Directory, unused_address};

#[derive(Clone, Debug)]
struct Post {
    head: String,
    body: String,
}

impl Post {
    /// Returns the value of a header. Panics if it is missing.
    fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }
}

/// A server that receives posts.
struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    fn start() -> Self {
        let posts = Arc::<Mutex<Vec<Post>>>::default();
        let received = Arc::clone(&posts);
        let address = tcp(move |mut stream| {
            while let Some(head) = read_head(&mut stream) {
                let mut post = Post { head, body: String::new() };
                let mut body = vec![0; post.header("content-length").parse().unwrap()];
                stream.read_exact(&mut body).unwrap();
                post.body = String::from_utf8(body).unwrap();
                received.lock().unwrap().push(post);
                let answer = b"HTTP/1.1 204 X\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).unwrap();
            }
        });
        Self { address, posts }
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }
}

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
fn posts_nothing_to_addresses_that_are_not_public() {
    let receiver = Receiver::start();
    let port = receiver.port();
    let (tracker, api) = start(&format!("webhook_ports = [\"{port}\"]\n"));
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "169.254.169.254", "[fd00::1]"] {
        let body = json!({ "url": format!("http://{host}:{port}/"), "events": ["ban"] });
        let problem = api.expect(403, "POST /webhooks", Some(&body));
        assert!(problem["detail"].as_str().unwrap().contains("webhook_private"), "{problem}");
    }
    // A name's addresses are known only when it is connected to, so the webhook is created and its post fails.
    hook(&api, &format!("http://localhost:{port}/hook-4711?secret=4711"));
    api.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.1" })));
    let failed = "tidegate_webhook_posts_total{result=\"failed\"}";
    tracker.wait_until("it fails", |it| it.metric(failed) >= 1.0);
    assert!(receiver.posts().is_empty());
    // Of the URL, the log has only the host.
    tracker.wait_for_log("created webhook 1 to localhost");
    assert!(!tracker.log().contains("4711"), "{}", tracker.log());
}

/// Without the sandbox, which would stop it as well.
#[test]
fn posts_only_to_the_ports_of_the_present_configuration() {
    let state = Directory::new();
    let receiver = Receiver::start();
    let port = receiver.port();
    let start = |port: u16| {
        let more = format!(
            "webhook_ports = [\"{port}\"]\nwebhook_private = [\"127.0.0.1\"]\n[state]\ndir = {:?}\n\
             [process]\nsandbox = \"off\"\n",
            state.path("state")
        );
        start(&more)
    };
    let (tracker, api) = start(port);
    let (id, _) = hook(&api, &format!("http://{}/", receiver.address));
    let test = |api: &Caller| api.expect(200, &format!("POST /webhooks/{id}/test"), None);
    assert_eq!(test(&api)["outcome"], "delivered");
    drop(tracker);
    let (_tracker, api) = start(unused_address().port());
    let delivery = test(&api);
    assert!(delivery["error"].as_str().unwrap().contains("webhook_ports"), "{delivery}");
    assert_eq!(receiver.posts().len(), 1);
}

/// The sandbox lets names be resolved. Order and repetitions of posts are tested in edge/admin.
#[test]
fn posts_to_a_host_by_name() {
    let receiver = Receiver::start();
    let port = receiver.port();
    let more = format!("webhook_ports = [\"{port}\"]\nwebhook_private = [\"127.0.0.1\"]\n");
    let (_tracker, api) = start(&more);
    let (_, secret) = hook(&api, &format!("http://localhost:{port}/hook"));
    api.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.1" })));
    harness::wait_until("a post", || !receiver.posts().is_empty());
    let posts = receiver.posts();
    check(&posts[0], &secret);
    assert!(posts[0].head.starts_with("POST /hook HTTP/1.1\r\n"), "{}", posts[0].head);
    assert_eq!(posts[0].header("content-type"), "application/json");
    let event: Value = serde_json::from_str(&posts[0].body).unwrap();
    assert_eq!(event["kind"], "ban");
    assert_eq!(event["data"]["network"], "192.0.2.1/32");
}
