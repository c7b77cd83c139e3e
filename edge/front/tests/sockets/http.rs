//! HTTP, and what is the same over TLS.

mod browsers;
mod lifetime;
mod limits;
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
