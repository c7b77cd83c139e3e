//! One datagram with each system call.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use super::DATAGRAM_BUFFER;

/// A non-blocking socket.
pub(in super::super) type Socket = UdpSocket;

/// A datagram buffer, shared by all sockets of a thread.
pub(in super::super) struct DatagramIo {
    buffer: Box<[u8]>,
}

impl DatagramIo {
    /// Neither offload nor timestamps are supported here.
    pub(in super::super) fn new(_: bool, _: bool) -> Self {
        Self { buffer: vec![0; DATAGRAM_BUFFER].into() }
    }

    /// Nothing to configure.
    pub(in super::super) fn register(&self, _: &std::net::UdpSocket) -> io::Result<()> {
        Ok(())
    }

    /// Receives available datagrams without blocking. Passes on each datagram, whether it may have
    /// been truncated, and how
    /// long it was queued (always 0).
    pub(in super::super) fn receive(
        &mut self,
        socket: &UdpSocket,
        mut on_datagram: impl FnMut(&[u8], bool, Duration),
    ) -> io::Result<()> {
        // Read until none is left, because readiness is edge-triggered.
        loop {
            match socket.recv(&mut self.buffer) {
                Ok(len) => on_datagram(
                    self.buffer.get(..len).unwrap_or_default(),
                    len == DATAGRAM_BUFFER,
                    Duration::ZERO,
                ),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends consecutive datagrams of `len` bytes each.
    pub(in super::super) fn send(
        &mut self,
        socket: &UdpSocket,
        batch: &[u8],
        len: usize,
    ) -> io::Result<()> {
        batch.chunks(len).try_for_each(|datagram| socket.send(datagram).map(drop))
    }
}

/// Waits for many sockets.
pub(in super::super) struct Poller {
    poll: Poll,
    events: Events,
}

impl Poller {
    pub(in super::super) fn new() -> io::Result<Self> {
        Ok(Self { poll: Poll::new()?, events: Events::with_capacity(256) })
    }

    /// Registers a socket, which is reported by this number.
    pub(in super::super) fn add(
        &mut self,
        socket: std::net::UdpSocket,
        number: usize,
    ) -> io::Result<Socket> {
        let mut socket = UdpSocket::from_std(socket);
        self.poll.registry().register(&mut socket, Token(number), Interest::READABLE)?;
        Ok(socket)
    }

    /// Waits until sockets are ready or until `until`, to about a millisecond. Returns the numbers
    /// of ready sockets.
    pub(in super::super) fn wait(
        &mut self,
        until: Instant,
        _is_exact: bool,
    ) -> io::Result<impl Iterator<Item = usize>> {
        let left = until.saturating_duration_since(Instant::now());
        match self.poll.poll(&mut self.events, Some(left)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(self.events.iter().map(|event| event.token().0))
    }
}
