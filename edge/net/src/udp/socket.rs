//! UDP sockets of a listener.

use super::Engine;
use crate::bind::{BindError, InheritedSocket, Transport, adopt_or_bind};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;

/// Options of UDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// The engine that will serve the sockets.
    pub engine: Engine,
    /// Bytes of kernel buffer for received datagrams. The kernel's bookkeeping counts, so a small
    /// datagram takes about 800 bytes. 0 = the system's default, which holds a few hundred datagrams:
    /// too few for a burst.
    pub receive_buffer: usize,
    /// Bytes of kernel buffer for replies. 0 = the system's default.
    pub send_buffer: usize,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self { engine: Engine::Auto, receive_buffer: 8 << 20, send_buffer: 2 << 20 }
    }
}

/// A bound socket for [`run_udp`](crate::run_udp).
#[derive(Debug)]
pub struct UdpSocket {
    pub(super) socket: std::net::UdpSocket,
    local: SocketAddr,
    /// True if the kernel reports the destination address of each datagram.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only mmsg reads it"))]
    pub(super) reports_destination: bool,
    receive_buffer: usize,
}

/// Binds a listener: `count` sockets on `address`, one for each worker. The kernel distributes clients
/// among them on Linux; use one elsewhere. Port 0 takes a free port, the same for all.
///
/// If there are `inherited` sockets, which are bound to `address` already, they are used instead: workers
/// share them if there are fewer than `count`; if there are more, all are returned.
///
/// # Errors
///
/// If the address cannot be bound, an option cannot be set, or a socket cannot be duplicated.
pub fn bind_udp(
    address: SocketAddr,
    inherited: Vec<InheritedSocket>,
    count: usize,
    options: &UdpOptions,
) -> Result<Vec<UdpSocket>, BindError> {
    let grow = |socket: &Socket| grow_buffers(socket, options);
    let group = adopt_or_bind(Transport::Udp, address, inherited, count, grow)?;
    let finished = group.into_iter().map(|socket| UdpSocket::new(socket, address, options.engine));
    let finished = finished.collect::<io::Result<_>>();
    finished.map_err(|cause| BindError::new(Transport::Udp, address, cause))
}

impl UdpSocket {
    fn new(socket: Socket, address: SocketAddr, engine: Engine) -> io::Result<Self> {
        // Only wildcard sockets need it, and it costs kernel time for every datagram.
        let reports_destination =
            address.ip().is_unspecified() && engine.of_sockets() == Engine::Mmsg;
        #[cfg(target_os = "linux")]
        if reports_destination {
            enable_destination_info(&socket, address)?;
        }
        #[cfg(target_os = "linux")]
        if address.is_ipv4() && engine.of_sockets() == Engine::Mmsg {
            set_fragments(&socket, false)?;
        }
        // A previous owner of the socket may have left a filter when it ended during a flood.
        #[cfg(target_os = "linux")]
        super::source_filter::clear_filter(&socket)?;
        #[cfg(target_os = "linux")]
        super::source_filter::clear_steering(&socket)?;
        let receive_buffer = effective(socket.recv_buffer_size()?);
        let socket = std::net::UdpSocket::from(socket);
        let local = socket.local_addr()?;
        Ok(Self { socket, local, reports_destination, receive_buffer })
    }

    /// Returns the bound address, with the actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Duplicates the descriptor, for a process that takes over the socket.
    ///
    /// # Errors
    ///
    /// If the process has too many descriptors.
    pub fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        std::os::fd::AsFd::as_fd(&self.socket).try_clone_to_owned()
    }

    /// Returns the size of the receive buffer, in the same unit as [`UdpOptions::receive_buffer`]. It is
    /// smaller than requested if `net.core.rmem_max` is lower and the process may not exceed it
    /// (CAP_NET_ADMIN).
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }
}

/// Requests buffer sizes. Smaller buffers are not an error; the effective size is reported.
fn grow_buffers(socket: &Socket, options: &UdpOptions) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let (size, set) = (Socket::recv_buffer_size, Socket::set_recv_buffer_size);
        grow(socket, options.receive_buffer, Some(libc::SO_RCVBUFFORCE), size, set)?;
        let (size, set) = (Socket::send_buffer_size, Socket::set_send_buffer_size);
        grow(socket, options.send_buffer, None, size, set)?;
    }
    #[cfg(not(target_os = "linux"))]
    {
        if options.receive_buffer > 0 {
            socket.set_recv_buffer_size(options.receive_buffer).or_else(too_much)?;
        }
        if options.send_buffer > 0 {
            socket.set_send_buffer_size(options.send_buffer).or_else(too_much)?;
        }
    }
    Ok(())
}

/// Requests a buffer of `bytes`. The option `force` exceeds the system's limit, if the process has the
/// privilege. Never shrinks a buffer: an inherited socket may have a larger one than this process
/// could request.
#[cfg(target_os = "linux")]
fn grow(
    socket: &Socket,
    bytes: usize,
    force: Option<i32>,
    size: fn(&Socket) -> io::Result<usize>,
    set: fn(&Socket, usize) -> io::Result<()>,
) -> io::Result<()> {
    if effective(size(socket)?) >= bytes {
        return Ok(());
    }
    let most = i32::try_from(bytes).unwrap_or(i32::MAX);
    let forced = |option| crate::option::set(socket, libc::SOL_SOCKET, option, most).is_ok();
    if force.is_some_and(forced) {
        return Ok(());
    }
    let trial = Socket::new(socket.domain()?, socket.r#type()?, None)?;
    set(&trial, bytes)?;
    if size(&trial)? > size(socket)? { set(socket, bytes) } else { Ok(()) }
}

/// Ignores requests above the limit. BSD kernels refuse them, where Linux grants the limit.
#[cfg(not(target_os = "linux"))]
fn too_much(error: io::Error) -> io::Result<()> {
    const ENOBUFS: i32 = 55;
    if error.raw_os_error() == Some(ENOBUFS) { Ok(()) } else { Err(error) }
}

/// Converts a size that the kernel reports to the unit of requests: Linux reports twice the size.
fn effective(reported: usize) -> usize {
    if cfg!(target_os = "linux") { reported / 2 } else { reported }
}

/// Allows the kernel to cut replies into fragments that are too long for their path (the default), or forbids it. Then
/// sending such a reply fails with EMSGSIZE, and others have no IP ids, which the kernel draws from a table that all
/// processors share.
#[cfg(target_os = "linux")]
pub(super) fn set_fragments(socket: &impl std::os::fd::AsFd, allowed: bool) -> io::Result<()> {
    let mode = if allowed { libc::IP_PMTUDISC_WANT } else { libc::IP_PMTUDISC_DO };
    crate::option::set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, mode)
}

/// Makes the kernel report the destination address of each datagram.
#[cfg(target_os = "linux")]
fn enable_destination_info(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    let (level, name) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    };
    crate::option::set(socket, level, name, 1)
}
