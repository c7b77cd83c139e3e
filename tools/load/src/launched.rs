//! A tracker that the load test starts itself and stops at the end.

use std::io;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::TrackerUrl;

/// Time for a tracker to start listening.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for it to exit on SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// A tracker's process; stopped on drop.
#[derive(Debug)]
pub struct LaunchedTracker(Child);

impl LaunchedTracker {
    /// Starts the program and waits until it listens at the URL's address, as far as that is
    /// observable. Its output goes to
    /// standard error.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot start, exits, or does not listen within 10 seconds.
    pub fn new(program: &str, words: &[String], url: &TrackerUrl) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(io::stderr());
        let mut launched =
            Self(command.spawn().with_context(|| format!("cannot start the tracker `{program}`"))?);
        let begun = Instant::now();
        while !launched.listens(url)? {
            if begun.elapsed() > STARTUP_TIMEOUT {
                bail!("the tracker `{program}` does not listen at {url} after {STARTUP_TIMEOUT:?}");
            }
            sleep(LOOK);
        }
        Ok(launched)
    }

    /// Returns its process ID.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    fn listens(&mut self, url: &TrackerUrl) -> Result<bool> {
        if let Some(status) = self.0.try_wait()? {
            bail!("the tracker exited before the load started: {status}");
        }
        Ok(match url.scheme {
            // A UDP socket does not show whether a process reads it; connect requests are repeated
            // until answered.
            client::Scheme::Udp => true,
            _ => TcpStream::connect_timeout(&url.address, LOOK * 10).is_ok(),
        })
    }
}

impl Drop for LaunchedTracker {
    /// Sends SIGTERM, then SIGKILL if it does not exit in time.
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Ok(pid) = i32::try_from(self.0.id()) {
            use nix::sys::signal::{Signal, kill};
            // It may have exited already; the process ID stays reserved until it is waited for.
            let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
            let begun = Instant::now();
            while begun.elapsed() < GRACE {
                if !matches!(self.0.try_wait(), Ok(None)) {
                    return;
                }
                sleep(LOOK);
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn start(script: &str, url: &str) -> Result<LaunchedTracker> {
        let url = if url.starts_with("udp") { TrackerUrl::udp(url) } else { TrackerUrl::http(url) };
        LaunchedTracker::new("sh", &["-c".into(), script.into()], &url.unwrap())
    }

    #[test]
    fn stops_the_tracker_when_dropped() {
        // One exits on SIGTERM, the other does not.
        for script in ["sleep 60 & wait", "exec sleep 60"] {
            let launched = start(script, "udp://127.0.0.1:1").unwrap();
            let pid = launched.pid();
            assert!(crate::Usage::times(pid).is_ok());
            drop(launched);
            assert!(crate::Usage::times(pid).is_err());
        }
    }

    #[test]
    fn waits_until_the_tracker_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        assert!(start("exec sleep 60", &url).is_ok());
        drop(listener);
        let error = start("exit 3", &url).unwrap_err().to_string();
        assert!(error.contains("exited before") && error.contains('3'), "{error}");
        let url = TrackerUrl::udp("udp://127.0.0.1:1").unwrap();
        let error = LaunchedTracker::new("/nowhere/tracker", &[], &url).unwrap_err().to_string();
        assert!(error.contains("cannot start the tracker `/nowhere/tracker`"), "{error}");
    }
}
