//! Sockets that were opened before this process started: by systemd's socket activation, or by the
//! process that this one replaces. Both pass them as sd_listen_fds(3) describes: LISTEN_FDS descriptors
//! from 3 on, with the names of LISTEN_FDNAMES, for the process LISTEN_PID.
//!
//! # Safety
//!
//! A descriptor that is only a number has no owner yet. They are taken into ownership once, by
//! [`InheritedSockets::from_environment`], which must be called before any descriptor is opened.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Socket, Type};

use crate::bind::{InheritedSocket, Transport};

/// The number of the first descriptor that is handed over.
const FIRST_FD: RawFd = 3;
/// More sockets than any configuration has. A larger number is a mistake.
const SOCKETS_MAX: usize = 16 * 1024;

/// Beginnings of the names of descriptors that are no sockets of listeners. Only a process of this program
/// passes them.
pub const DESCRIPTOR_PREFIXES: [&str; 3] = ["xdp-link-", "xsk-", "umem-"];

/// Inherited sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<Entry>,
    /// Descriptors for the XDP program, with their names: links, AF_XDP sockets and their memory.
    descriptors: Vec<(String, OwnedFd)>,
    known: &'static [&'static str],
}

#[derive(Debug)]
struct Entry {
    name: String,
    socket: Socket,
    /// The kind and the address of an internet socket; `None` for other sockets.
    bound: Option<(Transport, SocketAddr)>,
}

impl InheritedSockets {
    /// Takes the sockets that the environment describes. Call it at the very start of the process. None
    /// are taken by a second call, or if LISTEN_PID is another process. Names that are not `known` are
    /// ignored: systemd uses the unit's name for sockets without a configured one.
    ///
    /// # Errors
    ///
    /// If LISTEN_FDS is no number, or a descriptor is not open, is no socket, or is one that no listener can use. The
    /// text says what to change.
    pub fn from_environment(known: &'static [&'static str]) -> io::Result<Self> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let variable = |name: &str| std::env::var(name).ok();
        let own_pid = std::process::id();
        let socket_names = socket_names(variable, own_pid)?;
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(Self::default());
        }
        let mut sockets = Vec::with_capacity(socket_names.len());
        let mut descriptors = Vec::new();
        for (number, name) in (FIRST_FD..).zip(socket_names) {
            // SAFETY: F_GETFD is valid for any number; nothing is read or written through it.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
                let text = format!("LISTEN_FDS includes descriptor {number}, which is not open");
                return Err(io::Error::other(text));
            }
            // SAFETY: it is open, and by the protocol it belongs to this process from its start. No
            // other code owns it, because this runs once, before anything else is opened.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            if DESCRIPTOR_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                // SAFETY: the descriptor is open; only numbers are passed.
                unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
                descriptors.push((name, descriptor));
            } else {
                sockets.push(Entry::examine(name, number, descriptor)?);
            }
        }
        Ok(Self { sockets, descriptors, known })
    }

    /// Returns whether no sockets are left.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Removes and returns the UDP sockets for the listener `name` on `address`. Port 0 matches any port.
    pub fn take_udp(&mut self, name: &str, address: SocketAddr) -> Vec<InheritedSocket> {
        self.take(Transport::Udp, name, address)
    }

    /// Like [`Self::take_udp`], for listening TCP sockets.
    pub fn take_tcp(&mut self, name: &str, address: SocketAddr) -> Vec<InheritedSocket> {
        self.take(Transport::Tcp, name, address)
    }

    fn take(
        &mut self,
        transport: Transport,
        name: &str,
        address: SocketAddr,
    ) -> Vec<InheritedSocket> {
        let known = self.known;
        let fits = |entry: &mut Entry| {
            let Some((kind, bound)) = entry.bound else { return false };
            kind == transport
                && bound.ip() == address.ip()
                && (bound.port() == address.port() || address.port() == 0)
                && (entry.name == name || !known.contains(&&*entry.name))
        };
        self.sockets.extract_if(.., fits).map(|entry| InheritedSocket(entry.socket)).collect()
    }

    /// Removes and returns the stream `name`, which leads to the process that started this one.
    pub fn take_stream(&mut self, name: &str) -> Option<UnixStream> {
        let is_it = |entry: &mut Entry| entry.name == name && entry.bound.is_none();
        let stream = self.sockets.extract_if(.., is_it).next()?;
        Some(OwnedFd::from(stream.socket).into())
    }

    /// Removes and returns what is for the XDP program, with its names.
    pub fn take_descriptors(&mut self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.descriptors)
    }

    /// Closes the sockets that no listener has taken, and returns their descriptions.
    pub fn into_unclaimed(self) -> Vec<String> {
        self.sockets.iter().map(Entry::to_string).collect()
    }
}

impl Entry {
    /// Determines the kind of a descriptor and makes it close-on-exec.
    fn examine(name: String, number: RawFd, descriptor: OwnedFd) -> io::Result<Self> {
        let fail = |cause: io::Error| {
            io::Error::other(format!(
                "inherited descriptor {number} (`{name}`) is not a usable socket: {cause}"
            ))
        };
        let socket = Socket::from(descriptor);
        let kind = socket.r#type().map_err(fail)?;
        socket.set_cloexec(true).map_err(fail)?;
        let bound = socket.local_addr().map_err(fail)?.as_socket();
        let bound = match bound {
            Some(address) if kind == Type::DGRAM => Some((Transport::Udp, address)),
            Some(address) if kind == Type::STREAM => Some((Transport::Tcp, address)),
            _ => None,
        };
        let entry = Self { name: name.clone(), socket, bound };
        let Some((transport, address)) = bound else { return Ok(entry) };
        if address.is_ipv6() && !entry.socket.only_v6().map_err(fail)? {
            return Err(io::Error::other(format!(
                "{entry} also accepts IPv4: set BindIPv6Only=ipv6-only in its socket unit"
            )));
        }
        #[cfg(any(target_os = "linux", target_os = "freebsd"))]
        if transport == Transport::Tcp && !entry.socket.is_listener().map_err(fail)? {
            return Err(io::Error::other(format!(
                "{entry} does not listen: set Accept=no in its socket unit"
            )));
        }
        let _ = transport;
        Ok(entry)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Some((Transport::Udp, address)) => write!(f, "UDP {address} (`{}`)", self.name),
            Some((Transport::Tcp, address)) => write!(f, "TCP {address} (`{}`)", self.name),
            None => write!(f, "a socket that is neither UDP nor TCP (`{}`)", self.name),
        }
    }
}

/// Returns a name for each descriptor, from the variables. Empty if they are for another process.
fn socket_names(
    variable: impl Fn(&str) -> Option<String>,
    own_pid: u32,
) -> io::Result<Vec<String>> {
    let (Some(pid), Some(count)) = (variable("LISTEN_PID"), variable("LISTEN_FDS")) else {
        return Ok(Vec::new());
    };
    if pid.parse() != Ok(own_pid) {
        return Ok(Vec::new());
    }
    let read = count.parse().ok().filter(|count| *count <= SOCKETS_MAX);
    let count = read.ok_or_else(|| {
        io::Error::other(format!(
            "LISTEN_FDS: expected a number from 0 to {SOCKETS_MAX}, found `{count}`"
        ))
    })?;
    let given = variable("LISTEN_FDNAMES").unwrap_or_default();
    let socket_names = given.split(':').chain(std::iter::repeat("")).take(count);
    // systemd's name for sockets whose name it does not know.
    let socket_names = socket_names.map(|name| if name.is_empty() { "unknown" } else { name });
    Ok(socket_names.map(String::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, socket: impl Into<OwnedFd>) -> io::Result<Entry> {
        Entry::examine(name.into(), 9, socket.into())
    }

    #[test]
    fn reads_names_from_the_environment() {
        let socket_names = |pid: &str, count: &str, given: &str| {
            let variable = |name: &str| {
                Some(match name {
                    "LISTEN_PID" => pid.to_owned(),
                    "LISTEN_FDS" => count.to_owned(),
                    _ => given.to_owned(),
                })
            };
            socket_names(variable, 77)
        };
        assert_eq!(socket_names("77", "3", "udp:http").unwrap(), ["udp", "http", "unknown"]);
        assert_eq!(socket_names("77", "1", "udp:http").unwrap(), ["udp"]);
        assert!(socket_names("78", "3", "udp").unwrap().is_empty());
        assert!(socket_names("77", "0", "").unwrap().is_empty());
        for wrong in ["-1", "many", "99999999", ""] {
            let error = socket_names("77", wrong, "").unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
        assert!(super::socket_names(|_| None, 77).unwrap().is_empty());
    }

    #[test]
    fn rejects_unusable_descriptors() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = entry("udp", file).unwrap_err().to_string();
        assert!(error.contains("descriptor 9 (`udp`) is not a usable socket"), "{error}");
        let tcp = Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap();
        let error = entry("http", tcp).unwrap_err().to_string();
        assert!(error.contains("does not listen"), "{error}");
        let both = Socket::new(socket2::Domain::IPV6, Type::DGRAM, None).unwrap();
        both.set_only_v6(false).unwrap();
        let error = entry("udp", both).unwrap_err().to_string();
        assert!(error.contains("BindIPv6Only=ipv6-only"), "{error}");
    }
}
