//! Stand-ins for what needs Linux and the feature `program`, and which others call in each build.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use net::{Handler, UdpWorker, run_udp};

/// The AF_XDP sockets of a worker: none.
#[derive(Default)]
pub struct WorkerQueues(());

/// Replaces the program of a link.
///
/// # Errors
///
/// Always: there are no programs.
pub fn exchange_program(_: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Serves the sockets of `worker`: see [`run_udp`].
///
/// # Errors
///
/// As [`run_udp`].
pub fn run(
    worker: UdpWorker,
    _: WorkerQueues,
    handler: &mut impl Handler,
    stop: &AtomicBool,
) -> io::Result<()> {
    run_udp(worker, handler, stop)
}
