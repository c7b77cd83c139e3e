//! HTTP, and what is the same over TLS.

mod browsers;
mod lifetime;
mod limits;
mod panics;
mod proxies;
mod requests;
mod seats;
mod turns;

use std::io::{Read, Write};
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use front::http::{ForwardedHeader, HttpOptions, MemoryLimits};
use tracker::Networks;
use tracker::counters::{DropReason, Protocol};
use types::Refusal;

use crate::testing::*;

/// Sends requests, and reads no response, until the server closes the connection.
fn write_without_reading<S: Read + Write + Send + 'static>(
    mut client: Client<S>,
) -> JoinHandle<()> {
    let requests = get("/scrape?x", "").repeat(1000);
    spawn(move || while client.0.send(&requests).is_ok() {})
}
