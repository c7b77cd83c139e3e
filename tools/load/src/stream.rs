//! Non-blocking connections to a tracker, optionally with TLS, and the bytes that wait at their ends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result};
use client::tls::Trust;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Socket, Type};

use crate::TrackerUrl;
use crate::poller::Poller;

/// Opens connections.
pub(crate) struct Dialer {
    url: TrackerUrl,
    /// TLS configuration and server name, if the URL's scheme requires TLS.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Dialer {
    /// Creates a dialer for a tracker. It resumes no TLS session: each connection has a whole handshake.
    pub(crate) fn new(url: &TrackerUrl) -> Result<Self> {
        let tls = if url.scheme.is_secure() {
            let name = ServerName::try_from(url.name.clone()).context("invalid TLS server name")?;
            Some((tls()?, name))
        } else {
            None
        };
        Ok(Self { url: url.clone(), tls })
    }

    /// Starts connecting. `poller` reports the connection by `number`.
    pub(crate) fn dial(&self, poller: &Poller, number: usize) -> Result<Link> {
        let tcp = connect(self.url.address)
            .with_context(|| format!("cannot open connection {number}"))?;
        // Each step sends in one write, so delaying it gains nothing.
        tcp.set_nodelay(true)?;
        poller.add_connection(&tcp, number)?;
        let tls = match &self.tls {
            Some((config, name)) => {
                let mut tls = ClientConnection::new(Arc::clone(config), name.clone())?;
                tls.set_buffer_limit(None);
                Some(Box::new(tls))
            }
            None => None,
        };
        let stream = Stream { tcp, tls, is_over: false };
        Ok(Link { stream, unread: Vec::new(), unsent: Vec::new() })
    }
}

/// A connection with the bytes that wait at its ends.
pub(crate) struct Link {
    stream: Stream,
    /// Received bytes that are not yet processed.
    unread: Vec<u8>,
    /// Bytes that the kernel has not yet accepted.
    unsent: Vec<u8>,
}

/// The result of a read.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// Bytes at the start of the buffer: those that were kept, and the fresh ones.
    pub(crate) len: usize,
    pub(crate) fresh: usize,
    /// True if the stream has ended.
    pub(crate) is_over: bool,
    /// True if no more is available now. Later input is reported again.
    pub(crate) is_all: bool,
}

impl Link {
    /// Sends bytes, after those that are still unsent. Returns how many have left.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = if self.unsent.is_empty() { self.stream.write(bytes)? } else { 0 };
        self.unsent.extend_from_slice(bytes.get(written..).unwrap_or_default());
        Ok(written)
    }

    /// Sends unsent bytes once the connection is writable. Returns how many have left.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        if self.unsent.is_empty() && !self.stream.is_pending() {
            return Ok(0);
        }
        let written = self.stream.write(&self.unsent)?;
        self.unsent.drain(..written);
        Ok(written)
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Reads available input into the buffer, behind what was kept. `None` if there is none now. `is_closed` means that
    /// the end of the stream may already be here.
    pub(crate) fn read(&mut self, buffer: &mut [u8], is_closed: bool) -> io::Result<Option<Input>> {
        let kept = self.unread.len();
        let Some((front, room)) =
            buffer.split_at_mut_checked(kept).filter(|(_, room)| !room.is_empty())
        else {
            return Err(io::Error::new(ErrorKind::InvalidData, "the response is too long"));
        };
        let fresh = match self.stream.read(room) {
            Ok(fresh) => fresh,
            Err(error) if is_full(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        front.copy_from_slice(&self.unread);
        self.unread.clear();
        let is_over = fresh == 0 || self.stream.is_over;
        let is_all = fresh < room.len() && !is_closed;
        Ok(Some(Input { len: kept + fresh, fresh, is_over, is_all }))
    }

    /// Keeps input that is not yet processed.
    pub(crate) fn keep(&mut self, input: &[u8]) {
        self.unread.extend_from_slice(input);
    }
}

/// Starts a non-blocking connect.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    do_not_pace(&socket);
    match socket.connect(&address.into()) {
        Err(error) if !is_under_way(&error) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Selects the simplest congestion control. The machine's default may pace segments, which costs
/// time, and requests of one segment need no pacing. Best effort: if it is not allowed, the default
/// stays.
fn do_not_pace(socket: &Socket) {
    let _ = setsockopt(socket, sockopt::TcpCongestion, &"reno".into());
}

fn is_under_way(error: &io::Error) -> bool {
    if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) {
        return true;
    }
    error.kind() == ErrorKind::WouldBlock
}

/// A connection.
struct Stream {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// True if a read has reached the end of the stream.
    is_over: bool,
}

impl Stream {
    /// Reads available bytes. Returns `WouldBlock` if there are none, 0 at the end of the stream.
    /// If fewer bytes arrive than fit, there are no more now, or the stream is over.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.tcp.read(buffer) };
        let mut len = 0;
        while let Some(buffer) = buffer.get_mut(len..).filter(|buffer| !buffer.is_empty()) {
            match tls.reader().read(buffer) {
                Ok(0) => self.is_over = true,
                Ok(more) => {
                    len += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.is_over = true,
            }
            if self.is_over {
                return Ok(len);
            }
            match tls.read_tls(&mut self.tcp) {
                Ok(_) => {
                    let read = tls.process_new_packets();
                    flush(tls, &mut self.tcp)?;
                    read.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && len > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }

    /// Writes as much as possible and returns how much was taken. With TLS, taken bytes may still
    /// be buffered: see [`Stream::is_pending`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return write_all(&mut self.tcp, bytes) };
        flush(tls, &mut self.tcp)?;
        let is_full = tls.wants_write() && !tls.is_handshaking();
        if bytes.is_empty() || is_full {
            return Ok(0);
        }
        let len = tls.writer().write(bytes)?;
        flush(tls, &mut self.tcp)?;
        Ok(len)
    }

    /// Returns whether taken bytes are still buffered; writing nothing sends them on.
    fn is_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

fn flush(tls: &mut ClientConnection, tcp: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(tcp) {
            Ok(_) => {}
            Err(error) if is_full(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_all(tcp: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = bytes.get(written..) {
        match tcp.write(rest) {
            Ok(more) => written += more,
            Err(error) if is_full(&error) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// Returns whether nothing can be written or read now. A socket may still be connecting.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// Returns a TLS configuration that does not verify certificates: load tests target a known tracker.
fn tls() -> Result<Arc<ClientConfig>> {
    let mut config = client::tls::config(&Trust::NoVerification)?;
    config.resumption = Resumption::disabled();
    Ok(config.into())
}
