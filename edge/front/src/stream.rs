//! Sockets that never wait, with TLS or without.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::task::Poll;

use net::tls::{SEALED_MAX, TlsConfig, TlsSession};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tracker::counters::DropReason;
use wire::http::{Method, ResponseFraming, Status};
use wire::proxy;

/// A connected socket that never waits.
pub(crate) trait Stream {
    /// Bytes that have come; `WouldBlock` when there are none, 0 when none will come.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// How many of `bytes` were taken; `WouldBlock` when the socket is full.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Whether bytes that were taken have not left yet; to write nothing sends them on.
    fn is_pending(&self) -> bool {
        false
    }
}

/// A socket that the reactor watches.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

/// A socket with TLS on it.
pub(crate) struct Tls {
    tcp: TcpStream,
    session: RefCell<TlsSession>,
    /// Whether anything has come.
    has_begun: Cell<bool>,
}

/// The most that one read takes of a socket with TLS on it: 64 KiB in the clear hold that, and a
/// record that was waiting for its last byte.
const INCOMING_MAX: usize = 48 * 1024;

thread_local! {
    /// What has come, before it is opened. It holds nothing from one read to the next.
    static INCOMING: RefCell<Box<[u8]>> = RefCell::new(vec![0; INCOMING_MAX].into());
    /// What was sealed, before it leaves. It holds nothing from one write to the next.
    static OUTGOING: RefCell<Box<[u8]>> = RefCell::new(vec![0; SEALED_MAX].into());
}

impl Socket {
    /// With TLS if `tls` says how.
    pub(crate) fn new(tcp: TcpStream, tls: Option<&TlsConfig>) -> io::Result<Self> {
        let Some(tls) = tls else { return Ok(Self::Plain(tcp)) };
        Ok(Self::Tls(Box::new(Tls {
            tcp,
            session: RefCell::new(TlsSession::new(tls)?),
            has_begun: Cell::new(false),
        })))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }

    /// Whether TLS is still being agreed on.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.borrow().is_handshaking(),
        }
    }

    /// Says that nothing more will be sent, where saying nothing would look like an attack.
    pub(crate) fn say_goodbye(&self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => OUTGOING.with_borrow_mut(|outgoing| {
                tls.session.borrow_mut().finish(outgoing, &mut Unsealed(&tls.tcp))
            }),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.say_goodbye()?;
        net::finish(self.tcp())
    }

    /// Ends it both ways, which wakes whoever waits on it.
    pub(crate) fn hang_up(&self) -> io::Result<()> {
        // Who does not read will not hear this either.
        let _ = self.say_goodbye();
        net::hang_up(self.tcp())
    }

    /// Waits for input, or its end, and looks at it without taking it. TLS has no part in this.
    pub(crate) async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp().peek(buffer).await
    }

    /// Takes `seen.len()` bytes that have been looked at.
    pub(crate) fn skip(&self, seen: &mut [u8]) -> io::Result<usize> {
        self.tcp().try_read(seen)
    }

    /// Waits until there is input, or its end. For one task of a socket: tokio's own `readable`
    /// serves any number, but takes tens of bytes more in each idle task.
    pub(crate) fn readable(&self) -> impl Future<Output = io::Result<()>> {
        poll_fn(|context| match self {
            // The end is known already, though TCP may go on.
            Self::Tls(tls) if tls.session.borrow().is_over() => Poll::Ready(Ok(())),
            _ => self.tcp().poll_read_ready(context),
        })
    }

    /// Waits until there is room for output. For one task of a socket.
    pub(crate) fn writable(&self) -> impl Future<Output = io::Result<()>> {
        poll_fn(|context| self.tcp().poll_write_ready(context))
    }

    /// The same for any number of tasks.
    pub(crate) async fn writable_for_any(&self) -> io::Result<()> {
        self.tcp().writable().await
    }
}

impl Stream for Socket {
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read_now(buffer),
            Self::Tls(tls) => tls.read_now(buffer),
        }
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write_now(bytes),
            Self::Tls(tls) => OUTGOING.with_borrow_mut(|outgoing| {
                tls.session.borrow_mut().write(bytes, outgoing, &mut Unsealed(&tls.tcp))
            }),
        }
    }

    fn is_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.borrow().is_pending(),
        }
    }
}

impl Tls {
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        if session.is_over() {
            return Ok(0);
        }
        INCOMING.with_borrow_mut(|incoming| {
            let len = self.tcp.read_now(incoming)?;
            let sealed = incoming.get_mut(..len).unwrap_or_default();
            if sealed.is_empty() {
                // Who trusts another authority than ours may well leave without a word.
                let is_rude = self.has_begun.get() && session.is_handshaking();
                return if is_rude { Err(broken("it left in the handshake")) } else { Ok(0) };
            }
            if !self.has_begun.replace(true) {
                if proxy::is_proxy_header(sealed) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                if sealed.first().is_some_and(u8::is_ascii_uppercase) {
                    return Err(self.reject_plain());
                }
            }
            match session.open(sealed, buffer, &mut Unsealed(&self.tcp))? {
                0 if !session.is_over() => Err(io::ErrorKind::WouldBlock.into()),
                len => Ok(len),
            }
        })
    }

    /// Tells a client that speaks HTTP, in HTTP, that it should speak TLS.
    fn reject_plain(&self) -> io::Error {
        let mut out = Vec::new();
        let response = ResponseFraming { method: Method::Get, keep_alive: false };
        let sentence = "this port speaks TLS: the URL must begin with https:// or wss://\n";
        response.text(&mut out, Status::BadRequest, sentence);
        // Who does not take it has no use for it.
        let _ = self.tcp.write_now(&out);
        broken(sentence)
    }
}

/// What is wrong with a client's TLS.
fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Why a connection broke.
pub(crate) fn reason(error: &io::Error) -> DropReason {
    match error.kind() {
        _ if error.raw_os_error().is_some() => DropReason::Reset,
        io::ErrorKind::InvalidInput => DropReason::BadProxyHeader,
        io::ErrorKind::PermissionDenied => DropReason::UntrustedProxy,
        io::ErrorKind::InvalidData => DropReason::BadTls,
        _ => DropReason::Reset,
    }
}

/// The TCP stream under TLS.
struct Unsealed<'a>(&'a TcpStream);

impl Write for Unsealed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for TcpStream {
    /// A short read means that the socket is empty: saying so spares the read that would only find
    /// that out.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut short = None;
        let read = self.try_io(Interest::READABLE, || {
            let len = net::receive(self, buffer)?;
            if (1..buffer.len()).contains(&len) {
                short = Some(len);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(len)
        });
        short.map_or(read, Ok)
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Stream for std::net::TcpStream {
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(buffer)
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }
}
