//! HTTP, and what is the same over TLS.

mod browsers;
mod lifetime;
mod limits;
mod memory;
mod panics;
mod proxies;
mod requests;
mod seats;
mod turns;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use front::http::{ForwardedHeader, HttpOptions, MemoryLimits};
use tracker::Networks;
use tracker::counters::{DropReason, Protocol};
use types::Refusal;

use crate::testing::*;

/// The target of an announce by a leecher at `port` with all that is required, and `more`.
fn announce(port: u16, more: &str) -> String {
    format!(
        "/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-{port:012}&port={port}\
         &uploaded=0&downloaded=0&left=1{more}"
    )
}

/// A request for `target`; each of `headers` ends with `\r\n`.
fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n{headers}\r\n")
}
