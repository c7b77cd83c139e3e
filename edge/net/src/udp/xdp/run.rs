//! The engine's loop.

/// The AF_XDP sockets of a worker.
#[derive(Debug)]
pub struct WorkerQueues {}
