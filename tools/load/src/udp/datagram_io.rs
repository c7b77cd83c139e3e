//! Datagrams in batches: on Linux many with a system call, and many of the same length with one run
//! through the network stack; elsewhere one by one.

#[cfg(target_os = "linux")]
#[path = "datagram_io/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "datagram_io/portable.rs"]
mod system;

pub(super) use system::{DatagramIo, Poller, Socket};

/// Datagrams received at once.
#[cfg(target_os = "linux")]
const BATCH: usize = 64;
/// Bytes of an answer. The largest is that of an announce over IPv6 with 200 peers: 3620.
const DATAGRAM_BUFFER: usize = 4096;

/// What is due within so short a time is waited for awake: a sleep may take longer.
#[cfg(target_os = "linux")]
const SPIN_BEFORE: std::time::Duration = std::time::Duration::from_micros(60);
