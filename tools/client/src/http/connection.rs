//! One connection and the responses on it.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::codec::http::{Chunk, Length, ParsedResponse, read_chunk, read_head};
use crate::stream::{Deadline, READ_LEN, Stream};
use crate::{FailureKind, TrackerError, Url};

pub(super) struct Connection {
    pub(super) stream: Stream,
    /// Responses received on this connection.
    pub(super) answers: u32,
}

/// A complete response.
pub(super) struct Response {
    pub(super) status: u16,
    /// The `Location` header.
    pub(super) location: Option<String>,
    pub(super) body: Vec<u8>,
    /// True if the connection can carry another request.
    pub(super) keep_alive: bool,
}

/// Limit of a body in bytes. A thousand peers in the dictionary model take about 80 KB.
const BODY_MAX: usize = 1 << 20;

impl Connection {
    pub(super) fn open(
        url: &Url,
        address: SocketAddr,
        tls: &Arc<ClientConfig>,
        deadline: Deadline,
    ) -> Result<Self, TrackerError> {
        Ok(Self { stream: Stream::open(url, address, tls, deadline)?, answers: 0 })
    }

    /// Returns true if the connection was kept from an earlier request and nothing of a new response
    /// has arrived.
    pub(super) fn is_stale(&self) -> bool {
        self.answers > 0 && self.stream.input.is_empty()
    }

    /// Sends a request and reads the response.
    pub(super) fn request(
        &mut self,
        request: &[u8],
        deadline: Deadline,
    ) -> Result<Response, TrackerError> {
        self.stream.write(request, deadline)?;
        let (mut response, length) = self.head(deadline)?;
        match length {
            Length::Bytes(len) => self.exactly(len, &mut response.body, deadline)?,
            Length::Chunked => self.chunks(&mut response.body, deadline)?,
            Length::Connection => self.all(&mut response.body, deadline)?,
        }
        self.answers += 1;
        // Unsolicited bytes would be taken for the response to the next request.
        response.keep_alive &= self.stream.input.is_empty();
        Ok(response)
    }

    fn head(&mut self, deadline: Deadline) -> Result<(Response, Length), TrackerError> {
        loop {
            match read_head(&self.stream.input) {
                ParsedResponse::Complete(head) => {
                    if let Some(encoding) = head.encoding {
                        let encoding = encoding.escape_ascii();
                        let what = format!(
                            "a body with Content-Encoding {encoding}, which was not requested"
                        );
                        return Err(self.stream.invalid_response(&what));
                    }
                    let response = Response {
                        status: head.status,
                        location: head.location.map(|it| it.escape_ascii().to_string()),
                        body: Vec::new(),
                        keep_alive: head.keep_alive,
                    };
                    let (length, is_interim) = (head.length, (100..200).contains(&head.status));
                    self.stream.input.drain(..head.consumed);
                    // Ignore interim responses. An endless series of them runs into the deadline.
                    if !is_interim {
                        return Ok((response, length));
                    }
                }
                ParsedResponse::Invalid => {
                    return Err(self.stream.unexpected_input("an HTTP response"));
                }
                ParsedResponse::Partial => {
                    self.stream.check_head()?;
                    self.must_fill(deadline)?;
                }
            }
        }
    }

    /// Reads a body of `len` bytes.
    fn exactly(
        &mut self,
        len: u64,
        body: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<(), TrackerError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > BODY_MAX {
            let what = format!("a body of {len} bytes; the limit is {BODY_MAX}");
            return Err(self.stream.invalid_response(&what));
        }
        while self.stream.input.len() < len {
            self.must_fill(deadline)?;
        }
        body.extend(self.stream.input.drain(..len));
        Ok(())
    }

    fn chunks(&mut self, body: &mut Vec<u8>, deadline: Deadline) -> Result<(), TrackerError> {
        loop {
            let consumed = match read_chunk(&self.stream.input) {
                Chunk::Data { bytes, consumed } => {
                    body.extend_from_slice(bytes);
                    consumed
                }
                Chunk::End { consumed } => {
                    self.stream.input.drain(..consumed);
                    return Ok(());
                }
                Chunk::Invalid => {
                    return Err(self.stream.invalid_response("a body with malformed chunks"));
                }
                Chunk::Partial => 0,
            };
            self.stream.input.drain(..consumed);
            self.limit(body.len() + self.stream.input.len())?;
            if consumed == 0 {
                self.must_fill(deadline)?;
            }
        }
    }

    /// Reads a body that ends with its connection.
    fn all(&mut self, body: &mut Vec<u8>, deadline: Deadline) -> Result<(), TrackerError> {
        while self.stream.fill(deadline)? > 0 {
            self.limit(self.stream.input.len())?;
        }
        body.append(&mut self.stream.input);
        Ok(())
    }

    fn limit(&self, bytes: usize) -> Result<(), TrackerError> {
        if bytes > BODY_MAX + READ_LEN {
            let what = format!("a body of more than {BODY_MAX} bytes");
            return Err(self.stream.invalid_response(&what));
        }
        Ok(())
    }

    /// Reads more input. Fails at the end of the stream.
    fn must_fill(&mut self, deadline: Deadline) -> Result<(), TrackerError> {
        if self.stream.fill(deadline)? > 0 {
            return Ok(());
        }
        let address = self.stream.address;
        let text = match self.stream.input.len() {
            0 => format!("{address} closed the connection without a response"),
            had => format!("{address} closed the connection after {had} bytes of its response"),
        };
        Err(TrackerError::new(FailureKind::ConnectionLost, text))
    }
}
