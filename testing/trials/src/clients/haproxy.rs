//! HAProxy in front of the tracker. It forwards bytes and names the client in a PROXY header, without which
//! the peers could not learn of each other.

use super::network::Family::{V4, V6};
use anyhow::{Context, Result};
use harness::{PATIENCE, Process, wait_for};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// Its port, next to the tracker's.
pub(super) const PORT: u16 = 8080;

/// Its options for the header that it sends first on each connection: version 1, text, and 2, binary.
pub(super) const V1: &str = "send-proxy";
pub(super) const V2: &str = "send-proxy-v2";

/// The tracker's configuration for it. HAProxy connects from the address that it connects to.
pub(super) fn trust() -> String {
    format!("[http]\nproxy_protocol = \"v1v2\"\ntrusted_proxies = [\"{}\"]\n", V4.address(1))
}

/// Starts it, and waits until it listens.
pub(super) fn start(folder: &Path, option: &str) -> Result<Process> {
    let (v4, v6) = (V4.address(1), V6.address(1));
    let configuration = format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen tracker\n bind {v4}:{PORT}\n bind [{v6}]:{PORT}\n server one {v4}:6969 {option}\n"
    );
    let path = folder.join("haproxy.cfg");
    fs::write(&path, configuration)?;
    let mut command = Command::new("/usr/sbin/haproxy");
    command.args(["-db", "-f"]).arg(path);
    let haproxy = Process::start_with_one_log(command, folder, "haproxy");
    let haproxy = haproxy.context("cargo xtask setup")?;
    // A client whose first connection is refused tries again only after a minute.
    wait_for(PATIENCE, "HAProxy to listen", || {
        Ok([v4, v6].iter().all(|ip| TcpStream::connect((*ip, PORT)).is_ok()))
    })?;
    Ok(haproxy)
}
