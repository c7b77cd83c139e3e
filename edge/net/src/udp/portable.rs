//! One system call for each datagram, on any platform that mio supports.

use super::idle_timer::IdleTimer;
use super::{Batch, Handler, UdpSocket};
use mio::net::UdpSocket as Socket;
use mio::{Events, Interest, Poll, Token};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// See [`super::run_udp`].
pub(super) fn run(
    sockets: Vec<UdpSocket>,
    handler: &mut impl Handler,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(sockets.len().max(1));
    let with_address = |socket: UdpSocket| (socket.local_addr(), Socket::from_std(socket.socket));
    let mut sockets: Vec<(SocketAddr, Socket)> = sockets.into_iter().map(with_address).collect();
    for (at, (_, socket)) in sockets.iter_mut().enumerate() {
        poll.registry().register(socket, Token(at), Interest::READABLE)?;
    }
    let mut batch = Batch::new();
    let mut idle_timer = IdleTimer::start();
    while !stop.load(Ordering::Relaxed) {
        let mut quiet = true;
        for (at, (local, socket)) in sockets.iter().enumerate() {
            batch.clear(*local);
            receive(socket, &mut batch)?;
            if !batch.is_empty() {
                quiet = false;
                handler.batch(at, &mut batch);
                send(at, socket, &batch, handler);
            }
        }
        let wait = idle_timer.poll(Instant::now(), handler);
        // mio reports readiness only once, so sleep only after every socket was found empty.
        if quiet {
            match poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
    handler.idle();
    Ok(())
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
