//! The driver against real NATS servers, with stores instead of trackers.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod bad_input;
mod fan_out;
mod faults;
mod node;
mod origins;
mod repairs;
mod replay;
mod replication;
#[path = "../rows/mod.rs"]
mod rows;

use harness::nats::{self, Nats};

/// Returns servers with streams, or `None` if they cannot be started here.
fn servers(count: usize) -> Option<Nats> {
    if let Some(obstacle) = nats::obstacle() {
        eprintln!("skipped {obstacle}");
        return None;
    }
    let nats = Nats::start(count).unwrap();
    node::make_stream(&nats, count);
    Some(nats)
}
