//! Non-blocking sockets, with TLS or without.

use std::cell::{Cell, Ref, RefCell};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::task::{Context, Poll};

use net::tls::{SEALED_MAX, TlsConfig, TlsSession};
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use wire::http::{Method, ResponseFraming, Status};
use wire::proxy;

use crate::connection_error::{ConnectionError, ConnectionResult};

/// A connected socket whose calls return at once.
pub(crate) trait Stream {
    fn read_now(&self, buffer: &mut [u8]) -> ConnectionResult<ReadOutcome>;
    /// Returns how many of `bytes` the socket took. `WouldBlock` if it is full.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Returns true if bytes that were taken have not left yet. An empty write sends them on.
    fn is_pending(&self) -> bool {
        false
    }
}

/// The result of a read that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// The length of the input; never 0.
    Data(usize),
    /// There is no input now.
    Blocked,
    /// The client has closed its side: there will be no more input.
    End,
}

impl ReadOutcome {
    fn of(read: io::Result<usize>) -> ConnectionResult<Self> {
        match read {
            Ok(0) => Ok(Self::End),
            Ok(len) => Ok(Self::Data(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Self::Blocked),
            Err(error) => Err(error.into()),
        }
    }
}

/// A socket that is registered with the reactor.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

/// A socket with a TLS session.
pub(crate) struct Tls {
    tcp: TcpStream,
    session: RefCell<TlsSession>,
    /// True if any input has come.
    has_begun: Cell<bool>,
}

/// The most that one read takes from a socket with TLS: 64 KiB of plain text hold that, and a record
/// whose last byte was missing.
const SEALED_READ_MAX: usize = 48 * 1024;

thread_local! {
    /// Input before it is decrypted. Empty between two reads.
    static SEALED_INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; SEALED_READ_MAX].into());
    /// Output after it is encrypted. Empty between two writes.
    static SEALED_OUTPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; SEALED_MAX].into());
}

impl Socket {
    /// Starts a TLS session if `tls` is set.
    pub(crate) fn new(tcp: TcpStream, tls: Option<&TlsConfig>) -> io::Result<Self> {
        let Some(tls) = tls else { return Ok(Self::Plain(tcp)) };
        Ok(Self::Tls(Box::new(Tls {
            tcp,
            session: RefCell::new(TlsSession::new(tls)?),
            has_begun: Cell::new(false),
        })))
    }

    /// Returns true if input that has not been served has come, or the end of the input.
    pub(crate) fn has_input(&self) -> bool {
        self.held_bytes() > 0 || net::has_input(self.tcp())
    }

    /// Returns the bytes of memory for input that TLS cannot decrypt yet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.session().map_or(0, |session| session.held_bytes())
    }

    /// Returns the bytes of memory for output that TLS has encrypted and the socket has not taken.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.session().map_or(0, |session| session.unsent_bytes())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session().is_some_and(|session| session.is_handshaking())
    }

    /// Returns the TLS session; `None` = no TLS.
    #[inline]
    fn session(&self) -> Option<Ref<'_, TlsSession>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(tls.session.borrow()),
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }

    /// Sends TLS's close_notify. Without it the client must take the end for a truncation attack.
    pub(crate) fn send_close_notify(&self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => SEALED_OUTPUT.with_borrow_mut(|sealed| {
                tls.session.borrow_mut().finish(sealed, &mut TcpWriter(&tls.tcp))
            }),
        }
    }

    /// Ends this side's output; the client may still send.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.send_close_notify()?;
        net::shutdown(self.tcp(), Shutdown::Write)
    }

    /// Ends both directions, which wakes the tasks that wait for the socket.
    pub(crate) fn shutdown_both(&self) -> io::Result<()> {
        // A client that does not read misses this, too.
        let _ = self.send_close_notify();
        net::shutdown(self.tcp(), Shutdown::Both)
    }

    /// Waits for input or its end, and copies it without consuming it. TLS is bypassed.
    pub(crate) fn poll_peek(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.tcp().poll_peek(context, &mut ReadBuf::new(buffer))
    }

    /// Consumes `seen.len()` bytes that were peeked at.
    pub(crate) fn skip(&self, seen: &mut [u8]) -> io::Result<usize> {
        self.tcp().try_read(seen)
    }

    /// Waits for input or its end. For one task of a socket: tokio's own `readable` serves any number
    /// of tasks, but adds tens of bytes to each idle one.
    #[inline]
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // close_notify has ended the input, though TCP may still be open.
            Self::Tls(tls) if tls.session.borrow().is_over() => Poll::Ready(Ok(())),
            _ => self.tcp().poll_read_ready(context),
        }
    }

    /// Waits until the socket takes output. For one task of a socket.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_write_ready(context)
    }
}

impl Stream for Socket {
    #[inline]
    fn read_now(&self, buffer: &mut [u8]) -> ConnectionResult<ReadOutcome> {
        match self {
            Self::Plain(tcp) => ReadOutcome::of(read_tcp(tcp, buffer)),
            Self::Tls(tls) => tls.read_now(buffer),
        }
    }

    #[inline]
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Tls(tls) => SEALED_OUTPUT.with_borrow_mut(|sealed| {
                tls.session.borrow_mut().write(bytes, sealed, &mut TcpWriter(&tls.tcp))
            }),
        }
    }

    #[inline]
    fn is_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.borrow().is_pending(),
        }
    }
}

impl Tls {
    fn read_now(&self, buffer: &mut [u8]) -> ConnectionResult<ReadOutcome> {
        let mut session = self.session.borrow_mut();
        if session.is_over() {
            return Ok(ReadOutcome::End);
        }
        SEALED_INPUT.with_borrow_mut(|sealed| {
            let len = match ReadOutcome::of(read_tcp(&self.tcp, sealed))? {
                ReadOutcome::Data(len) => len,
                // Clients that do not trust the certificate often leave without an alert.
                ReadOutcome::End if self.has_begun.get() && session.is_handshaking() => {
                    return Err(ConnectionError::HandshakeAborted);
                }
                outcome => return Ok(outcome),
            };
            let sealed = &mut sealed[..len];
            if !self.has_begun.replace(true) {
                self.check_first_bytes(sealed)?;
            }
            let opened = session.open(sealed, buffer, &mut TcpWriter(&self.tcp));
            match opened.map_err(ConnectionError::from_tls)? {
                0 if session.is_over() => Ok(ReadOutcome::End),
                0 => Ok(ReadOutcome::Blocked),
                len => Ok(ReadOutcome::Data(len)),
            }
        })
    }

    /// Rejects a PROXY header that is not expected, and plain HTTP.
    fn check_first_bytes(&self, input: &[u8]) -> ConnectionResult<()> {
        if proxy::is_proxy_header(input) {
            return Err(ConnectionError::UntrustedProxy);
        }
        if !input.first().is_some_and(u8::is_ascii_uppercase) {
            return Ok(());
        }
        let mut out = Vec::new();
        let response = ResponseFraming { method: Method::Get, keep_alive: false };
        let text = "this port speaks TLS: the URL must begin with https:// or wss://\n";
        response.text(&mut out, Status::BadRequest, text);
        // A client that does not take the response has no use for it.
        let _ = self.tcp.try_write(&out);
        Err(ConnectionError::NotTls)
    }
}

/// The TCP stream below TLS.
struct TcpWriter<'a>(&'a TcpStream);

impl Write for TcpWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what has come. A short read means that the socket is empty: telling tokio so spares the read
/// that would only find that out.
#[inline]
fn read_tcp(tcp: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut short = None;
    let read = tcp.try_io(Interest::READABLE, || {
        let len = net::receive(tcp, buffer)?;
        if (1..buffer.len()).contains(&len) {
            short = Some(len);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(len)
    });
    short.map_or(read, Ok)
}

impl Stream for std::net::TcpStream {
    fn read_now(&self, buffer: &mut [u8]) -> ConnectionResult<ReadOutcome> {
        ReadOutcome::of((&mut &*self).read(buffer))
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }
}
