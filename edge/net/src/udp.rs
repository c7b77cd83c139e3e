//! UDP: engines move datagrams, handlers answer them.
//!
//! A worker is a thread with its own sockets (usually one v4 and one v6) and its own handler.
//! [`run_udp`] receives up to [`BATCH_MAX`] waiting datagrams, passes them to the handler as a batch,
//! sends the handler's replies, and sleeps in the kernel when all sockets are empty. It never waits
//! for a full send buffer: replies that do not fit are dropped and counted. Overload therefore costs
//! packets, but neither memory nor the time of other clients.

mod area;
mod batch;
mod blocks;
mod coalescer;
#[cfg(target_os = "linux")]
mod control;
mod engine_loop;
mod losses;
#[cfg(target_os = "linux")]
mod mmsg;
mod portable;
mod socket;
mod socket_engine;
#[cfg(target_os = "linux")]
mod source_filter;

pub use batch::Batch;
pub use blocks::{BlockLists, SourceBlocks};
pub use losses::ReceiveLosses;
pub use socket::{UdpOptions, UdpSocket, bind_udp};

use std::io;
use std::sync::atomic::AtomicBool;

use primitives::IpPrefix;

use engine_loop::engine_loop;
use socket_engine::SocketEngine;

/// The parts of an engine, for engines in other crates.
pub mod engine {
    pub use super::area::{Area, Span};
    pub use super::batch::Slot;
    pub use super::engine_loop::{EngineIo, Round, engine_loop};
    pub use super::socket_engine::{SocketEngine, sleep_until_readable};
}

/// Maximum datagrams in a batch, which is one system call. Above 64 only latency grows.
pub const BATCH_MAX: usize = 64;
/// Maximum length of a request in bytes. Longer requests are truncated.
pub const REQUEST_MAX: usize = 2560;
/// Maximum length of a reply in bytes: the payload of an Ethernet frame over IPv4.
pub const REPLY_MAX: usize = 1472;

/// The system calls that move datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The fastest engine of this platform.
    #[default]
    Auto,
    /// recvmmsg and sendmmsg: one system call for each batch. Linux only. Replies from a wildcard
    /// socket leave from the address that the request was sent to.
    Mmsg,
    /// One system call for each datagram, on all platforms. A host with several addresses should bind
    /// each of them: the kernel chooses the source address of replies from a wildcard socket.
    Portable,
    /// [`Engine::Mmsg`] behind an XDP program that answers connects and drops what is not worth a socket's
    /// time. Linux only.
    Shield,
    /// [`Engine::Shield`] with AF_XDP sockets, which take datagrams past the kernel's UDP path. Linux only.
    Xdp,
}

impl Engine {
    /// Returns the engine that [`Engine::Auto`] selects on this platform; other engines are unchanged.
    pub fn resolve(self) -> Self {
        match self {
            Self::Auto if cfg!(target_os = "linux") => Self::Mmsg,
            Self::Auto => Self::Portable,
            chosen => chosen,
        }
    }

    /// Returns the name in configuration and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mmsg => "mmsg",
            Self::Portable => "portable",
            Self::Shield => "shield",
            Self::Xdp => "xdp",
        }
    }

    /// Returns whether the engine has an XDP program.
    pub fn has_program(self) -> bool {
        matches!(self, Self::Shield | Self::Xdp)
    }

    /// Returns the engine of the sockets: those behind an XDP program are served by the fastest one.
    pub fn of_sockets(self) -> Self {
        if self.has_program() { Self::Auto.resolve() } else { self.resolve() }
    }
}

/// Maximum number of blocked networks of a worker's sockets. The kernel compares every datagram with
/// all of them.
pub const SOURCE_FILTER_MAX: usize = 32;

/// Answers the datagrams of a worker. Sockets are numbered in the order of
/// [`UdpWorker::sockets`].
pub trait Handler {
    /// Reads the datagrams of one socket and writes replies into the batch.
    fn batch(&mut self, socket: usize, batch: &mut Batch);

    /// Called about four times a second, with or without traffic, and once at the end.
    fn idle(&mut self);

    /// Called when replies could not be sent. `blocked` is true if the send buffer was full. Otherwise
    /// the kernel refused the datagrams (no route, a forged source port 0, a firewall).
    fn send_failed(&mut self, socket: usize, datagrams: usize, blocked: bool);

    /// Called after every batch. Returns the networks whose datagrams the kernel should drop from now
    /// on, or `None` if they have not changed. Only the first [`SOURCE_FILTER_MAX`] are used. Engines
    /// without filters do not call this.
    fn source_filter(&mut self) -> Option<Vec<IpPrefix>> {
        None
    }
}

/// The sockets of a worker and their engine.
#[derive(Debug)]
pub struct UdpWorker {
    /// Its sockets.
    pub sockets: Vec<UdpSocket>,
    /// The engine of the sockets.
    pub engine: Engine,
    /// The list of networks that the XDP program should block, in addition to the sockets. `None` without a program.
    pub blocks: Option<SourceBlocks>,
}

impl UdpWorker {
    /// Returns a worker that has nothing but sockets.
    pub fn new(sockets: Vec<UdpSocket>, engine: Engine) -> Self {
        Self { sockets, engine, blocks: None }
    }
}

/// Serves `worker` on this thread until `stop` is set; it returns within a quarter of a second then.
///
/// # Errors
///
/// If the platform lacks the engine or if a socket is unusable. Errors of single datagrams do not end it.
pub fn run_udp(worker: UdpWorker, handler: &mut impl Handler, stop: &AtomicBool) -> io::Result<()> {
    engine_loop(&mut SocketEngine::new(worker)?, handler, stop)
}

#[cfg(test)]
mod tests;
