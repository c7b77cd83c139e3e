//! A server that receives HTTP posts, and may refuse them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use crate::client_commands::fake_trackers::{read_head, tcp};
use crate::process::PATIENCE;

#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Post {
    /// Returns the value of a header. Panics if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    /// Returns its body, which must be JSON.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) struct Receiver {
    address: SocketAddr,
    received: Arc<Received>,
}

/// Posts so far, and what is notified of each.
#[derive(Default)]
struct Received {
    posts: Mutex<Vec<Post>>,
    more: Condvar,
}

impl Receiver {
    /// Starts a receiver that answers with these statuses, and then always 204.
    pub(crate) fn start(statuses: &[u16]) -> Self {
        let received = Arc::<Received>::default();
        let statuses = Arc::new(Mutex::new(statuses.iter().copied().collect::<VecDeque<_>>()));
        let sink = Arc::clone(&received);
        let address = tcp(move |stream| receive(stream, &sink, &statuses));
        Self { address, received }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.received.posts.lock().unwrap().clone()
    }

    /// Waits until `is_so` holds for the posts, and returns them.
    pub(crate) fn wait_until(&self, is_so: impl Fn(&[Post]) -> bool) -> Vec<Post> {
        let Received { posts, more } = &*self.received;
        let waited =
            more.wait_timeout_while(posts.lock().unwrap(), PATIENCE, |posts| !is_so(posts));
        let (posts, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "only {posts:?}");
        posts.clone()
    }
}

fn receive(mut stream: TcpStream, received: &Received, statuses: &Mutex<VecDeque<u16>>) {
    while let Some(head) = read_head(&mut stream) {
        let mut post = Post { head, body: String::new() };
        let mut body = vec![0; post.header("content-length").parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        post.body = String::from_utf8(body).unwrap();
        received.posts.lock().unwrap().push(post);
        received.more.notify_all();
        let status = statuses.lock().unwrap().pop_front().unwrap_or(204);
        // Where a redirect leads.
        let answer =
            format!("HTTP/1.1 {status} X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
    }
}
