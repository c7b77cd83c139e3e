//! Public addresses: those of other machines on the Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks that are not, or not only, on the Internet (IANA's registries of special-purpose addresses).
const SPECIAL_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // Behind the NAT of a provider.
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local; 169.254.169.254 has the credentials of cloud machines.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    // Relays of 6to4.
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast.
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    // A cloud provider's service for its own machines.
    ([168, 63, 129, 16], 32),
];

/// The same within 2000::/3; nothing outside is public.
const SPECIAL_V6: [([u16; 3], u32); 3] = [
    // Teredo, ORCHID and other protocols.
    ([0x2001, 0, 0], 23),
    ([0x2001, 0xdb8, 0], 32),
    ([0x3fff, 0, 0], 20),
];

/// Returns whether `ip` is a public address. An IPv6 address that stands for an IPv4 address (mapped, NAT64,
/// 6to4) is public if that is.
pub fn is_public_address(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(network, bits)| {
        (ip.to_bits() ^ Ipv4Addr::from(*network).to_bits()).leading_zeros() >= *bits
    })
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    match ip.segments() {
        // Mapped addresses, and those of NAT64 and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => embedded(high, low),
        [first @ 0x2000..=0x3fff, second, third, ..] => {
            let bits = |[a, b, c]: [u16; 3]| u64::from(a) << 32 | u64::from(b) << 16 | u64::from(c);
            let prefix = bits([first, second, third]);
            !SPECIAL_V6
                .iter()
                .any(|(network, len)| (prefix ^ bits(*network)) << 16 >> (64 - len) == 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_public_addresses_from_others() {
        let is_public = |text: &str| is_public_address(text.parse().unwrap());
        for public in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.32.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:200::1",
            "2606:4700::1111",
            "2a00::1",
            "3fff:1000::1",
        ] {
            assert!(is_public(public), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.255.255.255",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "3fff:fff::1",
            "4000::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(special), "{special}");
        }
    }
}
