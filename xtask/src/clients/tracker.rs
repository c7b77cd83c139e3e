//! The tracker under test, and what it says about itself.

use super::case::wait_for;
use super::torrent::Torrent;
use crate::workspace::release;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// The default listeners: wildcards, as most operators will run it.
const HTTP: &str = "127.0.0.1:6969";
const ADMIN: &str = "127.0.0.1:6970";
const READY_MAX: Duration = Duration::from_secs(30);

/// A running tracker.
pub(super) struct Tracker {
    child: Child,
}

/// What a scrape says about a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) complete: u64,
    pub(super) downloaded: u64,
    pub(super) incomplete: u64,
}

/// The program: the release build, or what `TIDEGATE_BINARY` names.
pub(super) fn binary() -> PathBuf {
    match std::env::var_os("TIDEGATE_BINARY") {
        Some(path) => path.into(),
        None => release().join("tidegate"),
    }
}

impl Tracker {
    /// Starts it with defaults, but for what `configuration` says, and waits until it serves.
    pub(super) fn start(folder: &Path, configuration: &str) -> Result<Self> {
        let path = folder.join("tidegate.toml");
        fs::write(&path, configuration)?;
        let log = File::create(folder.join("tracker.log"))?;
        let mut command = Command::new(binary());
        command.args(["serve", "--config"]).arg(path).stderr(log.try_clone()?).stdout(log);
        let tracker = Self { child: command.spawn().context("the tracker does not start")? };
        wait_for(READY_MAX, "the tracker to be ready", || {
            Ok(http_get(ADMIN, "/health/ready")?.starts_with(b"HTTP/1.1 200"))
        })?;
        Ok(tracker)
    }

    /// Has it read its configuration again.
    pub(super) fn reload(&self) -> Result<()> {
        self.signal("-HUP")
    }

    /// Scrapes the torrent, at a private tracker with a key.
    pub(super) fn counts(&self, torrent: &Torrent, key: Option<&str>) -> Result<Counts> {
        let hash: String = torrent.info_hash.iter().map(|byte| format!("%{byte:02x}")).collect();
        let path = key.map_or_else(|| "/scrape".into(), |key| format!("/scrape/{key}"));
        let reply = http_get(HTTP, &format!("{path}?info_hash={hash}"))?;
        let number = |key: &str| bencoded_number(&reply, key).with_context(|| format!("no {key}"));
        Ok(Counts {
            complete: number("complete")?,
            downloaded: number("downloaded")?,
            incomplete: number("incomplete")?,
        })
    }

    /// The sum of a metric over all lines that have these labels.
    pub(super) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        Ok(metric(ADMIN, name, labels)? as u64)
    }

    /// Asks it to end, as a service manager would; it must do so with 0.
    pub(super) fn stop(mut self) -> Result<()> {
        self.signal("-TERM")?;
        let ended = wait_for(Duration::from_secs(20), "the tracker to end", || {
            Ok(self.child.try_wait()?.is_some())
        });
        ended?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the tracker ended with {status} on SIGTERM");
        Ok(())
    }

    fn signal(&self, name: &str) -> Result<()> {
        let id = self.child.id().to_string();
        let sent = Command::new("sh").args(["-c", "kill $1 \"$0\"", &id, name]).status()?;
        ensure!(sent.success(), "the tracker was gone before it was told {name}");
        Ok(())
    }
}

/// The sum of a metric over all lines that have these labels, from the admin listener at `admin`.
pub(crate) fn metric(admin: &str, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
    let reply = String::from_utf8(http_get(admin, "/metrics")?)?;
    Ok(reply.lines().filter_map(|line| metric_value(line, name, labels)).sum())
}

fn http_get(address: &str, path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(reply)
}

/// The integer behind a key, wherever it stands.
fn bencoded_number(bytes: &[u8], key: &str) -> Option<u64> {
    let key = format!("{}:{key}i", key.len());
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes())?;
    let digits = bytes[at + key.len()..].split(|byte| *byte == b'e').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The value of a line of Prometheus text, if it is of this metric and has these labels.
fn metric_value(line: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let (series, value) = line.rsplit_once(' ')?;
    let found = series.strip_prefix(name)?;
    let found = match found {
        "" => found,
        _ => found.strip_prefix('{')?.strip_suffix('}')?,
    };
    let has = |(key, value): &(&str, &str)| {
        found.split(',').any(|one| one == format!("{key}=\"{value}\""))
    };
    labels.iter().all(has).then(|| value.parse().ok())?
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

    #[test]
    fn metrics_are_picked_by_labels() {
        let line = "x_total{family=\"v4\",kind=\"announce\"} 3";
        assert_eq!(metric_value(line, "x_total", &[("kind", "announce")]), Some(3.0));
        assert_eq!(metric_value(line, "x_total", &[("kind", "scrape")]), None);
        assert_eq!(metric_value(line, "x", &[]), None);
        assert_eq!(metric_value("x_seconds 0.5", "x_seconds", &[]), Some(0.5));
        assert_eq!(metric_value("# HELP x_total y", "x_total", &[]), None);
    }
}
