//! HAProxy in front of the tracker. It forwards bytes and names the client in a PROXY header, without which
//! the peers could not learn of each other.

use super::pair::Family::{V4, V6};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// Its port, next to the tracker's.
pub(super) const PORT: u16 = 8080;

/// The header that it sends first on each connection, by HAProxy's option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header {
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
}

/// The tracker's configuration for it. HAProxy connects from the address that it connects to.
pub(super) fn trust() -> String {
    format!("[http]\nproxy_protocol = \"v1v2\"\ntrusted_proxies = [\"{}\"]\n", V4.address(1))
}

/// Starts it. It runs until its namespace ends.
pub(super) fn start(folder: &Path, header: Header) -> Result<()> {
    let (v4, v6) = (V4.address(1), V6.address(1));
    let option = match header {
        Header::V1 => "send-proxy",
        Header::V2 => "send-proxy-v2",
    };
    let configuration = format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen tracker\n bind {v4}:{PORT}\n bind [{v6}]:{PORT}\n server one {v4}:6969 {option}\n"
    );
    let path = folder.join("haproxy.cfg");
    fs::write(&path, configuration)?;
    let log = File::create(folder.join("haproxy.log"))?;
    let mut command = Command::new("/usr/sbin/haproxy");
    command.args(["-db", "-f"]).arg(path).stdin(Stdio::null());
    command.stderr(log.try_clone()?).stdout(log);
    command.spawn().context("HAProxy does not start; cargo xtask setup")?;
    Ok(())
}
