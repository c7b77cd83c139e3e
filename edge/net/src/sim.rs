//! An engine without sockets: datagrams are handled at once, on the caller's thread.

use crate::udp::{Batch, Handler, REQUEST_MAX};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The destination of all datagrams.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6969);

/// Passes datagrams to a handler as if socket number `socket` had received them on the loopback
/// address, in full batches. Returns the replies in order, each with its destination.
pub fn exchange(
    handler: &mut impl Handler,
    socket: usize,
    datagrams: &[(SocketAddr, &[u8])],
) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut batch = Batch::new();
    let mut replies = Vec::new();
    for part in datagrams.chunks(crate::BATCH_MAX) {
        batch.clear(LOCAL);
        for (from, bytes) in part {
            let Some(place) = batch.next_request_buffer() else { break };
            let kept = bytes.len().min(REQUEST_MAX);
            place[..kept].copy_from_slice(&bytes[..kept]);
            batch.push(*from, bytes.len(), false);
        }
        handler.batch(socket, &mut batch);
        for at in 0..batch.len() {
            if !batch.reply(at).is_empty() {
                replies.push((batch.from(at), batch.reply(at).to_vec()));
            }
        }
    }
    handler.idle();
    replies
}
