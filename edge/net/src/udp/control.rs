//! The control message of a datagram on a wildcard socket: the host's address that a request was sent
//! to, or that a reply should leave from. Linux.

use std::mem::offset_of;
use std::net::IpAddr;

#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlMessage([u8; Self::V6_LEN]);

impl ControlMessage {
    const HEAD_LEN: usize = size_of::<libc::cmsghdr>();
    /// The length of a message with a v4 address, in bytes.
    pub(super) const V4_LEN: usize =
        (Self::HEAD_LEN + size_of::<libc::in_pktinfo>()).next_multiple_of(8);
    /// The length of a message with a v6 address, in bytes.
    pub(super) const V6_LEN: usize =
        (Self::HEAD_LEN + size_of::<libc::in6_pktinfo>()).next_multiple_of(8);
    /// The buffer before the kernel has written a message.
    pub(super) const EMPTY: Self = Self([0; Self::V6_LEN]);

    /// Returns a pointer to [`ControlMessage::V6_LEN`] bytes that the kernel may read or write.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Returns this host's address that the datagram was sent to.
    pub(super) fn destination(&self, is_v4: bool) -> IpAddr {
        match is_v4 {
            true => self.info::<4>(offset_of!(libc::in_pktinfo, ipi_spec_dst)).into(),
            false => self.info::<16>(offset_of!(libc::in6_pktinfo, ipi6_addr)).into(),
        }
    }

    /// Returns `N` bytes of the message's structure, from offset `at`.
    fn info<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[Self::HEAD_LEN + at..][..N]);
        bytes
    }

    /// Turns the message of a request into that of its reply, which leaves from the address that the
    /// request was sent to, by any interface that leads to the client.
    pub(super) fn prepare_reply(&mut self, is_v4: bool) {
        let interface_at = match (is_v4, self.destination(is_v4)) {
            // Only a link-local address needs the interface.
            (_, IpAddr::V6(ip)) if ip.is_unicast_link_local() => return,
            (true, _) => offset_of!(libc::in_pktinfo, ipi_ifindex),
            (false, _) => offset_of!(libc::in6_pktinfo, ipi6_ifindex),
        };
        self.0[Self::HEAD_LEN + interface_at..][..4].fill(0);
    }
}
