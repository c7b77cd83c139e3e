//! The scope of an address: public, or its own network only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// From where an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// From anywhere on the internet.
    Public,
    /// From its own network only: private, shared (carrier NAT), loopback, link-local, reserved, or
    /// set aside for documentation and measurements.
    Local,
    /// From nowhere: unspecified, multicast or broadcast, which no host has; or of 6to4 or Teredo, tunnels
    /// through which hardly any peer can be reached. Their hosts have IPv4, by which they can announce.
    Nowhere,
}

impl Scope {
    /// Classifies `ip` by the registries of special-purpose addresses (RFC 6890). A v4-mapped v6
    /// address is its v4 address.
    #[inline]
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) => Self::of_v6(ip),
        }
    }

    /// Classifies a v4 address.
    #[inline]
    pub fn of_v4(ip: Ipv4Addr) -> Self {
        match ip.octets() {
            [0, 0, 0, 0] | [255, 255, 255, 255] | [224..=239, ..] => Self::Nowhere,
            [0 | 10 | 127 | 240..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0 | 2, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _] => Self::Local,
            _ => Self::Public,
        }
    }

    /// Classifies a v6 address that is not v4-mapped.
    #[inline]
    pub fn of_v6(ip: Ipv6Addr) -> Self {
        match ip.segments() {
            [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Self::Local,
            // 6to4 and Teredo: one v4 address has 65,536 or more networks of these, so caps would not hold
            // (RFC 7526 advises against 6to4, and Teredo has no public servers any more).
            [0x2002, ..] | [0x2001, 0, ..] => Self::Nowhere,
            // All blocks assigned so far.
            [0x2000..=0x3fff, ..] => Self::Public,
            // v4 clients behind a translator (RFC 6052).
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                Self::of_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
            }
            [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Self::Nowhere,
            _ => Self::Local,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_all(scope: Scope, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(Scope::of(address.parse().unwrap()), scope, "{address}");
        }
    }

    /// The ends of each range and their neighbours.
    #[test]
    fn classifies_addresses_by_registry() {
        #[rustfmt::skip]
        assert_all(Scope::Local, &[
            "0.0.0.1", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255",
            "127.0.0.1", "169.254.0.0", "169.254.255.255", "172.16.0.0", "172.31.255.255", "192.0.0.1",
            "192.0.2.255", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
            "198.51.100.7", "203.0.113.7", "240.0.0.0", "255.255.255.254",
            "::1", "::2", "::1.2.3.4", "64:ff9b:1::1", "100::1", "2001:db8::1", "2001:db8:ffff::", "3fff::1",
            "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1",
            "3fff:fff::", "4000::", "fc00::", "fdff::1", "fe80::1", "febf::1", "fec0::1", "::ffff:10.0.0.1",
        ]);
        #[rustfmt::skip]
        assert_all(Scope::Public, &[
            "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.1.1.1",
            "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.1.1.1",
            "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
            "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
            "2000::", "2001:db7:ffff::", "2001:db9::", "2606:4700::1111", "2001:1::", "2003::",
            "3fff:1000::",
            "64:ff9b::808:808", "::ffff:8.8.8.8",
        ]);
        #[rustfmt::skip]
        assert_all(Scope::Nowhere, &[
            "0.0.0.0", "255.255.255.255", "224.0.0.0", "239.255.255.255", "::", "ff02::1", "ffff::",
            "::ffff:0.0.0.0", "::ffff:224.0.0.1", "64:ff9b::224.0.0.1", "2002::", "2002:7f00:1::1",
            "2002:808:808::1", "2002:ffff:ffff:ffff::", "2001::", "2001::1", "2001:0:ffff::",
        ]);
    }
}
