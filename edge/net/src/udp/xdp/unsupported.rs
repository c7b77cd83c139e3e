//! Stand-ins on other systems for what needs Linux.

/// The AF_XDP sockets of a worker, which cannot exist here.
#[derive(Debug)]
pub enum WorkerQueues {}
