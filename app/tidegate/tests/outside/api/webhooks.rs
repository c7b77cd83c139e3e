//! Webhooks, as those who receive them see it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::{Caller, start};
use crate::process::{PATIENCE, free_port};

/// What a receiver does with a post.
#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    /// Nothing, for as long as the connection is open.
    Never,
}

use Answer::{Never, Status};

/// A post as it came.
#[derive(Clone, Debug)]
struct Post {
    signature: String,
    body: String,
}

impl Post {
    fn event(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether it is signed with this secret, just now.
    fn check(&self, secret: &str) {
        let (time, tag) = self.signature.split_once(",sha256=").unwrap();
        let time = time.strip_prefix("t=").unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let due = hmac::sign(&key, format!("{time}.{}", self.body).as_bytes());
        let due: String = due.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(tag, due);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert!(time.parse::<u64>().unwrap().abs_diff(now) < 300, "{time} is not {now}");
    }
}

/// Somebody who has events posted to him.
struct Receiver {
    port: u16,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    /// One who answers so, and then always with 204.
    fn listen(port: u16, answers: &[Answer]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let posts = Arc::<Mutex<Vec<Post>>>::default();
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
        let sink = Arc::clone(&posts);
        // Both threads end with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (posts, answers) = (Arc::clone(&sink), Arc::clone(&answers));
                thread::spawn(move || receive(stream, &posts, &answers));
            }
        });
        Self { port, posts }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    /// The posts, when there are so many.
    fn wait_for(&self, count: usize) -> Vec<Post> {
        let deadline = Instant::now() + PATIENCE;
        while self.posts().len() < count {
            assert!(Instant::now() < deadline, "only {:?}", self.posts());
            thread::sleep(std::time::Duration::from_millis(20));
        }
        self.posts()
    }
}

/// Answers the posts of a connection.
fn receive(stream: TcpStream, posts: &Mutex<Vec<Post>>, answers: &Mutex<VecDeque<Answer>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !stream.read_line(&mut head).is_ok_and(|len| len > 0) {
                return;
            }
        }
        assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
        let value = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("no {name} in {head}"))
        };
        assert_eq!(value("content-type"), "application/json");
        let mut body = vec![0; value("content-length").parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let signature = value("tidegate-signature").to_owned();
        posts.lock().unwrap().push(Post { signature, body: String::from_utf8(body).unwrap() });
        let answer = answers.lock().unwrap().pop_front().unwrap_or(Status(204));
        match answer {
            Status(status) => {
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            Never => {
                // It is left by whoever waits for the answer.
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
        }
    }
}

/// Has bans posted there. Gives number and secret.
fn hook(api: &Caller, url: &str) -> (u64, String) {
    let made = api.expect(201, "POST /webhooks", Some(&json!({ "url": url, "events": ["ban"] })));
    (made["id"].as_u64().unwrap(), made["secret"].as_str().unwrap().into())
}

#[test]
fn posts_are_tried_again_until_they_are_taken_and_come_in_order() {
    let ports = [(); 5].map(|()| free_port());
    let list = ports.map(|port| format!("\"{port}\"")).join(", ");
    let (tracker, api) = start(&format!("webhook_ports = [{list}]\n"));
    let [unwilling, hanging, gone, refusing, other] = ports;
    let unwilling = Receiver::listen(unwilling, &[Status(503), Status(500)]);
    let hanging = Receiver::listen(hanging, &[Never]);
    let refusing = Receiver::listen(refusing, &[Status(400); 100]);
    let (_, secret) = hook(&api, &unwilling.url());
    hook(&api, &hanging.url());
    hook(&api, &format!("http://127.0.0.1:{gone}/hook"));
    let (removed, _) = hook(&api, &refusing.url());
    // Of another kind: nothing comes there.
    let other = Receiver::listen(other, &[]);
    let wish = json!({ "url": other.url(), "events": ["reload"] });
    api.expect(201, "POST /webhooks", Some(&wish));
    for network in ["192.0.2.1", "192.0.2.2"] {
        api.expect(201, "POST /bans", Some(&json!({ "network": network })));
    }
    refusing.wait_for(1);
    api.expect(204, &format!("DELETE /webhooks/{removed}"), None);
    let networks = |posts: &[Post]| -> Vec<Value> {
        posts.iter().map(|post| post.event()["data"]["network"].clone()).collect()
    };
    let [one, two] = ["192.0.2.1/32", "192.0.2.2/32"];
    let posts = unwilling.wait_for(4);
    assert_eq!(networks(&posts), [one, one, one, two]);
    // It is the same event each time, and signed anew.
    assert!(posts[..3].iter().all(|post| post.body == posts[0].body));
    posts.iter().for_each(|post| post.check(&secret));
    assert_eq!(posts[0].event()["kind"], "ban");
    assert!(posts[0].event()["id"].as_u64() < posts[3].event()["id"].as_u64());
    // Who comes back gets what he has missed.
    let returned = Receiver::listen(gone, &[]);
    assert_eq!(networks(&returned.wait_for(2)), [one, two]);
    // Nobody is waited for longer than for an answer.
    assert_eq!(networks(&hanging.wait_for(3)), [one, one, two]);
    tracker.wait_until("all delivered", |it| {
        it.metric("tidegate_webhook_posts_total{result=\"delivered\"}") == 6.0
    });
    assert!(tracker.metric("tidegate_webhook_posts_total{result=\"failed\"}") >= 4.0);
    assert_eq!(tracker.metric("tidegate_webhook_posts_total{result=\"dropped\"}"), 0.0);
    // By now a third try would have come: a second may have been on its way.
    assert!(refusing.posts().len() <= 2, "{:?}", refusing.posts());
    assert!(other.posts().is_empty());
}
