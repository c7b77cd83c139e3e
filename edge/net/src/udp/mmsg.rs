//! recvmmsg and sendmmsg: one system call for each batch. Linux.
//!
//! # Safety
//!
//! The kernel gets arrays of headers that point to buffers. The arrays are filled for each call from
//! borrows that last until it returns, so no pointer is kept.
//!
//! Both are called by number, because musl's sendmmsg makes a system call for each datagram. Where musl's headers have
//! padding, the kernel has the upper halves of lengths: zero from the beginning, and never written here.
#![allow(unsafe_code)]

use super::control::ControlMessage;
use super::socket::set_fragments;
use super::{BATCH_MAX, Batch, Handler, REQUEST_MAX, UdpSocket};
use crate::raw_sock_addr::RawSockAddr;
use std::io;
use std::mem::zeroed;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// The arrays for both system calls, and the batch between them.
pub(super) struct MmsgIo {
    batch: Batch,
    addresses: Box<[RawSockAddr; BATCH_MAX]>,
    vectors: Box<[libc::iovec; BATCH_MAX]>,
    headers: Box<[libc::mmsghdr; BATCH_MAX]>,
}

impl MmsgIo {
    pub(super) fn new() -> Self {
        // SAFETY: both are plain structs of numbers and pointers, for which zero bytes are valid.
        let (vector, header) = unsafe { (zeroed::<libc::iovec>(), zeroed::<libc::mmsghdr>()) };
        Self {
            batch: Batch::new(),
            addresses: Box::new([RawSockAddr::EMPTY; BATCH_MAX]),
            vectors: Box::new([vector; BATCH_MAX]),
            headers: Box::new([header; BATCH_MAX]),
        }
    }

    /// Serves the datagrams that wait in `socket`, up to a full batch. Returns their number.
    pub(super) fn exchange(
        &mut self,
        at: usize,
        socket: &UdpSocket,
        handler: &mut impl Handler,
    ) -> io::Result<usize> {
        let received = self.receive(socket)?;
        if received > 0 {
            handler.batch(at, &mut self.batch);
            self.send(at, socket, handler);
        }
        Ok(received)
    }

    /// Receives waiting datagrams into the batch without blocking. Returns their number.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.batch.clear(socket.local_addr());
        let control_len = control_len(socket);
        let headers = self.headers.iter_mut().zip(self.vectors.iter_mut());
        for ((address, (header, vector)), (place, control)) in
            self.addresses.iter_mut().zip(headers).zip(self.batch.request_buffers())
        {
            vector.iov_base = place.as_mut_ptr().cast();
            vector.iov_len = REQUEST_MAX;
            let header = &mut header.msg_hdr;
            header.msg_name = address.as_mut_ptr().cast();
            header.msg_namelen = RawSockAddr::V6_LEN as libc::socklen_t;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = control_len as _;
            header.msg_flags = 0;
        }
        // SAFETY: the socket is open; all BATCH_MAX headers point to an address, a vector with one
        // buffer of at least REQUEST_MAX bytes, and a control buffer of at least `control_len`
        // bytes, all owned by `self` and untouched until the call returns.
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH_MAX,
                libc::MSG_DONTWAIT,
                null_mut::<libc::timespec>(),
            )
        };
        let Ok(count) = usize::try_from(count) else { return receive_failed() };
        for (header, address) in self.headers.iter().zip(self.addresses.iter()).take(count) {
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            match address.socket_addr() {
                Some(from) => self.batch.push(from, header.msg_len as usize, truncated),
                // Impossible on an IP socket. Kept as an empty datagram, so that indices match.
                None => self.batch.push(([0, 0, 0, 0], 0).into(), 0, false),
            }
        }
        Ok(count)
    }

    /// Sends the handler's replies, each to the source of its request.
    fn send(&mut self, at: usize, socket: &UdpSocket, handler: &mut impl Handler) {
        let control_len = control_len(socket);
        let mut count = 0;
        for slot in 0..self.batch.len() {
            let reply = self.batch.reply(slot);
            if reply.is_empty() {
                continue;
            }
            let is_v4 = self.batch.from(slot).is_ipv4();
            let vector = &mut self.vectors[count];
            vector.iov_base = reply.as_ptr().cast_mut().cast();
            vector.iov_len = reply.len();
            let header = &mut self.headers[count].msg_hdr;
            header.msg_name = self.addresses[slot].as_mut_ptr().cast();
            header.msg_namelen =
                if is_v4 { RawSockAddr::V4_LEN } else { RawSockAddr::V6_LEN } as libc::socklen_t;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = null_mut();
            header.msg_controllen = control_len as _;
            if control_len > 0 {
                let control = self.batch.control(slot);
                control.prepare_reply(is_v4);
                header.msg_control = control.as_mut_ptr();
            }
            header.msg_flags = 0;
            count += 1;
        }
        self.send_headers(at, socket, count, handler);
    }

    /// Sends the datagrams of the first `count` headers. Refused datagrams are skipped. Once the send
    /// buffer is full, the rest is dropped, because waiting would delay all other clients.
    fn send_headers(
        &mut self,
        at: usize,
        socket: &UdpSocket,
        count: usize,
        handler: &mut impl Handler,
    ) {
        let mut done = 0;
        while done < count {
            let sent = self.send_range(socket, done..count);
            let Err(error) = sent.map(|sent| done += sent) else { continue };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // Longer than the path, as routers have told the kernel.
                Some(libc::EMSGSIZE) => {
                    if self.send_fragments(socket, done).is_err() {
                        handler.send_failed(at, 1, false);
                    }
                    done += 1;
                }
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    return handler.send_failed(at, count - done, true);
                }
                _ => {
                    handler.send_failed(at, 1, false);
                    done += 1;
                }
            }
        }
    }

    /// Makes one system call that sends the datagrams of these headers. Returns how many it sent, at least one.
    fn send_range(&mut self, socket: &UdpSocket, range: Range<usize>) -> io::Result<usize> {
        let headers = &mut self.headers[range];
        // SAFETY: the socket is open; `send` filled each header with an address, one vector over a
        // reply, and a control message or none, all owned by `self` and untouched since.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len(),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Sends the datagram of one header, cut into fragments.
    fn send_fragments(&mut self, socket: &UdpSocket, at: usize) -> io::Result<()> {
        set_fragments(&socket.socket, true)?;
        let sent = self.send_range(socket, at..at + 1);
        set_fragments(&socket.socket, false)?;
        sent.map(drop)
    }
}

/// Returns the length of the control message of each datagram on `socket`. Callers convert it: musl has another type.
fn control_len(socket: &UdpSocket) -> usize {
    match (socket.reports_destination, socket.local_addr().is_ipv4()) {
        (false, _) => 0,
        (true, true) => ControlMessage::V4_LEN,
        (true, false) => ControlMessage::V6_LEN,
    }
}

/// Handles an error of recvmmsg. Only an unusable socket ends the worker. All other errors are about
/// single datagrams, such as an ICMP message about an earlier reply.
fn receive_failed() -> io::Result<usize> {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL | libc::ENOSYS) => {
            Err(error)
        }
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::tests::Echo;
    use crate::{UdpOptions, bind_udp};
    use harness::network::{Namespace, Network};
    use std::time::Duration;

    /// A forged source may have port 0, as empty addresses have, to which no datagram can be sent.
    #[test]
    fn refused_replies_do_not_block_others() {
        let here = "127.0.0.1:0".parse().unwrap();
        let socket = bind_udp(here, Vec::new(), 1, &UdpOptions::default()).unwrap().remove(0);
        let client = std::net::UdpSocket::bind(here).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.connect(socket.local_addr()).unwrap();
        for number in 0..5 {
            client.send(&[number]).unwrap();
        }
        let mut mmsg = MmsgIo::new();
        assert_eq!(mmsg.receive(&socket).unwrap(), 5);
        for slot in 0..5 {
            mmsg.batch.reply_buffer(slot)[0] = slot as u8;
            mmsg.batch.set_reply(slot, 1);
        }
        for slot in [0, 2, 3] {
            mmsg.addresses[slot] = RawSockAddr::EMPTY;
        }
        let mut handler = Echo::default();
        mmsg.send(0, &socket, &mut handler);
        assert_eq!((handler.refused, handler.blocked), (3, 0));
        for expected in [1, 4] {
            let mut reply = [0; 2];
            assert_eq!(client.recv(&mut reply).unwrap(), 1);
            assert_eq!(reply[0], expected);
        }
    }

    #[test]
    fn replies_longer_than_their_path_are_cut() {
        if let Some(obstacle) = Network::obstacle() {
            return eprintln!("skipped: {obstacle}");
        }
        let host = Namespace::new().unwrap();
        host.ip("link set lo up\nlink set lo mtu 600\n").unwrap();
        host.run(|| {
            let here = "127.0.0.1:0".parse().unwrap();
            let socket = bind_udp(here, Vec::new(), 1, &UdpOptions::default()).unwrap().remove(0);
            let client = std::net::UdpSocket::bind(here).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client.connect(socket.local_addr()).unwrap();
            let (mut mmsg, mut handler) = (MmsgIo::new(), Echo::default());
            let lens = [30, 1472, 572, 573, 1472];
            for number in 0..lens.len() {
                client.send(&[number as u8]).unwrap();
            }
            assert_eq!(mmsg.receive(&socket).unwrap(), lens.len());
            for (slot, len) in lens.into_iter().enumerate() {
                mmsg.batch.set_reply(slot, len);
            }
            mmsg.send(0, &socket, &mut handler);
            assert_eq!((handler.refused, handler.blocked), (0, 0));
            for len in lens {
                assert_eq!(client.recv(&mut [0; 2000]).unwrap(), len);
            }
            let mut mode = [0];
            crate::option::get(&socket.socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &mut mode)
                .unwrap();
            assert_eq!(mode, [libc::IP_PMTUDISC_DO as u32]);
        });
    }
}
