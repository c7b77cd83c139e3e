//! A server that receives HTTP posts, and may refuse them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::PATIENCE;

/// How a receiver answers a post.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Status(u16),
    /// Not at all, while the connection is open.
    Never,
}

/// A post as received.
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

/// A running receiver.
pub(crate) struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    /// Starts a receiver that gives these answers, and then always 204.
    pub(crate) fn listen(address: SocketAddr, answers: &[Answer]) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let posts = Arc::<Mutex<Vec<Post>>>::default();
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
        let sink = Arc::clone(&posts);
        // The threads end with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (posts, answers) = (Arc::clone(&sink), Arc::clone(&answers));
                thread::spawn(move || receive(stream, &posts, &answers));
            }
        });
        Self { address, posts }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    /// Waits until `is_so` holds for the posts, and returns them.
    pub(crate) fn wait_until(&self, is_so: impl Fn(&[Post]) -> bool) -> Vec<Post> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let posts = self.posts();
            if is_so(&posts) {
                return posts;
            }
            assert!(Instant::now() < deadline, "only {posts:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for `count` posts, and returns all.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Post> {
        self.wait_until(|posts| posts.len() >= count)
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
        let mut post = Post { head, body: String::new() };
        let mut body = vec![0; post.header("content-length").parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        post.body = String::from_utf8(body).unwrap();
        posts.lock().unwrap().push(post);
        let answer = answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(204));
        match answer {
            Answer::Status(status) => {
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            Answer::Never => {
                // The sender gives up after its timeout.
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
        }
    }
}
