//! A TCP connection, optionally with TLS, whose every operation has a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use types::limits;

use crate::{FailureKind, TrackerError, Url, tls};

/// When an operation times out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
    /// The whole timeout, for error messages.
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { end: Instant::now() + timeout, timeout }
    }

    /// Returns the remaining time, or `None` once it has run out.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let remaining = self.end.saturating_duration_since(Instant::now());
        (!remaining.is_zero()).then_some(remaining)
    }

    pub(crate) fn timed_out(&self, what: &str) -> TrackerError {
        TrackerError::new(FailureKind::Timeout, format!("{what} within {}", seconds(self.timeout)))
    }
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// A connection to a tracker.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    pub(crate) address: SocketAddr,
    /// Received bytes that are not yet processed.
    pub(crate) input: Vec<u8>,
}

/// Bytes per read.
pub(crate) const READ_LEN: usize = 16 * 1024;

impl Stream {
    /// Connects and, if the URL's scheme requires it, completes the TLS handshake.
    pub(crate) fn open(
        url: &Url,
        address: SocketAddr,
        tls: &Arc<ClientConfig>,
        deadline: Deadline,
    ) -> Result<Self, TrackerError> {
        let timed_out = || deadline.timed_out(&format!("no connection to {address}"));
        let remaining = deadline.remaining().ok_or_else(timed_out)?;
        let tcp = TcpStream::connect_timeout(&address, remaining).map_err(|error| {
            if error.kind() == ErrorKind::TimedOut {
                timed_out()
            } else {
                unreachable(address, &error)
            }
        })?;
        // A request is one write, so delaying it gains nothing.
        let _ = tcp.set_nodelay(true);
        let mut stream = Self { tcp, tls: None, address, input: Vec::new() };
        if url.scheme.is_secure() {
            let name = ServerName::try_from(url.name.clone()).map_err(|_| {
                TrackerError::new(
                    FailureKind::Tls,
                    format!("{} is not a valid TLS server name", url.name),
                )
            })?;
            let mut session = ClientConnection::new(Arc::clone(tls), name).map_err(|error| {
                TrackerError::new(FailureKind::Tls, format!("cannot set up TLS: {error}"))
            })?;
            let mut io = DeadlineIo { tcp: &stream.tcp, deadline };
            while session.is_handshaking() {
                let done = session.complete_io(&mut io);
                done.map_err(|error| stream.to_error(&error, deadline, "no TLS handshake"))?;
            }
            stream.tls = Some(session.into());
        }
        Ok(stream)
    }

    /// Sends all bytes.
    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), TrackerError> {
        let mut io = DeadlineIo { tcp: &self.tcp, deadline };
        let written = match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut io);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
            None => io.write_all(bytes),
        };
        written.map_err(|error| self.to_error(&error, deadline, "cannot send the request"))
    }

    /// Appends available bytes to the input. Returns their number, 0 at the end of the stream.
    pub(crate) fn fill(&mut self, deadline: Deadline) -> Result<usize, TrackerError> {
        let had = self.input.len();
        self.input.resize(had + READ_LEN, 0);
        let buffer = self.input.get_mut(had..).unwrap_or_default();
        let mut io = DeadlineIo { tcp: &self.tcp, deadline };
        let read = match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut io).read(buffer),
            None => io.read(buffer),
        };
        self.input.truncate(had + read.as_ref().map_or(0, |read| *read));
        match read {
            // The peer closed without close_notify. Whether the response is complete follows from
            // its own length.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read.map_err(|error| self.to_error(&error, deadline, "no complete response")),
        }
    }

    /// Returns the error for a response that violates the protocol.
    pub(crate) fn invalid_response(&self, what: &str) -> TrackerError {
        TrackerError::new(FailureKind::InvalidResponse, format!("{} has sent {what}", self.address))
    }

    /// Returns the error for input that does not begin with `expected`.
    pub(crate) fn unexpected_input(&self, expected: &str) -> TrackerError {
        let begin = self.input.get(..40).unwrap_or(&self.input).escape_ascii();
        self.invalid_response(&format!("\"{begin}\", which is not {expected}"))
    }

    /// Returns an error if the input has more bytes than the head of a response may have.
    pub(crate) fn check_head(&self) -> Result<(), TrackerError> {
        if self.input.len() < limits::HTTP_HEAD_MAX {
            return Ok(());
        }
        let what = format!("headers of more than {} bytes", limits::HTTP_HEAD_MAX);
        Err(self.invalid_response(&what))
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp.local_addr().ok()
    }

    /// Returns the TLS session, if there is one.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.tls.as_deref()
    }

    fn to_error(&self, error: &io::Error, deadline: Deadline, what: &str) -> TrackerError {
        let address = self.address;
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                deadline.timed_out(&format!("{what} from {address}"))
            }
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
                let why = tls.map_or_else(|| error.to_string(), tls::describe);
                TrackerError::new(FailureKind::Tls, format!("TLS with {address} failed: {why}"))
            }
            _ => TrackerError::new(
                FailureKind::ConnectionLost,
                format!("{what}: connection to {address} lost: {error}"),
            ),
        }
    }
}

/// The error for an address that cannot be reached.
pub(crate) fn unreachable(address: SocketAddr, error: &io::Error) -> TrackerError {
    TrackerError::new(FailureKind::Unreachable, format!("cannot reach {address}: {error}"))
}

/// A socket whose reads and writes end at the deadline, even if single bytes keep trickling in.
struct DeadlineIo<'a> {
    tcp: &'a TcpStream,
    deadline: Deadline,
}

impl DeadlineIo<'_> {
    fn remaining(&self) -> io::Result<Duration> {
        self.deadline.remaining().ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

impl Read for DeadlineIo<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(self.remaining()?))?;
        self.tcp.read(buffer)
    }
}

impl Write for DeadlineIo<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.remaining()?))?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
