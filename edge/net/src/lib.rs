//! The interface to the kernel: sockets, UDP engines and process settings.
//!
//! Knows nothing of BitTorrent. UDP engines move batches of datagrams between sockets and a
//! [`Handler`]: [`Engine::Mmsg`] (Linux, fast), [`Engine::Portable`] (all platforms), and [`sim`] (no
//! sockets, for tests). All engines drive the same handler, in [the same loop](engine::engine_loop), which engines
//! of other crates can use.
//!
//! # Safety
//!
//! The modules that allow unsafe code are `option` (setsockopt, getsockopt), `udp/mmsg` (recvmmsg, sendmmsg),
//! `udp/socket_engine` (poll),
//! `udp/area` (views of the memory of a batch), and below `process`, `inherit` (descriptors by number), `launch`
//! (fork, dup2) and `priority` (sched_setattr). No pointer outlives the call that it is made for, so buffers are
//! ordinary boxes and nothing is self-referential; only `udp/area` may be given memory that is mapped, and keeps
//! its owner.

mod bind;
#[cfg(target_os = "linux")]
mod option;
pub mod process;
#[cfg(target_os = "linux")]
mod raw_sock_addr;
pub mod sim;
mod socket_owner;
mod tcp;
pub mod tls;
mod udp;

pub use bind::{BindError, InheritedSocket};
pub use socket_owner::SocketOwner;
pub use tcp::{TcpOptions, accept, bind_tcp, has_input, is_out_of_descriptors, receive, shutdown};
pub use udp::engine;
pub use udp::{
    BATCH_MAX, Batch, BlockLists, Engine, Handler, REPLY_MAX, REQUEST_MAX, ReceiveLosses,
    SOURCE_FILTER_MAX, SourceBlocks, UdpOptions, UdpSocket, UdpWorker, bind_udp, run_udp,
};
