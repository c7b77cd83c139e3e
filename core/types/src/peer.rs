//! The identity of IP peers, and the packed forms that the store keeps and codecs send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytemuck::{Pod, Zeroable};

crate::labelled! {
    /// The address family of a peer.
    #[derive(Hash)]
    pub enum Family {
        /// IPv4.
        V4 = "v4",
        /// IPv6.
        V6 = "v6",
    }
}

impl Family {
    /// Returns the family of `ip`. A v4-mapped v6 address is its v4 address.
    #[inline]
    pub fn of(ip: IpAddr) -> Self {
        if ip.to_canonical().is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The identity of an IP peer: address and port in wire form (BEP 23, BEP 7: address, then port,
/// network byte order). The peer id is not part of it, because any client can copy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKey {
    /// 4 bytes of address, 2 of port.
    V4([u8; 6]),
    /// 16 bytes of address, 2 of port.
    V6([u8; 18]),
}

impl PeerKey {
    /// Returns the key of a peer that listens on `port` of `ip`. A v4-mapped v6 address is its v4
    /// address.
    pub fn new(ip: IpAddr, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                Self::V4([a, b, c, d, high, low])
            }
            IpAddr::V6(ip) => {
                let mut key = [0; 18];
                let (address, end) = key.split_at_mut(16);
                address.copy_from_slice(&ip.octets());
                end.copy_from_slice(&[high, low]);
                Self::V6(key)
            }
        }
    }

    /// Returns the address's family.
    pub fn family(&self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
        }
    }

    /// Returns address and port as a [`SocketAddr`].
    pub fn socket_addr(&self) -> SocketAddr {
        match *self {
            Self::V4([a, b, c, d, high, low]) => {
                (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into()
            }
            Self::V6(key) => {
                let mut address = [0; 16];
                address.copy_from_slice(key.split_at(16).0);
                let [.., high, low] = key;
                (Ipv6Addr::from(address), u16::from_be_bytes([high, low])).into()
            }
        }
    }
}

/// A v4 peer as the store keeps it: 6 bytes that are sent unchanged (BEP 23), and 2 of the store's
/// own (age and flags), which codecs skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct PackedV4(pub [u8; 8]);

/// A v6 peer as the store keeps it: 18 bytes that are sent unchanged (BEP 7), and 2 of the store's
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct PackedV6(pub [u8; 20]);

impl PackedV4 {
    /// Bytes of a v4 peer in compact form.
    pub const WIRE_LEN: usize = 6;

    /// Returns address and port in wire form.
    pub fn wire(&self) -> [u8; 6] {
        let [a, b, c, d, high, low, ..] = self.0;
        [a, b, c, d, high, low]
    }

    /// Returns the peer's identity.
    pub fn key(&self) -> PeerKey {
        PeerKey::V4(self.wire())
    }
}

impl PackedV6 {
    /// Bytes of a v6 peer in compact form.
    pub const WIRE_LEN: usize = 18;

    /// Returns address and port in wire form.
    pub fn wire(&self) -> [u8; 18] {
        let mut wire = [0; 18];
        wire.copy_from_slice(self.0.split_at(18).0);
        wire
    }

    /// Returns the peer's identity.
    pub fn key(&self) -> PeerKey {
        PeerKey::V6(self.wire())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_address_is_v4() {
        let mapped: IpAddr = "::ffff:1.2.3.4".parse().unwrap();
        assert_eq!(PeerKey::new(mapped, 258), PeerKey::V4([1, 2, 3, 4, 1, 2]));
    }
}
