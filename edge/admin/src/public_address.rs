//! Public addresses: those of other machines on the Internet.

use std::net::{IpAddr, Ipv4Addr};

use types::Scope;

/// Returns whether `ip` is a public address: on the Internet, and only there. An IPv6 address that stands for an IPv4
/// address (mapped, NAT64, 6to4) is public if that is.
pub fn is_public_address(ip: IpAddr) -> bool {
    let ip = match ip.to_canonical() {
        IpAddr::V4(ip) => return is_public_v4(ip),
        IpAddr::V6(ip) => ip,
    };
    match ip.segments() {
        // NAT64 and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Teredo, ORCHID and other protocols.
        [0x2001, 0..=0x01ff, ..] => false,
        _ => Scope::of_v6(ip) == Scope::Public,
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    match ip.octets() {
        // Relays of 6to4, and a cloud provider's service for its own machines.
        [192, 88, 99, _] | [168, 63, 129, 16] => false,
        // Not 169.254.169.254, which has the credentials of cloud machines: it is link-local.
        _ => Scope::of_v4(ip) == Scope::Public,
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
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
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
