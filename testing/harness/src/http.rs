//! A client for HTTP/1.1, and what servers of tests have in common: as much as tests need, written by hand.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::PATIENCE;

/// The headers by which a client asks for a WebSocket.
pub const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The lines of the head behind the first.
    pub headers: Vec<String>,
    /// The body, as it came.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header, whose name may be written in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ String| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value.len())
        };
        self.headers.iter().find_map(|line| value(line).map(|len| &line[line.len() - len..]))
    }

    /// Returns true if the server announces that it closes the connection.
    pub fn closes(&self) -> bool {
        self.header("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as text, with U+FFFD for what is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns true if the body contains `bytes`.
    pub fn has(&self, bytes: impl AsRef<[u8]>) -> bool {
        contains(&self.body, bytes)
    }
}

/// Returns true if `haystack` contains `needle`, which must not be empty.
pub fn contains(haystack: &[u8], needle: impl AsRef<[u8]>) -> bool {
    let needle = needle.as_ref();
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// A connection that may carry several requests, with what has been received and not yet read.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    /// The stream below.
    pub stream: S,
    /// Received, and not part of a response that was returned.
    pub received: Vec<u8>,
}

impl Connection {
    /// Connects, with a deadline of [`PATIENCE`] on every read and write.
    ///
    /// # Errors
    ///
    /// If nothing listens there.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::new(stream))
    }
}

impl<S: Read + Write> Connection<S> {
    /// Speaks HTTP over `stream`.
    pub fn new(stream: S) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends a request, method and target, and receives the response. Each of `headers` ends with `\r\n`.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn ask(&mut self, request: &str, headers: &str, body: &[u8]) -> io::Result<Response> {
        let length = match body {
            [] => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        // At once: a server that has the whole body with the head need not close the connection to refuse it.
        let head = format!("{request} HTTP/1.1\r\n{headers}{length}\r\n");
        // A server that refuses a body need not read it.
        let _ = self.send([head.as_bytes(), body].concat());
        self.receive()
    }

    /// Receives the next response. Its body is as long as its head says, or comes in chunks; without a
    /// length it ends with the connection.
    ///
    /// # Errors
    ///
    /// Those of the stream; `UnexpectedEof` if it ends within the response; `InvalidData` if it is not
    /// HTTP.
    pub fn receive(&mut self) -> io::Result<Response> {
        let mut response = self.receive_head()?;
        if response.header("Transfer-Encoding").is_some_and(|value| value == "chunked") {
            response.body = self.receive_chunks()?;
            return Ok(response);
        }
        let Some(len) = response.header("Content-Length") else {
            // 1xx, 204 and 304 never have a body.
            if !matches!(response.status, 100..=199 | 204 | 304) {
                while self.receive_more()? {}
                response.body = std::mem::take(&mut self.received);
            }
            return Ok(response);
        };
        let len: usize = len.parse().map_err(|_| ErrorKind::InvalidData)?;
        response.body = self.receive_exactly(len)?;
        Ok(response)
    }

    /// Receives a body in chunks, without trailers.
    fn receive_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.append(&mut self.receive_exactly(1)?);
            }
            let len = std::str::from_utf8(&line).map_err(|_| ErrorKind::InvalidData)?;
            let len = usize::from_str_radix(len.trim_end(), 16);
            let len = len.map_err(|_| ErrorKind::InvalidData)?;
            body.append(&mut self.receive_exactly(len)?);
            self.receive_exactly(2)?;
            if len == 0 {
                return Ok(body);
            }
        }
    }

    fn receive_exactly(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < len {
            if !self.receive_more()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.received.drain(..len).collect())
    }

    /// Receives the next head. What follows stays in `received`.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn receive_head(&mut self) -> io::Result<Response> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.receive_more()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        };
        let head: Vec<u8> = self.received.drain(..end).collect();
        parse_head(&head).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Receives up to the end of the stream, which may be a reset.
    ///
    /// # Errors
    ///
    /// Those of the stream, but for a reset.
    pub fn receive_rest(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.receive_more() {
                Ok(true) => {}
                Ok(false) => return Ok(std::mem::take(&mut self.received)),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(std::mem::take(&mut self.received));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives some bytes. Returns false at the end of the stream.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn receive_more(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let len = loop {
            match self.stream.read(&mut buffer) {
                // libFuzzer's timer is a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.received.extend_from_slice(&buffer[..len]);
        Ok(len > 0)
    }
}

fn parse_head(head: &[u8]) -> Option<Response> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.trim_end().lines().map(String::from);
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(Response { status, headers: lines.collect(), body: Vec::new() })
}

/// Sends one request over a connection of its own and returns the response, as [`Connection::ask`].
///
/// # Errors
///
/// If nothing listens at `address`, or the connection breaks before the response is whole.
pub fn request(
    address: SocketAddr,
    request: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<Response> {
    let headers = format!("Host: {address}\r\nConnection: close\r\n{headers}");
    Connection::open(address)?.ask(request, &headers, body)
}

/// Sends a GET for `target` over a connection of its own.
///
/// # Errors
///
/// As [`request`].
pub fn get(address: SocketAddr, target: &str) -> io::Result<Response> {
    request(address, &format!("GET {target}"), "", b"")
}

/// Runs `handle` for each connection to a loopback port of the system's choice, until the process ends.
///
/// # Panics
///
/// If no port is free.
pub fn serve(handle: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = handle.clone();
            // A client that hangs must not hang the test.
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.set_write_timeout(Some(PATIENCE));
            thread::spawn(move || handle(stream));
        }
    });
    address
}

/// Reads the head of the next request, or nothing at the end.
pub fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
