//! Sends and receives datagrams in batches. On Linux one system call moves many, and many of equal
//! length pass the
//! network stack as one; elsewhere they are moved one by one.

#[cfg(target_os = "linux")]
#[path = "datagram_io/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "datagram_io/portable.rs"]
mod system;

pub(super) use system::{DatagramIo, Poller, Socket};

/// Datagrams per receive call.
#[cfg(target_os = "linux")]
const BATCH: usize = 64;
/// Buffer size of a response. The largest is an announce response over IPv6 with 200 peers: 3620
/// bytes.
const DATAGRAM_BUFFER: usize = 4096;

/// Spin for the last part of a wait, because a sleep may take this much longer.
#[cfg(target_os = "linux")]
const SPIN_BEFORE: std::time::Duration = std::time::Duration::from_micros(60);
