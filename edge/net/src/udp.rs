//! UDP: the seam between engines and handlers.
//!
//! One worker is one thread with its own sockets (usually a v4 and a v6 one) and its own handler.
//! [`run_udp`] receives what is there, up to [`BATCH_MAX`] datagrams, gives them to the handler
//! together, sends the replies that the handler wrote, and sleeps in the kernel when all sockets
//! are empty. It never waits for a full send buffer: replies that do not fit are dropped and
//! counted, so overload costs packets and neither memory nor time of those served.

mod batch;
#[cfg(target_os = "linux")]
mod control;
#[cfg(target_os = "linux")]
mod mmsg;
mod pace;
mod portable;
mod socket;
#[cfg(target_os = "linux")]
mod source_filter;

pub use batch::Batch;
pub use socket::{UdpOptions, UdpSocket, adopt_udp, bind_udp};

use std::io;
use std::sync::atomic::AtomicBool;

use primitives::IpPrefix;

/// Datagrams that go through the kernel together. Past 64 nothing is gained, and latency grows.
pub const BATCH_MAX: usize = 64;
/// Bytes of a request that are looked at.
pub const REQUEST_MAX: usize = 2560;
/// Bytes of a reply: what fits one Ethernet frame over IPv4.
pub const REPLY_MAX: usize = 1472;

/// How datagrams move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The best that this platform has.
    #[default]
    Auto,
    /// recvmmsg and sendmmsg: a system call for a batch. Linux. Replies of a socket bound to a
    /// wildcard address leave from the address that was asked.
    Mmsg,
    /// One system call for a datagram, on any platform. A host with several addresses should
    /// listen on each by name: from a wildcard address the kernel picks whence replies leave.
    Portable,
}

impl Engine {
    /// What [`Engine::Auto`] stands for here; others are themselves.
    pub fn resolve(self) -> Self {
        match self {
            Self::Auto if cfg!(target_os = "linux") => Self::Mmsg,
            Self::Auto => Self::Portable,
            chosen => chosen,
        }
    }

    /// The name in configuration and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mmsg => "mmsg",
            Self::Portable => "portable",
        }
    }
}

/// Networks that a worker's sockets can shut out: all of them are looked at for every datagram.
pub const SOURCE_FILTER_MAX: usize = 32;

/// What a worker does with datagrams. Sockets are numbered as they were given to [`run_udp`].
pub trait Handler {
    /// Looks at the datagrams of one socket, and writes replies into the batch.
    fn batch(&mut self, socket: usize, batch: &mut Batch);

    /// Called about four times a second, whether there is traffic or not, and once at the end.
    fn idle(&mut self);

    /// So many replies could not be sent. `blocked`: the send buffer was full; otherwise the kernel
    /// refused the datagram (no route, a forged source port 0, a firewall).
    fn send_failed(&mut self, socket: usize, datagrams: usize, blocked: bool);

    /// Asked after every batch: the networks whose datagrams shall be dropped from now on before they
    /// take time or room, if they are others than before. An engine that cannot do that does not ask;
    /// of more than [`SOURCE_FILTER_MAX`] some go on as they are.
    fn source_filter(&mut self) -> Option<Vec<IpPrefix>> {
        None
    }
}

/// Serves `sockets` on this thread until `stop` is set, which takes a quarter of a second at most.
/// Fails when the platform lacks the engine, or a socket turns out to be no usable socket at all;
/// errors of single datagrams never end it.
pub fn run_udp(
    sockets: Vec<UdpSocket>,
    engine: Engine,
    handler: &mut impl Handler,
    stop: &AtomicBool,
) -> io::Result<()> {
    match engine.resolve() {
        #[cfg(target_os = "linux")]
        Engine::Mmsg => mmsg::run(sockets, handler, stop),
        Engine::Portable => portable::run(sockets, handler, stop),
        other => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the UDP engine {} needs Linux: use auto or portable", other.label()),
        )),
    }
}

#[cfg(test)]
mod tests;
