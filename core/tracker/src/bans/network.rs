//! A network in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::networks::{ParseNetworkError, network};

/// A network in CIDR notation: `192.0.2.0/24`, `2001:db8::/32`. Displayed in one form, without bits
/// beyond the prefix; a v4-mapped v6 network becomes its v4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns the network of the first `bits` bits of `address`, at most all of them.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(ip)) if bits >= 96 => Self::v4(ip, bits - 96),
            (IpAddr::V4(ip), _) => Self::v4(ip, bits),
            (IpAddr::V6(ip), _) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(ip.to_bits() & mask).into(), bits }
            }
        }
    }

    fn v4(ip: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.min(32);
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        Self { address: Ipv4Addr::from_bits(ip.to_bits() & mask).into(), bits }
    }

    /// Returns its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix in bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns its first and last address as numbers.
    pub(super) fn bounds(&self) -> (u128, u128) {
        let (first, length) = match self.address {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let rest = u32::from(length - self.bits);
        let others = 1_u128.checked_shl(rest).map_or(u128::MAX, |addresses| addresses - 1);
        (first, first | others)
    }
}

impl From<IpAddr> for Network {
    /// Returns the network of one address.
    fn from(address: IpAddr) -> Self {
        Self::new(address, 128)
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    /// Parses a network or an address. Drops bits beyond the prefix.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match network(text)? {
            IpNet::V4(net) => Self::new(net.addr().into(), net.prefix_len()),
            IpNet::V6(net) => Self::new(net.addr().into(), net.prefix_len()),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_one_form() {
        for (text, written) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("2001:db8:ffff::/33", "2001:db8:8000::/33"),
            ("::/0", "::/0"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), written, "{text}");
            assert_eq!(written.parse(), Ok(network));
        }
        for bad in ["", "192.0.2.0/33", "2001:db8::/129", "example.org", "192.0.2.0/"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bounds_are_the_first_and_last_address() {
        let bounds = |text: &str| text.parse::<Network>().unwrap().bounds();
        assert_eq!(bounds("1.2.3.4"), (0x0102_0304, 0x0102_0304));
        assert_eq!(bounds("1.2.3.4/24"), (0x0102_0300, 0x0102_03ff));
        assert_eq!(bounds("0.0.0.0/0"), (0, 0xffff_ffff));
        assert_eq!(bounds("::/0"), (0, u128::MAX));
        assert_eq!(bounds("ffff::/16"), (0xffff << 112, u128::MAX));
    }
}
