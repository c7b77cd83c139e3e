//! Binding: several sockets on one address, and helpful messages if that fails.
//!
//! Every worker has its own socket on the same address (SO_REUSEPORT), and the kernel distributes the
//! load. That option would also let a second process of the same user share the port unnoticed. So
//! the first socket of a group is bound without it, which fails if the port is in use, and gets the
//! option afterwards; the other sockets then join. The port is never free in between, so two
//! processes that start at the same time cannot both succeed.
//!
//! FreeBSD distributes the load only over sockets that got SO_REUSEPORT_LB before they were bound, the first
//! one included. There, a socket without the option is bound and closed before, which finds a port in use
//! unless two processes start in the same moment.
//!
//! Sockets that another process has bound (`process::InheritedSockets`) are used as they are, and no
//! further sockets are bound to their address: when this process ends, the process that keeps the
//! inherited sockets would lose the packets that wait in ours.

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;

use crate::SocketOwner;
use crate::process::is_root;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    fn label(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// Binds `count` sockets (at least one) to `address`. Port 0 takes a free port, the same for all.
/// `prepare` sets options on each socket before it is bound. All are non-blocking and close-on-exec;
/// v6 sockets accept no v4 traffic. Only Linux and FreeBSD distribute the load, so use one socket elsewhere.
fn bind_group(
    transport: Transport,
    address: SocketAddr,
    count: usize,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<Vec<Socket>> {
    let prepared = || {
        let socket = open(transport, address)?;
        prepare(&socket)?;
        io::Result::Ok(socket)
    };
    let first = prepared()?;
    if SHARES_BEFORE_BIND && count > 1 {
        // Fails if the port is in use.
        prepared()?.bind(&address.into())?;
        share(&first)?;
    }
    first.bind(&address.into())?;
    if !SHARES_BEFORE_BIND && count > 1 {
        share(&first)?;
    }
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..count {
        let socket = prepared()?;
        share(&socket)?;
        socket.bind(&bound)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// A socket that another process has bound and passed on.
#[derive(Debug)]
pub struct InheritedSocket(pub(crate) Socket);

/// Takes over `inherited`, sockets that are bound to `address` already, or binds `count` sockets if there are
/// none.
pub(crate) fn adopt_or_bind(
    transport: Transport,
    address: SocketAddr,
    inherited: Vec<InheritedSocket>,
    count: usize,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<Vec<Socket>, BindError> {
    let sockets = match inherited.is_empty() {
        true => bind_group(transport, address, count, prepare),
        false => adopt_group(inherited, count, prepare),
    };
    sockets.map_err(|cause| BindError::new(transport, address, cause))
}

/// Distributes inherited sockets among `count` workers. If there are fewer sockets than workers,
/// workers share them. If there are more, all are kept, because the kernel distributes clients over
/// all of them. `prepare` sets options on each socket; all become non-blocking.
fn adopt_group(
    inherited: Vec<InheritedSocket>,
    count: usize,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<Vec<Socket>> {
    let mut sockets: Vec<Socket> = inherited.into_iter().map(|inherited| inherited.0).collect();
    for socket in &sockets {
        socket.set_nonblocking(true)?;
        prepare(socket)?;
    }
    let distinct = sockets.len();
    for number in distinct..count {
        sockets.push(sockets[number % distinct].try_clone()?);
    }
    Ok(sockets)
}

/// Creates a socket of the address's family.
fn open(transport: Transport, address: SocketAddr) -> io::Result<Socket> {
    let kind = match transport {
        Transport::Udp => Type::DGRAM,
        Transport::Tcp => Type::STREAM,
    };
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// True where a socket's load is shared only if all sockets of the group had the option before `bind`.
const SHARES_BEFORE_BIND: bool = cfg!(target_os = "freebsd");

/// Permits other sockets of this user to bind the same address, and to take a share of the load.
fn share(socket: &Socket) -> io::Result<()> {
    #[cfg(target_os = "freebsd")]
    return socket.set_reuse_port_lb(true);
    #[cfg(not(target_os = "freebsd"))]
    socket.set_reuse_port(true)
}

/// An address cannot be bound. The message says which, why, and what to do; it has no source, since it says what the cause
/// means.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", self.advice())]
pub struct BindError {
    transport: Transport,
    address: SocketAddr,
    /// The kernel's error.
    pub cause: io::Error,
    /// The process that has the port, if that is the cause and this process may see it.
    pub owner: Option<SocketOwner>,
}

impl BindError {
    pub(crate) fn new(transport: Transport, address: SocketAddr, cause: io::Error) -> Self {
        let is_in_use = cause.kind() == io::ErrorKind::AddrInUse;
        let owner = if is_in_use { SocketOwner::find(transport, address) } else { None };
        Self { transport, address, cause, owner }
    }

    /// Returns `UDP` or `TCP`.
    pub fn transport(&self) -> &'static str {
        self.transport.label()
    }

    /// Returns whether the kernel does not support the address family (IPv6 is disabled), so that this
    /// address can be dropped from a default list of listeners.
    pub fn is_family_absent(&self) -> bool {
        self.cause.raw_os_error() == Some(libc::EAFNOSUPPORT)
    }

    /// Returns the reason and the remedy in one sentence, without the address.
    fn advice(&self) -> String {
        let port = self.address.port();
        let filter = self.transport.label();
        let letter = if self.transport == Transport::Udp { 'u' } else { 't' };
        if self.is_family_absent() {
            return "the kernel has no IPv6: remove this address, or enable IPv6".into();
        }
        if let Some(owner) = &self.owner {
            let SocketOwner { pid, program } = owner;
            let the = if owner.is_same_program() { "the running " } else { "" };
            return format!(
                "{filter} port {port} is in use by {the}{program}, pid {pid}: stop it, or use another port"
            );
        }
        match self.cause.kind() {
            io::ErrorKind::AddrInUse if !is_root() => format!(
                "{filter} port {port} is in use by a process that this user cannot see, perhaps a \
                 running tracker: `ss -ln{letter}p sport = :{port}` as root shows it; stop it, or use \
                 another port"
            ),
            io::ErrorKind::AddrInUse => format!(
                "{filter} port {port} is in use by another process: stop it \
                 (`ss -ln{letter}p sport = :{port}` shows it), or use another port"
            ),
            io::ErrorKind::AddrNotAvailable => format!(
                "no interface of this machine has the address {}: use an address that `ip address` \
                 shows, or {} for all",
                self.address.ip(),
                if self.address.is_ipv4() { "0.0.0.0" } else { "[::]" },
            ),
            io::ErrorKind::PermissionDenied if (1..1024).contains(&port) => {
                "ports below 1024 are reserved: start as root (privileges can be dropped after \
                 binding), give the binary CAP_NET_BIND_SERVICE, or use port 1024 or above"
                    .into()
            }
            _ => format!("{} ({filter} port {port})", self.cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(transport: Transport, address: &str, count: usize) -> Result<Vec<Socket>, BindError> {
        adopt_or_bind(transport, address.parse().unwrap(), Vec::new(), count, |_| Ok(()))
    }

    #[test]
    fn group_shares_a_port_that_others_cannot_bind() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let group = bind(transport, "127.0.0.1:0", 3).unwrap();
            let address = group[0].local_addr().unwrap().as_socket().unwrap();
            for socket in &group {
                assert_eq!(socket.local_addr().unwrap().as_socket(), Some(address));
            }
            let error = bind(transport, &address.to_string(), 2).unwrap_err();
            assert_eq!(error.cause.kind(), io::ErrorKind::AddrInUse);
            // TCP sockets that do not listen yet are in no table of the kernel.
            let by = match transport {
                Transport::Udp => format!("pid {}: stop it", std::process::id()),
                Transport::Tcp if is_root() => "in use by another process".into(),
                Transport::Tcp => "in use by a process that this user cannot see".into(),
            };
            assert!(error.to_string().contains(&by), "{error}");
            assert!(error.to_string().contains(&address.port().to_string()), "{error}");
        }
    }

    #[test]
    fn inherited_sockets_are_shared_or_all_kept() {
        for transport in [Transport::Udp, Transport::Tcp] {
            for (inherited, workers, sockets) in [(1, 3, 3), (3, 2, 3), (2, 2, 2)] {
                let group = bind(transport, "127.0.0.1:0", inherited).unwrap();
                let group = group.into_iter().map(InheritedSocket).collect();
                let adopted = adopt_group(group, workers, |_| Ok(())).unwrap();
                assert_eq!(adopted.len(), sockets);
                assert!(adopted.iter().all(|socket| socket.nonblocking().unwrap()));
            }
        }
    }

    #[test]
    fn advises_on_addresses_low_ports_and_missing_ipv6() {
        for (address, code, expected) in [
            (
                "192.0.2.1:0",
                libc::EADDRNOTAVAIL,
                "no interface of this machine has the address 192.0.2.1",
            ),
            ("0.0.0.0:69", libc::EACCES, "CAP_NET_BIND_SERVICE"),
            ("[::]:6969", libc::EAFNOSUPPORT, "no IPv6"),
        ] {
            let cause = io::Error::from_raw_os_error(code);
            let error = BindError::new(Transport::Udp, address.parse().unwrap(), cause);
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.is_family_absent(), code == libc::EAFNOSUPPORT);
        }
    }
}
