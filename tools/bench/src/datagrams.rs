//! The two datagrams that benchmarks send themselves (BEP 15).

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result};

/// Bytes of an announce.
pub(crate) const ANNOUNCE: usize = 98;
/// Asks for a connection id.
pub(crate) const CONNECT: [u8; 16] =
    [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
/// The action of an announce and of its response, but not of an error.
pub(crate) const ANNOUNCED: [u8; 4] = [0, 0, 0, 1];

/// Asks for a connection id. The socket must be connected to the tracker.
pub(crate) fn connect(socket: &UdpSocket) -> Result<u64> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send(&CONNECT)?;
    let mut response = [0; 16];
    socket.recv(&mut response).context("no connection id")?;
    let [.., a, b, c, d, e, f, g, h] = response;
    Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// Writes the announce of a leecher that wants no peers.
pub(crate) fn announce(connection_id: u64, transaction: u32, info_hash: [u8; 20]) -> Vec<u8> {
    let mut packet = connection_id.to_be_bytes().to_vec();
    packet.extend(ANNOUNCED);
    packet.extend(transaction.to_be_bytes());
    packet.extend(info_hash);
    packet.extend(b"-XX0001-000000000000");
    // Downloaded, left, uploaded; event, address, key, number of peers; port.
    packet.extend([0, 1, 0].map(u64::to_be_bytes).as_flattened());
    packet.extend([0_u32; 4].map(u32::to_be_bytes).as_flattened());
    packet.extend(6881_u16.to_be_bytes());
    packet
}
