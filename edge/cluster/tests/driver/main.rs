//! The driver against real NATS servers, with stores instead of trackers.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod bad_input;
mod faults;
mod node;
mod replay;
mod replication;

use harness::nats::{self, Nats};

/// Returns servers, or `None` if they cannot be started here.
fn servers(count: usize) -> Option<Nats> {
    if let Some(obstacle) = nats::obstacle() {
        eprintln!("skipped {obstacle}");
        return None;
    }
    Some(Nats::start(count).unwrap())
}
