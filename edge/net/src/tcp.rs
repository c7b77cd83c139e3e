//! TCP: listeners, and calls on connections that cost more system calls in the standard library.

use crate::bind::{BindError, InheritedSocket, Transport, adopt_or_bind};
use socket2::{SockRef, Socket};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

/// Options of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Maximum number of connections that wait to be accepted.
    pub backlog: i32,
    /// True if the kernel reports a connection only when its request has arrived (Linux:
    /// TCP_DEFER_ACCEPT). This saves a wake-up between accepting and reading.
    pub defer_accept: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { backlog: 4096, defer_accept: true }
    }
}

/// Seconds after which the kernel reports a connection even without a request.
#[cfg(target_os = "linux")]
const DEFER_ACCEPT_S: i32 = 3;

/// Binds a listener: `count` sockets on `address`, one for each worker. All are non-blocking, and
/// accepted connections inherit TCP_NODELAY. Port 0 takes a free port, the same for all.
///
/// If there are `inherited` sockets, which listen on `address` already, they are used instead: workers share
/// them if there are fewer than `count`; if there are more, all are returned.
///
/// # Errors
///
/// If the address cannot be bound, an option cannot be set, or a socket cannot listen or be duplicated.
pub fn bind_tcp(
    address: SocketAddr,
    inherited: Vec<InheritedSocket>,
    count: usize,
    options: &TcpOptions,
) -> Result<Vec<TcpListener>, BindError> {
    let listens_already = !inherited.is_empty();
    let group = adopt_or_bind(Transport::Tcp, address, inherited, count, |it| prepare(it, options));
    let listen = |socket: Socket| -> io::Result<TcpListener> {
        if !listens_already {
            socket.listen(options.backlog)?;
        }
        Ok(socket.into())
    };
    let listening = group?.into_iter().map(listen).collect::<io::Result<_>>();
    listening.map_err(|cause| BindError::new(Transport::Tcp, address, cause))
}

fn prepare(socket: &Socket, options: &TcpOptions) -> io::Result<()> {
    // Without this, a restart would have to wait until connections in TIME_WAIT expire.
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    #[cfg(target_os = "linux")]
    if options.defer_accept {
        crate::option::set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, DEFER_ACCEPT_S)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = options;
    Ok(())
}

/// Accepts a connection with one system call. It is non-blocking and close-on-exec.
///
/// # Errors
///
/// `WouldBlock` if no connection waits; otherwise that of accept(2).
#[cfg(target_os = "linux")]
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    use rustix::net::{SocketFlags, acceptfrom_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, from) = acceptfrom_with(listener, flags)?;
    let from = from.and_then(|from| from.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((socket.into(), from))
}

/// Accepts a connection, which is non-blocking.
///
/// # Errors
///
/// `WouldBlock` if no connection waits; otherwise that of accept(2).
#[cfg(not(target_os = "linux"))]
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, from) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, from))
}

/// Returns whether accepting failed because the process or the system is out of descriptors or memory.
/// Retrying at once would fail again.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].map(Some).contains(&code)
}

/// Reads available bytes. Returns 0 at the end of the stream, and `WouldBlock` if there are none yet.
///
/// # Errors
///
/// `WouldBlock` if there are no bytes yet; otherwise that of recv(2).
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    (&*SockRef::from(socket)).read(buffer)
}

/// Returns whether input has come, or its end, that has not been received.
pub fn has_input(socket: &impl AsFd) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    match SockRef::from(socket).peek(&mut byte) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Shuts down one direction or both. The peer may still send after [`Shutdown::Write`]; [`Shutdown::Both`] wakes tasks
/// that wait for the socket.
///
/// # Errors
///
/// If the socket is not connected any more.
pub fn shutdown(socket: &impl AsFd, how: Shutdown) -> io::Result<()> {
    SockRef::from(socket).shutdown(how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn accept_one(listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let mut accepted = None;
        harness::wait_until("a connection", || match accept(listener) {
            Ok(connection) => accepted.replace(connection).is_none(),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                false
            }
        });
        accepted.unwrap()
    }

    #[test]
    fn deferred_connection_is_accepted_with_its_request() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut group =
                bind_tcp(address.parse().unwrap(), Vec::new(), 1, &TcpOptions::default()).unwrap();
            let listener = group.remove(0);
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(accept(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            client.write_all(b"hello").unwrap();
            let (stream, from) = accept_one(&listener);
            assert_eq!(from, client.local_addr().unwrap());
            assert!(stream.nodelay().unwrap());
            let mut buffer = [0; 9];
            assert_eq!(receive(&stream, &mut buffer).unwrap(), 5);
            let empty = receive(&stream, &mut buffer).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
            shutdown(&stream, Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut buffer).unwrap(), 0);
            shutdown(&stream, Shutdown::Both).unwrap();
            assert_eq!(receive(&stream, &mut buffer).unwrap(), 0);
        }
    }
}
