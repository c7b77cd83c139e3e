//! IP prefixes in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that share their first bits: `192.0.2.0/24`, `2001:db8::/32`. Bits beyond the prefix
/// are zero, and a v4-mapped v6 prefix is its v4 prefix, so equal prefixes have equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    bits: u8,
}

/// A text that is neither an address nor a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseIpPrefixError(String);

impl IpPrefix {
    /// Returns the prefix of `address` that is `bits` long; more bits than the address has mean all.
    #[inline]
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(ip)) if bits >= 96 => Self::v4(ip, bits - 96),
            (IpAddr::V4(ip), _) => Self::v4(ip, bits),
            (IpAddr::V6(ip), _) => Self::v6(ip, bits),
        }
    }

    /// Returns the prefix of `ip` that is `bits` long, at most 32.
    #[inline]
    pub fn v4(ip: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.min(32);
        Self { address: Ipv4Addr::from_bits(ip.to_bits() & mask_v4(bits)).into(), bits }
    }

    /// Returns the prefix of `ip` that is `bits` long, at most 128. `ip` must not be a v4-mapped
    /// address.
    #[inline]
    pub fn v6(ip: Ipv6Addr, bits: u8) -> Self {
        let bits = bits.min(128);
        Self { address: Ipv6Addr::from_bits(ip.to_bits() & mask_v6(bits)).into(), bits }
    }

    /// Returns the prefix that a client belongs to: `bits_v4` long for an IPv4 address, `bits_v6` for an IPv6
    /// address. An IPv4 client behind a translator, or one that sends by 6to4, has its own prefix in that of
    /// those, as long as if it had come directly. All clients of Teredo have one prefix: a client can choose
    /// most bits of its address.
    #[inline]
    pub fn of_client(ip: IpAddr, bits_v4: u8, bits_v6: u8) -> Self {
        let ip = match ip.to_canonical() {
            IpAddr::V4(ip) => return Self::v4(ip, bits_v4),
            IpAddr::V6(ip) => ip,
        };
        let bits = match ip.segments() {
            // RFC 6052, section 2.1: the last four bytes are the IPv4 address.
            [0x64, 0xff9b, 0, 0, 0, 0, ..] => 96 + bits_v4.min(32),
            // RFC 3056, section 2: they follow the first two.
            [0x2002, ..] => 16 + bits_v4.min(32),
            // RFC 4380, section 4.
            [0x2001, 0, ..] => 32,
            _ => bits_v6,
        };
        Self::v6(ip, bits)
    }

    /// The first address.
    #[inline]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of the prefix in bits.
    #[inline]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The prefix's bits set, all others zero, in the form of an address: 255.255.255.0 for a /24.
    pub fn mask(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(mask_v4(self.bits)).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(mask_v6(self.bits)).into(),
        }
    }

    /// Returns true if `ip` is in the prefix. A v4-mapped v6 address is its v4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                (first.to_bits() ^ ip.to_bits()) & mask_v4(self.bits) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => {
                (first.to_bits() ^ ip.to_bits()) & mask_v6(self.bits) == 0
            }
            _ => false,
        }
    }

    /// The first and last address as numbers: of 32 bits for v4, of 128 for v6.
    pub fn bounds(&self) -> (u128, u128) {
        match self.address {
            IpAddr::V4(ip) => {
                let first = ip.to_bits();
                (first.into(), (first | !mask_v4(self.bits)).into())
            }
            IpAddr::V6(ip) => (ip.to_bits(), ip.to_bits() | !mask_v6(self.bits)),
        }
    }
}

#[inline]
fn mask_v4(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

#[inline]
fn mask_v6(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

impl From<IpAddr> for IpPrefix {
    /// The prefix that holds `address` alone.
    fn from(address: IpAddr) -> Self {
        Self::new(address, 128)
    }
}

impl FromStr for IpPrefix {
    type Err = ParseIpPrefixError;

    /// Reads a prefix or a single address. Bits beyond the prefix are dropped.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseIpPrefixError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<IpPrefix> {
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse().ok().map(IpAddr::into);
    };
    let address: IpAddr = address.parse().ok()?;
    // The number parser alone would also accept a sign.
    let bits: u8 = bits.parse().ok().filter(|_| !bits.starts_with('+'))?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (bits <= longest).then(|| IpPrefix::new(address, bits))
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl fmt::Display for ParseIpPrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is neither an address nor a network such as 192.0.2.0/24", self.0)
    }
}

impl std::error::Error for ParseIpPrefixError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn parses_and_prints_canonical_form() {
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
            assert_eq!(prefix(text).to_string(), written, "{text}");
            assert_eq!(written.parse(), Ok(prefix(text)));
        }
    }

    #[test]
    fn rejects_malformed_text() {
        for bad in [
            "",
            "192.0.2.0/33",
            "2001:db8::/129",
            "example.org",
            "192.0.2.0/",
            "192.0.2.0/+8",
            "192.0.2.0/-1",
            "192.0.2.0/8/8",
            "/8",
        ] {
            let error = bad.parse::<IpPrefix>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{bad}` is neither")), "{bad}");
        }
    }

    #[test]
    fn clients_behind_a_translator_or_a_tunnel_have_the_prefixes_of_their_ipv4_address() {
        for (ip, bits_v4, expected) in [
            ("192.0.2.77", 24, "192.0.2.0/24"),
            ("::ffff:192.0.2.77", 24, "192.0.2.0/24"),
            ("2001:db8:1:2:3::", 24, "2001:db8:1:2::/64"),
            ("64:ff9b::192.0.2.77", 24, "64:ff9b::192.0.2.0/120"),
            ("64:ff9b::192.0.2.77", 32, "64:ff9b::192.0.2.77/128"),
            ("64:ff9b:1::192.0.2.77", 32, "64:ff9b:1::/64"),
            ("64:ff9b::1:192.0.2.77", 32, "64:ff9b::/64"),
            ("2002:c000:24d:ffff:2:3::", 32, "2002:c000:24d::/48"),
            ("2002:c000:24d:ffff:2:3::", 24, "2002:c000:200::/40"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", 32, "2001::/32"),
            ("2001:1:4136:e378:8000::", 32, "2001:1:4136:e378::/64"),
        ] {
            let found = IpPrefix::of_client(ip.parse().unwrap(), bits_v4, 64);
            assert_eq!(found, prefix(expected), "{ip}");
        }
    }

    #[test]
    fn contains_what_lies_between_the_bounds() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", ["192.0.2.0", "::ffff:192.0.2.255"], ["192.0.3.0", "::c000:0200"]),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "ffff::"]),
            ("2001:db8::/33", ["2001:db8::", "2001:db8:7fff::1"], ["2001:db8:8000::", "1.2.3.4"]),
            ("::/0", ["::", "ffff::"], ["::ffff:1.2.3.4", "1.2.3.4"]),
        ] {
            for ip in inside {
                assert!(prefix(text).contains(ip.parse().unwrap()), "{ip} in {text}");
            }
            for ip in outside {
                assert!(!prefix(text).contains(ip.parse().unwrap()), "{ip} in {text}");
            }
        }
        assert_eq!(prefix("10.0.0.0/9").mask(), Ipv4Addr::new(255, 128, 0, 0));
        assert_eq!(prefix("::/0").mask(), Ipv6Addr::UNSPECIFIED);
    }
}
