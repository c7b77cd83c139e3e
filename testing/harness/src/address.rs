//! Addresses where nothing listens.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that Linux gives to clients.
const FIRST_PORT: u16 = 10_000;

/// Returns a loopback address where nothing listens and no other test will: each process has an IP
/// address of its own, derived from its id, and each call returns the next port.
///
/// Linux answers on all of 127.0.0.0/8 without configuration.
pub fn unused_address() -> SocketAddr {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    // Process ids have at most 22 bits. The first octet behind 127 begins at 64, apart from the
    // addresses that tests write out, such as 127.0.0.2.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, 64 | a, b, c);
    SocketAddr::from((ip, FIRST_PORT + CALLS.fetch_add(1, Ordering::Relaxed)))
}

/// Returns whether a TCP connection to `address` can be opened.
pub fn is_listening(address: SocketAddr) -> bool {
    // A client whose own port happens to be the one it connects to is connected to itself.
    TcpStream::connect(address).is_ok_and(|stream| stream.local_addr().ok() != Some(address))
}
