//! Socket addresses as the Linux kernel writes them: `sockaddr_in` and `sockaddr_in6`, parsed as bytes
//! so that no union needs to be read.

use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A buffer for an address of either family.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub(crate) struct RawSockAddr([u8; Self::V6_LEN]);

const _: () = assert!(RawSockAddr::V4_LEN == 16 && RawSockAddr::V6_LEN == 28);
const _: () = assert!(align_of::<RawSockAddr>() >= align_of::<libc::sockaddr_in6>());
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_port) == 2);
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_addr) == 4);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_port) == 2);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_flowinfo) == 4);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_addr) == 8);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_scope_id) == 24);

impl RawSockAddr {
    /// The length of a v4 address in bytes.
    pub(crate) const V4_LEN: usize = size_of::<libc::sockaddr_in>();
    /// The length of a v6 address in bytes.
    pub(crate) const V6_LEN: usize = size_of::<libc::sockaddr_in6>();
    /// Family 0: the kernel has not written an address yet.
    pub(crate) const EMPTY: Self = Self([0; Self::V6_LEN]);

    /// Returns a pointer to [`RawSockAddr::V6_LEN`] bytes that the kernel may read or write.
    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Returns the address, if it is of one of the two families.
    #[inline]
    pub(crate) fn socket_addr(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.part(2));
        match i32::from(u16::from_ne_bytes(self.part(0))) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(self.part::<4>(4));
                Some(SocketAddrV4::new(ip, port).into())
            }
            libc::AF_INET6 => {
                let flow = u32::from_be_bytes(self.part(4));
                let ip = Ipv6Addr::from(self.part::<16>(8));
                let scope = u32::from_ne_bytes(self.part(24));
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }

    /// Returns `N` bytes from offset `at`. Both are constants of this file and in bounds.
    #[inline]
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut part = [0; N];
        part.copy_from_slice(&self.0[at..at + N]);
        part
    }
}
