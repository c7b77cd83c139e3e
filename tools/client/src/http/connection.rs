//! One connection, and the answers on it.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection};
use types::limits;
use wire::http::client::{Chunk, Length, ParsedResponse, read_chunk, read_head};

use crate::stream::{Deadline, Stream};
use crate::{Fault, Kind, Url};

pub(super) struct Connection {
    stream: Stream,
    address: SocketAddr,
    /// What has come and is not done with.
    input: Vec<u8>,
    /// Answers that have come on it.
    pub(super) answers: u32,
}

/// An answer, whole.
pub(super) struct Response {
    pub(super) status: u16,
    /// Where it is to be asked instead.
    pub(super) location: Option<String>,
    pub(super) body: Vec<u8>,
    /// Whether another request may follow.
    pub(super) keep_alive: bool,
}

/// Bytes of an answer's body. A thousand peers of the dictionary model take some 80 KB.
const BODY_MAX: usize = 1 << 20;
/// Bytes that are read at once.
const READ: usize = 16 * 1024;

impl Connection {
    pub(super) fn open(
        url: &Url,
        address: SocketAddr,
        tls: &Arc<ClientConfig>,
        deadline: Deadline,
    ) -> Result<Self, Fault> {
        let stream = Stream::open(url, address, tls, deadline)?;
        Ok(Self { stream, address, input: Vec::new(), answers: 0 })
    }

    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.local()
    }

    pub(super) fn tls(&self) -> Option<&ClientConnection> {
        self.stream.tls()
    }

    /// Whether it has been kept, and nothing of another answer has come.
    pub(super) fn is_stale(&self) -> bool {
        self.answers > 0 && self.input.is_empty()
    }

    /// Sends a request, and reads the answer to it.
    pub(super) fn ask(&mut self, request: &[u8], deadline: Deadline) -> Result<Response, Fault> {
        self.stream.write(request, deadline)?;
        let (mut response, length) = self.head(deadline)?;
        match length {
            Length::Bytes(len) => self.exactly(len, &mut response.body, deadline)?,
            Length::Chunked => self.chunks(&mut response.body, deadline)?,
            Length::Connection => self.all(&mut response.body, deadline)?,
        }
        self.answers += 1;
        // What comes unasked can only be taken for an answer to something else.
        response.keep_alive &= self.input.is_empty();
        Ok(response)
    }

    fn head(&mut self, deadline: Deadline) -> Result<(Response, Length), Fault> {
        loop {
            match read_head(&self.input) {
                ParsedResponse::Complete(head) => {
                    let encoding = head.encoding.map(|it| it.escape_ascii().to_string());
                    if let Some(encoding) = encoding {
                        let what = format!("a body in {encoding}, which was not asked for");
                        return Err(self.garbled(&what));
                    }
                    let response = Response {
                        status: head.status,
                        location: head.location.map(|it| it.escape_ascii().to_string()),
                        body: Vec::new(),
                        keep_alive: head.keep_alive,
                    };
                    let (length, is_interim) = (head.length, (100..200).contains(&head.status));
                    self.input.drain(..head.consumed);
                    // Interim answers say nothing to us; those that never end meet the deadline.
                    if !is_interim {
                        return Ok((response, length));
                    }
                }
                ParsedResponse::Invalid => {
                    let begin = self.input.get(..40).unwrap_or(&self.input).escape_ascii();
                    let what = format!("\"{begin}\", which is no HTTP answer");
                    return Err(self.garbled(&what));
                }
                ParsedResponse::Partial if self.input.len() >= limits::HTTP_HEAD_MAX => {
                    let what = format!("headers of more than {} bytes", limits::HTTP_HEAD_MAX);
                    return Err(self.garbled(&what));
                }
                ParsedResponse::Partial => self.must_fill(deadline)?,
            }
        }
    }

    /// A body of so many bytes.
    fn exactly(&mut self, len: u64, body: &mut Vec<u8>, deadline: Deadline) -> Result<(), Fault> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > BODY_MAX {
            return Err(
                self.garbled(&format!("a body of {len} bytes, of which {BODY_MAX} are read"))
            );
        }
        while self.input.len() < len {
            self.must_fill(deadline)?;
        }
        body.extend(self.input.drain(..len));
        Ok(())
    }

    fn chunks(&mut self, body: &mut Vec<u8>, deadline: Deadline) -> Result<(), Fault> {
        loop {
            let consumed = match read_chunk(&self.input) {
                Chunk::Data { bytes, consumed } => {
                    body.extend_from_slice(bytes);
                    consumed
                }
                Chunk::End { consumed } => {
                    self.input.drain(..consumed);
                    return Ok(());
                }
                Chunk::Invalid => return Err(self.garbled("a body in broken chunks")),
                Chunk::Partial => 0,
            };
            self.input.drain(..consumed);
            self.limit(body.len() + self.input.len())?;
            if consumed == 0 {
                self.must_fill(deadline)?;
            }
        }
    }

    /// A body that ends with its connection.
    fn all(&mut self, body: &mut Vec<u8>, deadline: Deadline) -> Result<(), Fault> {
        while self.fill(deadline)? > 0 {
            self.limit(self.input.len())?;
        }
        body.append(&mut self.input);
        Ok(())
    }

    fn limit(&self, bytes: usize) -> Result<(), Fault> {
        if bytes > BODY_MAX + READ {
            return Err(self.garbled(&format!("a body of more than {BODY_MAX} bytes")));
        }
        Ok(())
    }

    /// Reads more, which there must be.
    fn must_fill(&mut self, deadline: Deadline) -> Result<(), Fault> {
        if self.fill(deadline)? > 0 {
            return Ok(());
        }
        let address = self.address;
        let text = match self.input.len() {
            0 => format!("{address} has closed the connection without an answer"),
            had => format!("{address} has closed the connection within its answer, {had} bytes in"),
        };
        Err(Fault::new(Kind::Lost, text))
    }

    /// Reads more: how much, 0 at the end.
    fn fill(&mut self, deadline: Deadline) -> Result<usize, Fault> {
        let had = self.input.len();
        self.input.resize(had + READ, 0);
        let read = self.stream.read(self.input.get_mut(had..).unwrap_or_default(), deadline);
        self.input.truncate(had + read.as_ref().map_or(0, |read| *read));
        read
    }

    fn garbled(&self, what: &str) -> Fault {
        Fault::new(Kind::Garbled, format!("{} has sent {what}", self.address))
    }
}
