//! A tracker whose management API a task uses.

use anyhow::{Context, Result, ensure};
use harness::{Tracker, http};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A token with full access, which the tracker gets by its environment.
pub(crate) const TOKEN: &str = "tg_xtaskxtaskxtaskxtaskxtaskxtask01";

/// A running tracker.
pub(crate) struct Served {
    tracker: Tracker,
    /// Where it takes announces over HTTP.
    pub(crate) announce: SocketAddr,
    /// Where its API is.
    pub(crate) admin: SocketAddr,
}

impl Served {
    /// Starts `program` on loopback ports of the system's choice, with records and log in `folder` and
    /// `more` behind its `[state]` section, and waits until it serves.
    pub(crate) fn start(program: &Path, folder: &Path, more: &str) -> Result<Self> {
        ensure!(program.is_file(), "no {}: cargo build --release first", program.display());
        let state = folder.join("state");
        let config = format!(
            "[udp]\nlisten = []\n[http]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n\
             requests_per_s = 0\nwrong_tokens_per_min = 1000000\nwebhook_ports = [\"443\"]\n[state]\ndir = {state:?}\n{more}"
        );
        let mut command = Command::new(program);
        command.env("TIDEGATE_ADMIN_TOKEN", TOKEN).arg("serve");
        let tracker = Tracker::start(command, folder, &config)?;
        let loopback = Ipv4Addr::LOCALHOST.into();
        let address = |kind| tracker.address(kind, loopback).context("a listener is missing");
        let (announce, admin) = (address("http")?, address("admin")?);
        Ok(Self { tracker, announce, admin })
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        harness::is_alive(self.tracker.pid())
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.tracker.kill();
    }
}

/// Sends a request (method and target) with [`TOKEN`], and with JSON as its body unless that is empty.
pub(crate) fn request(
    address: SocketAddr,
    request: &str,
    body: &str,
) -> io::Result<http::Response> {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    http::request(address, request, &headers, body.as_bytes())
}
