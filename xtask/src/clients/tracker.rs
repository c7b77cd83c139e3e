//! The tracker under test.

use super::torrent::Torrent;
use crate::workspace::release;
use anyhow::{Context, Result, ensure};
use harness::{Signal, http, metrics};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

// The default listeners: each case has a network of its own, where their ports are free.
const HTTP: SocketAddr = loopback(6969);
/// Its admin listener.
pub(super) const ADMIN: SocketAddr = loopback(6970);
/// A token with full access to its API and dashboard.
pub(super) const ADMIN_TOKEN: &str = "tg_TheTokenOfTheRealClientTests0123";

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// A running tracker.
pub(super) struct Tracker(harness::Tracker);

/// What a scrape says about a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) complete: u64,
    pub(super) downloaded: u64,
    pub(super) incomplete: u64,
}

/// The program: the release build, or what `TIDEGATE_BINARY` names.
pub(crate) fn binary() -> PathBuf {
    match std::env::var_os("TIDEGATE_BINARY") {
        Some(path) => path.into(),
        None => release().join("tidegate"),
    }
}

impl Tracker {
    /// Starts it with defaults, but for what `configuration` says, and waits until it serves. Its log is
    /// `tracker.log` in `folder`.
    pub(super) fn start(folder: &Path, configuration: &str) -> Result<Self> {
        let mut command = Command::new(binary());
        command.arg("serve").env("TIDEGATE_ADMIN_TOKEN", ADMIN_TOKEN);
        Ok(Self(harness::Tracker::start(command, folder, configuration)?))
    }

    /// Has it read its configuration again.
    pub(super) fn reload(&self) -> Result<()> {
        self.0.signal(Signal::SIGHUP)
    }

    /// Scrapes the torrent, at a private tracker with a key.
    pub(super) fn counts(&self, torrent: &Torrent, key: Option<&str>) -> Result<Counts> {
        let hash: String = torrent.info_hash.iter().map(|byte| format!("%{byte:02x}")).collect();
        let path = key.map_or_else(|| "/scrape".into(), |key| format!("/scrape/{key}"));
        let reply = http::get(HTTP, &format!("{path}?info_hash={hash}"))?.body;
        let number = |key: &str| bencoded_number(&reply, key).with_context(|| format!("no {key}"));
        Ok(Counts {
            complete: number("complete")?,
            downloaded: number("downloaded")?,
            incomplete: number("incomplete")?,
        })
    }

    /// The sum of a metric over all series that have these labels.
    pub(super) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        Ok(self.0.metric(name, labels)? as u64)
    }

    /// Stops it as a service manager would. Fails unless it ends with exit code 0.
    pub(super) fn stop(mut self) -> Result<()> {
        self.0.signal(Signal::SIGTERM)?;
        let status = self.0.wait_for_end()?;
        ensure!(status.success(), "the tracker ended with {status} on SIGTERM");
        Ok(())
    }
}

/// The sum of a metric over all series that have these labels, from the admin listener at `admin`.
pub(crate) fn metric(admin: &str, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
    Ok(metrics::sum(&http::get(admin.parse()?, "/metrics")?.text(), name, labels))
}

/// The integer behind a key, wherever it stands.
fn bencoded_number(bytes: &[u8], key: &str) -> Option<u64> {
    let key = format!("{}:{key}i", key.len());
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes())?;
    let digits = bytes[at + key.len()..].split(|byte| *byte == b'e').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_bencode() {
        let reply = b"d5:filesd20:\xff...d8:completei2e10:downloadedi1e10:incompletei0eeee";
        assert_eq!(bencoded_number(reply, "complete"), Some(2));
        assert_eq!(bencoded_number(reply, "incomplete"), Some(0));
        assert_eq!(bencoded_number(reply, "peers"), None);
    }
}
