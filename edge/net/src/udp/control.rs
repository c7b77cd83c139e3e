//! The control message of a datagram on a wildcard socket: the host's address that a request was sent
//! to, or that a reply should leave from. Linux.

use std::net::IpAddr;

/// A buffer for a control message.
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

    /// Returns the address that the datagram was sent to.
    pub(super) fn destination(&self, is_v4: bool) -> IpAddr {
        let info = &self.0[Self::HEAD_LEN..];
        if is_v4 {
            // in_pktinfo: interface 4, local address 4, destination 4.
            let mut local = [0; 4];
            local.copy_from_slice(&info[4..8]);
            local.into()
        } else {
            // in6_pktinfo: address 16, interface 4.
            let mut local = [0; 16];
            local.copy_from_slice(&info[..16]);
            local.into()
        }
    }

    /// Turns the message of a request into that of its reply, which leaves from the address that the
    /// request was sent to, by any interface that leads to the client.
    pub(super) fn prepare_reply(&mut self, is_v4: bool) {
        let info = &mut self.0[Self::HEAD_LEN..];
        if is_v4 {
            info[..4].fill(0);
        } else if !(info[0] == 0xfe && info[1] & 0xc0 == 0x80) {
            // Only a link-local address needs the interface.
            info[16..20].fill(0);
        }
    }
}
