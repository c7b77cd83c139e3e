//! Upgrades: one process hands its links and AF_XDP sockets to the next.
//!
//! ```text
//! old                                           new
//!  ├ links, sockets, memory of frames ──────────▶ maps and program of its own; its queues are parked
//!  │◀──────────────────────────────────── ready ─┤
//!  ├ steers no more, parks its queues            │ (datagrams come to the UDP sockets, connects are answered)
//!  ├ go ────────────────────────────────────────▶ exchanges the programs, then serves the queues
//!  └ ends                                         └
//! ```
//!
//! Rings and chunks stay as they are: between two turns of a worker no chunk is in hand. Up to `go` the old
//! process can go on where it was. A process that takes over is in its sandbox when it exchanges the
//! programs, so its launcher does it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::bpf;
use super::maps::Steering;
use super::run::QueueStatus;
use net::process::{DESCRIPTOR_PREFIXES, InheritedSockets};

const LINK: &str = DESCRIPTOR_PREFIXES[0];
const SOCKET: &str = DESCRIPTOR_PREFIXES[1];
const MEMORY: &str = DESCRIPTOR_PREFIXES[2];
/// The time between two checks that the workers have parked.
const POLL_PERIOD: Duration = Duration::from_millis(1);

/// Descriptors that the old process has handed over, by name.
#[derive(Debug, Default)]
pub struct InheritedXdp(HashMap<String, OwnedFd>);

/// A link that is closed early if its program cannot be exchanged.
pub(super) type SharedLink = Arc<Mutex<Option<OwnedFd>>>;

/// The old process's side.
pub struct HandOver {
    pub(super) steering: Steering,
    /// The status of each AF_XDP socket. Without any, datagrams go to the UDP sockets.
    pub(super) queues: Vec<Arc<QueueStatus>>,
}

/// The new process's side.
#[derive(Default)]
pub struct TakeOver {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) queues: Vec<Arc<QueueStatus>>,
}

/// A link with the program that it gets.
pub(super) struct Exchange {
    pub(super) interface: String,
    pub(super) link: SharedLink,
    pub(super) program: OwnedFd,
}

impl InheritedXdp {
    /// Takes the inherited descriptors of the XDP program.
    pub fn from_inherited(inherited: &mut InheritedSockets) -> Self {
        Self(inherited.take_descriptors().into_iter().collect())
    }

    pub(super) fn has_link(&self, interface: &str) -> bool {
        self.0.contains_key(&link_name(interface))
    }

    /// Takes the link of an interface, unless it is that of an earlier interface of the same name.
    pub(super) fn take_link(&mut self, interface: &str, ifindex: u32) -> Option<OwnedFd> {
        let link = self.0.remove(&link_name(interface))?;
        (bpf::link_ifindex(link.as_fd()).ok()? == ifindex).then_some(link)
    }

    /// Takes the AF_XDP socket of a queue, and the memory of its frames.
    pub(super) fn take_socket(
        &mut self,
        interface: &str,
        queue: u32,
    ) -> Option<(OwnedFd, OwnedFd)> {
        let [socket, memory] = socket_names(interface, queue);
        Some((self.0.remove(&socket)?, self.0.remove(&memory)?))
    }
}

/// Returns the name of an interface's link among inherited descriptors.
pub(super) fn link_name(interface: &str) -> String {
    format!("{LINK}{interface}")
}

/// Returns the names of a queue's socket and memory.
pub(super) fn socket_names(interface: &str, queue: u32) -> [String; 2] {
    [SOCKET, MEMORY].map(|prefix| format!("{prefix}{interface}-{queue}"))
}

/// Returns true if a descriptor with this name keeps a program attached.
pub fn is_link_name(name: &str) -> bool {
    name.starts_with(LINK)
}

impl HandOver {
    /// Directs no more datagrams to AF_XDP sockets, and waits until the workers leave them alone: the
    /// process that takes over may serve them then. Returns false, and continues as before, if a worker does
    /// not within `timeout`.
    pub fn begin(&self, timeout: Duration) -> bool {
        self.steering.set(false);
        self.queues.iter().for_each(|queue| queue.park(true));
        let deadline = Instant::now() + timeout;
        let is_left = |queue: &Arc<QueueStatus>| queue.is_parked() || queue.is_closed();
        while !self.queues.iter().all(is_left) {
            if Instant::now() >= deadline {
                self.cancel();
                return false;
            }
            thread::sleep(POLL_PERIOD);
        }
        true
    }

    /// Continues as before.
    pub fn cancel(&self) {
        self.queues.iter().for_each(|queue| queue.park(false));
        self.steering.set(!self.queues.is_empty());
    }
}

impl TakeOver {
    /// Exchanges the programs by `exchange`, which gets a link and a program, and has the workers serve the
    /// AF_XDP sockets. Call it when the old process leaves them alone. Returns a sentence about each
    /// interface whose program cannot be exchanged; it has none when the old process has ended.
    pub fn complete(
        self,
        exchange: impl Fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>,
    ) -> Vec<String> {
        let mut failures = Vec::new();
        for Exchange { interface, link, program } in self.exchanges {
            let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = link.as_ref() else { continue };
            if let Err(error) = exchange(open.as_fd(), program.as_fd()) {
                failures.push(format!("{interface} is served without the XDP program: {error}"));
                *link = None;
            }
        }
        self.queues.iter().for_each(|queue| queue.park(false));
        failures
    }
}
