//! Hostile connections beside the load, in several kinds.

use std::fmt;
use std::io::ErrorKind;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Result;
use client::codec::ws;
use mio::Poll;

use crate::counters::Counters;
use crate::random::Random;
use crate::stream::{Dialer, Stream};

/// A kind of hostile connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostileConnection {
    /// Sends a request head one byte at a time and never completes it.
    Slowloris,
    /// Sends random bytes.
    Garbage,
    /// Sends a request with a head of 64 KiB.
    Oversize,
    /// Sends half a request and closes the connection.
    Half,
    /// Sends nothing.
    Silent,
    /// Opens a WebSocket and sends a long message, except for its last byte.
    StuckMessage,
}

const NAMES: [(&str, HostileConnection); 6] = [
    ("slowloris", HostileConnection::Slowloris),
    ("garbage", HostileConnection::Garbage),
    ("oversize", HostileConnection::Oversize),
    ("half", HostileConnection::Half),
    ("silent", HostileConnection::Silent),
    ("stuck-message", HostileConnection::StuckMessage),
];

/// Interval between the bytes of a slow connection.
const SLOW_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of a message that does not end. Trackers accept messages of about this length.
const STUCK_MESSAGE_LEN: usize = 126 * 1024;
/// Delay before a closed connection is replaced.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);

/// All hostile connections of a worker.
pub(crate) struct HostileConnections {
    kind: HostileConnection,
    dialer: Dialer,
    /// Poll token of the first connection.
    first: usize,
    connections: Vec<Connection>,
    host: String,
    random: Random,
    /// The request that connections share.
    request: Option<Rc<[u8]>>,
}

struct Connection {
    stream: Option<Stream>,
    request: Rc<[u8]>,
    written: usize,
    /// Time of the next action.
    next: Instant,
    was_answered: bool,
}

impl HostileConnections {
    /// Creates `count` connections whose poll tokens start at `first`.
    pub(crate) fn new(
        kind: HostileConnection,
        (first, count): (usize, usize),
        dialer: Dialer,
        host: &str,
        seed: u64,
    ) -> Self {
        let connection = || Connection {
            stream: None,
            request: Rc::default(),
            written: 0,
            next: Instant::now(),
            was_answered: false,
        };
        let connections = (0..count).map(|_| connection()).collect();
        let (host, random) = (host.to_owned(), Random::new(seed));
        Self { kind, dialer, first, connections, host, random, request: None }
    }

    /// Opens and writes to connections that are ready to act.
    pub(crate) fn act(&mut self, poll: &Poll, counters: &mut Counters) -> Result<()> {
        let now = Instant::now();
        for at in 0..self.connections.len() {
            let Some(connection) =
                self.connections.get_mut(at).filter(|connection| connection.next <= now)
            else {
                continue;
            };
            if connection.stream.is_none() {
                // A tracker that accepts no more connections defends itself; that is not an error
                // of the load.
                let Ok(stream) = self.dialer.dial(poll, self.first + at) else { continue };
                let request = self.shared_request();
                let Some(connection) = self.connections.get_mut(at) else { continue };
                *connection = Connection {
                    stream: Some(stream),
                    request,
                    written: 0,
                    next: now + SLOW_INTERVAL,
                    was_answered: false,
                };
                counters.hostile_sent += 1;
            }
            self.send(at, counters);
        }
        Ok(())
    }

    /// Handles a poll event. Returns false if the token is not one of these connections'.
    pub(crate) fn handle_event(&mut self, number: usize, counters: &mut Counters) -> bool {
        let Some(at) = number.checked_sub(self.first).filter(|at| *at < self.connections.len())
        else {
            return false;
        };
        let Some(connection) = self.connections.get_mut(at) else { return true };
        let mut buffer = [0; 4096];
        while let Some(stream) = &mut connection.stream {
            match stream.read(&mut buffer) {
                Ok(len @ 1..) => {
                    counters.bytes_in += len as u64;
                    counters.hostile_answered += u64::from(!connection.was_answered);
                    connection.was_answered = true;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    break;
                }
                Ok(_) | Err(_) => {
                    connection.stream = None;
                    connection.next = Instant::now() + RECONNECT_DELAY;
                }
            }
        }
        if self.kind != HostileConnection::Slowloris {
            self.send(at, counters);
        }
        true
    }

    /// Writes the next part of a request.
    fn send(&mut self, at: usize, counters: &mut Counters) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let Some(stream) = &mut connection.stream else { return };
        let rest = connection.request.get(connection.written..).unwrap_or_default();
        let rest = match self.kind {
            HostileConnection::Slowloris => rest.get(..1).unwrap_or_default(),
            _ => rest,
        };
        connection.next = Instant::now() + SLOW_INTERVAL;
        match stream.write(rest) {
            Ok(len) => {
                counters.bytes_out += len as u64;
                connection.written += len;
                let is_sent =
                    connection.written >= connection.request.len() && !stream.is_pending();
                if self.kind == HostileConnection::Half && is_sent {
                    connection.stream = None;
                    connection.next = Instant::now() + RECONNECT_DELAY;
                }
            }
            Err(_) => {
                connection.stream = None;
                connection.next = Instant::now() + RECONNECT_DELAY;
            }
        }
    }

    /// Returns the next connection's request. All send the same, unless it is random.
    fn shared_request(&mut self) -> Rc<[u8]> {
        if let Some(request) = &self.request {
            return Rc::clone(request);
        }
        let request: Rc<[u8]> = self.request().into();
        if self.kind != HostileConnection::Garbage {
            self.request = Some(Rc::clone(&request));
        }
        request
    }

    fn request(&mut self) -> Vec<u8> {
        let head = format!(
            "GET /announce?info_hash=aaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: {}\r\n",
            self.host
        );
        let mut request = head.into_bytes();
        match self.kind {
            // Lasts for minutes.
            HostileConnection::Slowloris => request.extend(b"X-Slow: 1\r\n".repeat(1000)),
            HostileConnection::Oversize => {
                request.extend(format!("X-Large: {}", "x".repeat(65_536)).bytes())
            }
            HostileConnection::Half => request.truncate(request.len() / 2),
            HostileConnection::Silent => request.clear(),
            HostileConnection::StuckMessage => {
                request.clear();
                ws::request(&mut request, &self.host, "/", b"c3R1Y2stbWVzc2FnZS1rZQ==");
                // The head of a masked text message. Nothing needs to wait for the response.
                request.extend([0x81, 0xff]);
                request.extend((STUCK_MESSAGE_LEN as u64).to_be_bytes());
                request.resize(request.len() + 4 + STUCK_MESSAGE_LEN - 1, 0);
            }
            HostileConnection::Garbage => {
                request.clear();
                request.extend((0..512).map(|_| self.random.next() as u8));
            }
        }
        request
    }
}

impl FromStr for HostileConnection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let counters = NAMES.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        counters.ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("unknown kind `{text}`: expected one of {names}")
        })
    }
}

impl fmt::Display for HostileConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (name, kind) in NAMES {
            assert_eq!((name.parse(), kind.to_string().as_str()), (Ok(kind), name));
        }
        assert!("bad-ids".parse::<HostileConnection>().unwrap_err().contains("slowloris, garbage"));
    }
}
