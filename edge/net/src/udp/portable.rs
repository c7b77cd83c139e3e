//! One system call for each datagram, on any platform.

use super::{Batch, Handler, UdpSocket};
use std::io;
use std::net::UdpSocket as Socket;

/// Serves the datagrams that wait in `socket`, up to a full batch. Returns their number.
pub(super) fn exchange(
    batch: &mut Batch,
    at: usize,
    socket: &UdpSocket,
    handler: &mut impl Handler,
) -> io::Result<usize> {
    batch.clear(socket.local_addr());
    receive(&socket.socket, batch)?;
    if !batch.is_empty() {
        handler.batch(at, batch);
        send(at, &socket.socket, batch, handler);
    }
    Ok(batch.len())
}

/// Receives waiting datagrams, up to a full batch.
fn receive(socket: &Socket, batch: &mut Batch) -> io::Result<()> {
    while let Some(place) = batch.next_request_buffer() {
        match socket.recv_from(place) {
            Ok((len, from)) => batch.push(from, len, false),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => break,
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => return Err(error),
                // An error about an earlier reply.
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
