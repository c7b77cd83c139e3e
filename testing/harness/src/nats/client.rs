//! A client of NATS servers: as much as tests need, written by hand, so that what it sends may be wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::User;
use crate::PATIENCE;

/// The subject at which answers come.
const INBOX: &str = "_INBOX.harness";

/// A connection without TLS.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    /// Messages that came while something else was waited for.
    messages: Vec<Message>,
    /// The number of the last subscription.
    subscription: u32,
    /// True if the client has subscribed to its answers.
    has_inbox: bool,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The subject that it was published to.
    pub subject: String,
    /// Where its answer is to go, if anywhere.
    pub reply: Option<String>,
    /// Its headers as received, `NATS/1.0` and empty lines included. Empty if there are none.
    pub headers: Vec<u8>,
    /// The rest.
    pub payload: Vec<u8>,
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// If it refuses.
    pub fn connect(server: SocketAddr, user: &User) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream: BufReader::new(stream),
            messages: Vec::new(),
            subscription: 0,
            has_inbox: false,
        };
        let info = client.line()?;
        let info = info.strip_prefix("INFO ").with_context(|| format!("no INFO, but {info}"))?;
        let info: Value = serde_json::from_str(info)?;
        let mut options = json!({ "verbose": false, "headers": true, "no_responders": true });
        for (name, value) in user.proof(info["nonce"].as_str().unwrap_or_default())? {
            options[name] = value;
        }
        client.send(format!("CONNECT {options}\r\n").as_bytes())?;
        client.flush()?;
        Ok(client)
    }

    /// Publishes a message. `subject` may be two, with a blank: answers go to the second. `headers` are lines such as `Name: value\r\n`; empty = none.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    pub fn publish(&mut self, subject: &str, headers: &str, payload: &[u8]) -> Result<()> {
        let mut bytes = match headers {
            "" => format!("PUB {subject} {}\r\n", payload.len()),
            _ => {
                let head = format!("NATS/1.0\r\n{headers}\r\n");
                let all = head.len() + payload.len();
                format!("HPUB {subject} {} {all}\r\n{head}", head.len())
            }
        }
        .into_bytes();
        bytes.extend(payload);
        bytes.extend(b"\r\n");
        self.send(&bytes)
    }

    /// Waits until the server has handled all that was sent.
    ///
    /// # Errors
    ///
    /// If it refused something.
    pub fn flush(&mut self) -> Result<()> {
        self.send(b"PING\r\n")?;
        while !self.read()? {}
        Ok(())
    }

    /// Subscribes to a subject.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub fn subscribe(&mut self, subject: &str) -> Result<()> {
        self.subscription += 1;
        self.send(format!("SUB {subject} {}\r\n", self.subscription).as_bytes())?;
        self.flush()
    }

    /// Returns the next message of all subscriptions.
    ///
    /// # Errors
    ///
    /// If none comes within [`PATIENCE`].
    pub fn next_message(&mut self) -> Result<Message> {
        while self.messages.is_empty() {
            self.read()?;
        }
        Ok(self.messages.remove(0))
    }

    /// Asks JetStream's API, such as `STREAM.DELETE.NAME`, and returns its answer.
    ///
    /// # Errors
    ///
    /// If none comes, or it is an error.
    pub fn jetstream(&mut self, command: &str, body: &str) -> Result<Value> {
        if !self.has_inbox {
            self.subscribe(INBOX)?;
            self.has_inbox = true;
        }
        let request = format!("$JS.API.{command} {INBOX}");
        self.publish(&request, "", body.as_bytes())?;
        let is_answer = |message: &Message| message.subject == INBOX;
        let at = loop {
            match self.messages.iter().position(is_answer) {
                Some(at) => break at,
                None => self.read()?,
            };
        };
        let answer = self.messages.remove(at).payload;
        let answer: Value = serde_json::from_slice(&answer).context("no answer of JetStream")?;
        ensure!(answer["error"].is_null(), "{command}: {}", answer["error"]);
        Ok(answer)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("the NATS server does not answer")?;
        ensure!(line.ends_with("\r\n"), "the NATS server has closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// Reads one thing that the server sends. Returns true if it was PONG.
    fn read(&mut self) -> Result<bool> {
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<usize>().context("no length");
        let (head, all) = match words[..] {
            ["PONG"] => return Ok(true),
            ["PING"] => {
                self.send(b"PONG\r\n")?;
                return Ok(false);
            }
            ["+OK"] | ["INFO", ..] => return Ok(false),
            ["MSG", .., len] => (0, number(len)?),
            ["HMSG", .., head, len] => (number(head)?, number(len)?),
            _ => bail!("the NATS server says {line}"),
        };
        let mut payload = vec![0; all + 2];
        self.stream.read_exact(&mut payload)?;
        payload.truncate(all);
        ensure!(head <= all, "a message shorter than its headers");
        let rest = payload.split_off(head);
        let subject = words[1].to_owned();
        // Lengths come last: one, or two with headers.
        let lengths = if words[0] == "HMSG" { 2 } else { 1 };
        let reply = words.get(3).filter(|_| words.len() == 4 + lengths);
        let reply = reply.map(|reply| (*reply).to_owned());
        self.messages.push(Message { subject, reply, headers: payload, payload: rest });
        Ok(false)
    }
}
