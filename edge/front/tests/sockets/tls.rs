//! HTTPS and wss, with rustls' own client.

mod handshakes;
mod https;
mod proxies;
mod wss;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use front::http::HttpOptions;
use rustls::ClientConnection;
use tracker::Networks;
use tracker::counters::{Counters, DropReason, Protocol};

use crate::testing::*;

/// A request of a leecher at `port`.
fn announce(port: u16, headers: &str) -> String {
    format!(
        "GET /announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-{port:012}&port={port}&left=1 \
         HTTP/1.1\r\nHost: tracker.test\r\n{headers}\r\n"
    )
}
