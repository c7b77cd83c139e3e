//! One system call for each datagram, on any platform that mio supports.

use super::engine_loop::{EngineIo, Round};
use super::{Batch, Handler, UdpSocket};
use mio::net::UdpSocket as Socket;
use mio::{Events, Interest, Poll, Token};
use primitives::IpPrefix;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The sockets of a worker.
pub(super) struct PortableEngine {
    sockets: Vec<BoundSocket>,
    batch: Batch,
    poll: Poll,
    events: Events,
}

struct BoundSocket {
    socket: Socket,
    local: SocketAddr,
}

impl PortableEngine {
    pub(super) fn new(sockets: Vec<UdpSocket>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let events = Events::with_capacity(sockets.len().max(1));
        let mut bound = Vec::with_capacity(sockets.len());
        for (at, socket) in sockets.into_iter().enumerate() {
            let local = socket.local_addr();
            let mut socket = Socket::from_std(socket.socket);
            poll.registry().register(&mut socket, Token(at), Interest::READABLE)?;
            bound.push(BoundSocket { socket, local });
        }
        Ok(Self { sockets: bound, batch: Batch::new(), poll, events })
    }
}

impl EngineIo for PortableEngine {
    const IS_PORTABLE: bool = true;

    fn poll_once(&mut self, handler: &mut impl Handler) -> io::Result<Round> {
        let mut round = Round::default();
        for (at, BoundSocket { socket, local }) in self.sockets.iter().enumerate() {
            self.batch.clear(*local);
            receive(socket, &mut self.batch)?;
            if !self.batch.is_empty() {
                round.add_batch(self.batch.len());
                handler.batch(at, &mut self.batch);
                send(at, socket, &self.batch, handler);
            }
        }
        Ok(round)
    }

    /// mio reports readiness only once, so each socket must have been found empty.
    fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn block_sources(&mut self, _: &[IpPrefix]) {}
}

/// Receives waiting datagrams, up to a full batch.
fn receive(socket: &Socket, batch: &mut Batch) -> io::Result<()> {
    while let Some(place) = batch.next_request_slot() {
        match socket.recv_from(place) {
            Ok((len, from)) => batch.push(from, len, false),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => break,
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => return Err(error),
                // An error about an earlier reply, or a datagram too long for Windows.
                _ => {}
            },
        }
    }
    Ok(())
}

/// Sends the replies. Those that the socket does not accept are dropped.
fn send(at: usize, socket: &Socket, batch: &Batch, handler: &mut impl Handler) {
    for slot in 0..batch.len() {
        let reply = batch.reply(slot);
        if reply.is_empty() {
            continue;
        }
        if let Err(error) = socket.send_to(reply, batch.from(slot)) {
            handler.send_failed(at, 1, error.kind() == io::ErrorKind::WouldBlock);
        }
    }
}
