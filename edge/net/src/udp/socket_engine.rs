//! The engine of a worker's UDP sockets: polls them, and moves batches by the system calls that its kind has.
//!
//! # Safety
//!
//! poll(2) gets an array that lives until it returns.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use primitives::IpPrefix;

use super::engine_loop::{EngineIo, Round};
#[cfg(target_os = "linux")]
use super::mmsg::MmsgIo;
use super::{Batch, Engine, Handler, SourceBlocks, UdpSocket, UdpWorker, portable};

/// The sockets of a worker.
pub struct SocketEngine {
    sockets: Vec<UdpSocket>,
    blocks: Option<SourceBlocks>,
    io: BatchIo,
    /// An entry for each socket: what the last poll found.
    polls: Vec<libc::pollfd>,
}

/// The system calls that move a batch.
enum BatchIo {
    #[cfg(target_os = "linux")]
    Mmsg(MmsgIo),
    Portable(Batch),
}

impl SocketEngine {
    /// Returns the engine of the sockets of `worker`.
    ///
    /// # Errors
    ///
    /// If the platform lacks the engine.
    pub fn new(worker: UdpWorker) -> io::Result<Self> {
        let UdpWorker { sockets, blocks, engine } = worker;
        let io = match engine.of_sockets() {
            #[cfg(target_os = "linux")]
            Engine::Mmsg => BatchIo::Mmsg(MmsgIo::new()),
            Engine::Portable => BatchIo::Portable(Batch::new()),
            other => {
                let text =
                    format!("UDP engine {} needs Linux: use auto or portable", other.label());
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        // All may have something to read already.
        let poll_of = |socket: &UdpSocket| libc::pollfd {
            fd: socket.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: libc::POLLIN,
        };
        let polls = sockets.iter().map(poll_of).collect();
        Ok(Self { sockets, blocks, io, polls })
    }

    /// Returns an entry for poll(2) for each socket.
    pub fn polls(&self) -> &[libc::pollfd] {
        &self.polls
    }
}

impl EngineIo for SocketEngine {
    fn is_portable(&self) -> bool {
        matches!(self.io, BatchIo::Portable(_))
    }

    fn poll_once(&mut self, handler: &mut impl Handler) -> io::Result<Round> {
        let mut round = Round::default();
        for (at, (socket, poll)) in self.sockets.iter().zip(&mut self.polls).enumerate() {
            if poll.revents != 0 {
                round.add_batch(match &mut self.io {
                    #[cfg(target_os = "linux")]
                    BatchIo::Mmsg(mmsg) => mmsg.exchange(at, socket, handler)?,
                    BatchIo::Portable(batch) => portable::exchange(batch, at, socket, handler)?,
                });
            }
            // Without a poll before the next call, any socket may have something to read.
            poll.revents = libc::POLLIN;
        }
        Ok(round)
    }

    fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        sleep_until_readable(&mut self.polls, wait)
    }

    fn block_sources(&mut self, networks: &[IpPrefix]) {
        if let Some(blocks) = &self.blocks {
            blocks.set(networks);
        }
        #[cfg(target_os = "linux")]
        for socket in &self.sockets {
            // On failure the handler keeps dropping these datagrams itself.
            let _ = socket.source_filter(networks);
        }
    }
}

/// Sleeps until one of the descriptors is readable or has an error, for at most `wait`. Sets `revents`; a signal
/// that interrupts the sleep leaves them as they were.
///
/// # Errors
///
/// If the kernel has no memory for it, or there are more entries than the process may have descriptors.
pub fn sleep_until_readable(polls: &mut [libc::pollfd], wait: Duration) -> io::Result<()> {
    // Round up, so that a wait of less than a millisecond does not become a busy loop.
    let wait_ms = i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: the length is that of the array, which lives until the call returns.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, wait_ms) };
    if ready >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}
