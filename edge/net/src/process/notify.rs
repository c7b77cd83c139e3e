//! Notifications to the service manager: systemd's protocol (sd_notify(3)).
//!
//! Implemented here because it is only a datagram of text. The socket is opened at startup and kept, so
//! that the sandbox does not have to allow opening one.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A socket to the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    to: SocketAddr,
}

impl Notifier {
    /// Connects to the socket that NOTIFY_SOCKET names. Returns `None` if the variable is not set.
    ///
    /// # Errors
    ///
    /// If the variable names no address of a socket, or no socket can be opened.
    pub fn from_environment() -> io::Result<Option<Self>> {
        let Some(to) = std::env::var_os("NOTIFY_SOCKET").filter(|to| !to.is_empty()) else {
            return Ok(None);
        };
        // A socket's path, or an abstract name after `@` (Linux).
        let to = match to.as_encoded_bytes().strip_prefix(b"@") {
            #[cfg(target_os = "linux")]
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                SocketAddr::from_abstract_name(name)?
            }
            _ => SocketAddr::from_pathname(to)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A slow service manager must not block this process.
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, to }))
    }

    /// Sends `lines`: assignments such as `READY=1`, one on each line.
    ///
    /// # Errors
    ///
    /// If the service manager is gone, or does not keep up.
    pub fn notify(&self, lines: &str) -> io::Result<()> {
        self.socket.send_to_addr(lines.as_bytes(), &self.to).map(|_| ())
    }
}

/// Returns the interval within which the service manager expects `WATCHDOG=1`, if it has a watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    watchdog(|name| std::env::var(name).ok(), std::process::id())
}

fn watchdog(variable: impl Fn(&str) -> Option<String>, own_pid: u32) -> Option<Duration> {
    let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(own_pid));
    let time_us = variable("WATCHDOG_USEC")?.parse().ok().filter(|time_us| *time_us > 0)?;
    is_ours.then(|| Duration::from_micros(time_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_watchdog_interval_of_own_pid_only() {
        let time = |pid: Option<&str>, time: Option<&str>| {
            let of = |name: &str| if name == "WATCHDOG_PID" { pid } else { time };
            watchdog(|name| of(name).map(String::from), 7)
        };
        assert_eq!(time(None, Some("2000000")), Some(Duration::from_secs(2)));
        assert_eq!(time(Some("7"), Some("2000000")), Some(Duration::from_secs(2)));
        assert_eq!(time(Some("8"), Some("2000000")), None);
        assert_eq!(time(Some("7"), Some("0")), None);
        assert_eq!(time(Some("7"), Some("soon")), None);
        assert_eq!(time(Some("7"), None), None);
    }
}
