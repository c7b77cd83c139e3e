//! The control message that comes and goes with a datagram of a wildcard socket: which of the host's
//! addresses it was sent to, and shall leave from. Linux.

use std::net::IpAddr;

/// Room for it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlMessage([u8; Self::V6_LEN]);

impl ControlMessage {
    const HEAD_LEN: usize = size_of::<libc::cmsghdr>();
    /// Bytes of one with a v4 address.
    pub(super) const V4_LEN: usize =
        (Self::HEAD_LEN + size_of::<libc::in_pktinfo>()).next_multiple_of(8);
    /// Bytes of one with a v6 address.
    pub(super) const V6_LEN: usize =
        (Self::HEAD_LEN + size_of::<libc::in6_pktinfo>()).next_multiple_of(8);
    /// Before the kernel has written one.
    pub(super) const EMPTY: Self = Self([0; Self::V6_LEN]);

    /// Where the kernel reads and writes [`ControlMessage::V6_LEN`] bytes at most.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    /// The address that the datagram was sent to, as the kernel has told.
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

    /// Makes what the kernel told about a datagram into what it is told about the reply: to leave
    /// from the address that was asked, by whichever interface leads to the client.
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
