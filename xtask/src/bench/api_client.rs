//! A client of the management API that keeps its connection open, so that only answers are measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::served::TOKEN;

/// A connection.
pub(super) struct ApiClient {
    stream: BufReader<TcpStream>,
}

/// An import of a million entries takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

impl ApiClient {
    pub(super) fn new(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("no API at {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends `request`, a method and a path, and returns the response's body. Fails unless the response
    /// has this status. A request body that starts like JSON is sent as JSON, any other as text.
    pub(super) fn expect(&mut self, status: u16, request: &str, body: &str) -> Result<String> {
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let head = format!(
            "{request} HTTP/1.1\r\nHost: tidegate\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let (found, answer) = self.read().with_context(|| format!("no answer to {request}"))?;
        ensure!(found == status, "{request}: expected status {status}, found {found}: {answer}");
        Ok(answer)
    }

    /// Reads a response's status and body.
    fn read(&mut self) -> Result<(u16, String)> {
        let (mut status, mut len) = (None, 0);
        loop {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line)? > 0, "the connection is closed");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                len = value.trim().parse()?;
            }
        }
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body)?;
        Ok((status.context("no status")?, String::from_utf8(body)?))
    }
}
