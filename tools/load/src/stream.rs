//! A connection to a tracker, with TLS or without, that never waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use client::tls::Trust;
use mio::net::TcpStream;
use mio::{Interest, Poll, Token};
#[cfg(target_os = "linux")]
use nix::sys::socket::{setsockopt, sockopt};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Socket, Type};

use crate::TrackerUrl;

/// How connections are made.
pub(crate) struct Dialer {
    url: TrackerUrl,
    /// If the URL asks for TLS.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Addresses that connections come from in turn; the system's choice if there are none.
    sources: Vec<IpAddr>,
}

impl Dialer {
    /// To a tracker; sessions of TLS go on where the last one ended if `resume` is set.
    pub(crate) fn new(url: &TrackerUrl, resume: bool) -> Result<Self> {
        let tls = if url.scheme.is_secure() {
            let name = ServerName::try_from(url.name.clone()).context("no name for TLS")?;
            Some((tls(resume)?, name))
        } else {
            None
        };
        Ok(Self { url: url.clone(), tls, sources: Vec::new() })
    }

    /// The same, but connections come from these addresses in turn, if there are any.
    pub(crate) fn from(self, sources: &[IpAddr]) -> Self {
        Self { sources: sources.to_vec(), ..self }
    }

    /// Begins a connection, whose events have this number.
    pub(crate) fn dial(&self, poll: &Poll, number: usize) -> Result<Stream> {
        let source = self.sources.get(number % self.sources.len().max(1)).copied();
        let mut tcp = connect(self.url.address, source)
            .with_context(|| format!("cannot open connection {number}"))?;
        // What is said in a turn leaves in one write, so nothing is gained by waiting for more.
        tcp.set_nodelay(true)?;
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut tcp, Token(number), interests)?;
        let tls = match &self.tls {
            Some((config, name)) => {
                let mut tls = ClientConnection::new(Arc::clone(config), name.clone())?;
                tls.set_buffer_limit(None);
                Some(Box::new(tls))
            }
            None => None,
        };
        Ok(Stream { tcp, tls, is_over: false })
    }
}

/// A connection that is on its way.
fn connect(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    do_not_pace(&socket);
    if let Some(source) = source {
        // Many connections to one address may share a port that is not chosen before it is known
        // where to.
        #[cfg(target_os = "linux")]
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&address.into()) {
        Err(error) if !is_under_way(&error) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

/// Has requests leave by the plainest rule there is: the machine's own may be one that reckons a rate for
/// each segment, which costs time, and requests of one segment need none.
/// A hint: where the rule is not allowed, the machine's own stays.
#[cfg(target_os = "linux")]
fn do_not_pace(socket: &Socket) {
    let _ = setsockopt(socket, sockopt::TcpCongestion, &"reno".into());
}

fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) {
        return true;
    }
    error.kind() == ErrorKind::WouldBlock
}

/// A connection.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Whether a read has met the end behind what it gave.
    is_over: bool,
}

impl Stream {
    /// Reads what has come; `WouldBlock` when there is nothing, 0 at the end. Less than there is room
    /// for means that there is no more now, or that it is [over](Self::is_over).
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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

    /// Writes until all is written or no more is taken: how much was. With TLS, what was taken may
    /// still have to leave: see [`Stream::is_pending`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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

    /// Whether bytes that were taken have not left yet; to write nothing sends them on.
    pub(crate) fn is_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
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

/// Not connected yet is the same as full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// Whoever loads a tracker knows which: certificates are not looked at.
fn tls(resume: bool) -> Result<Arc<ClientConfig>> {
    let mut config = client::tls::config(&Trust::NoVerification)?;
    if !resume {
        config.resumption = Resumption::disabled();
    }
    Ok(config.into())
}
