//! Sets of networks in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A set of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Sorted, without overlaps.
    v4: Vec<RangeInclusive<Ipv4Addr>>,
    v6: Vec<RangeInclusive<Ipv6Addr>>,
}

/// A text is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseNetworkError(String);

impl Networks {
    /// Parses addresses (`192.0.2.1`) and networks (`192.0.2.0/24`, `2001:db8::/32`).
    ///
    /// # Errors
    ///
    /// If a text is neither.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseNetworkError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for text in texts {
            match network(text)? {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => v6.push(network),
            }
        }
        let mut v4: Vec<_> =
            Ipv4Net::aggregate(&v4).iter().map(|net| net.network()..=net.broadcast()).collect();
        let mut v6: Vec<_> =
            Ipv6Net::aggregate(&v6).iter().map(|net| net.network()..=net.broadcast()).collect();
        v4.sort_unstable_by_key(|range| *range.start());
        v6.sort_unstable_by_key(|range| *range.start());
        Ok(Self { v4, v6 })
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns whether the set contains all addresses of a family.
    pub fn contains_whole_family(&self) -> bool {
        self.v4.contains(&(Ipv4Addr::UNSPECIFIED..=Ipv4Addr::BROADCAST))
            || self.v6.contains(&(Ipv6Addr::UNSPECIFIED..=Ipv6Addr::from([u16::MAX; 8])))
    }

    /// Returns whether the set contains `ip`. A v4-mapped v6 address counts as its v4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => contains(&self.v4, ip),
            IpAddr::V6(ip) => contains(&self.v6, ip),
        }
    }
}

/// Returns whether one of the ranges, which are sorted and do not overlap, contains `ip`.
fn contains<A: Copy + Ord>(ranges: &[RangeInclusive<A>], ip: A) -> bool {
    let behind = ranges.partition_point(|range| *range.start() <= ip);
    behind.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| ip <= *range.end())
}

/// Parses an address or a network.
pub(crate) fn network(text: &str) -> Result<IpNet, ParseNetworkError> {
    let parsed = IpNet::from_str(text).or_else(|_| IpAddr::from_str(text).map(IpNet::from));
    parsed.map_err(|_| ParseNetworkError(text.to_owned()))
}

impl fmt::Display for ParseNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid network `{}`: expected an address or a network such as 192.0.2.0/24",
            self.0
        )
    }
}

impl std::error::Error for ParseNetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares random networks with a scan of the list.
    #[test]
    fn ranges_contain_what_the_networks_contain() {
        let mut state = 1_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 % below
        };
        for _ in 0..300 {
            let texts: Vec<String> = (0..random(8))
                .map(|_| match random(2) {
                    0 => format!("10.{}.{}.0/{}", random(4), random(4), 12 + random(21)),
                    _ => format!("fd00::{:x}:0/{}", random(16), 100 + random(29)),
                })
                .collect();
            let naive: Vec<IpNet> = texts.iter().map(|text| network(text).unwrap()).collect();
            let networks = Networks::parse(texts.iter().map(String::as_str)).unwrap();
            assert_eq!(networks.is_empty(), texts.is_empty());
            for _ in 0..100 {
                let v4 = Ipv4Addr::new(10, random(4) as u8, random(4) as u8, random(256) as u8);
                let v6 = format!("fd00::{:x}:{:x}", random(16), random(1 << 16)).parse().unwrap();
                for ip in [IpAddr::V4(v4), v6] {
                    let expected = naive.iter().any(|network| network.contains(&ip));
                    assert_eq!(networks.contains(ip), expected, "{ip} in {texts:?}");
                }
            }
        }
    }

    #[test]
    fn single_addresses_and_whole_families() {
        let networks = Networks::parse(["192.0.2.7", "::/0"]).unwrap();
        let contains = |ip: &str| networks.contains(ip.parse().unwrap());
        assert!(contains("192.0.2.7") && contains("::ffff:192.0.2.7") && contains("::1"));
        assert!(!contains("192.0.2.8") && !contains("::ffff:192.0.2.8"));
        let everybody = |texts: &[&str]| {
            Networks::parse(texts.iter().copied()).unwrap().contains_whole_family()
        };
        assert!(
            networks.contains_whole_family()
                && everybody(&["128.0.0.0/1", "10.0.0.1", "0.0.0.0/1"])
        );
        assert!(!everybody(&[]) && !everybody(&["0.0.0.0/1", "8000::/1"]));
    }

    #[test]
    fn error_names_the_bad_network() {
        let error = Networks::parse(["10.0.0.0/8", "10.0.0/33"]).unwrap_err();
        assert!(error.to_string().starts_with("invalid network `10.0.0/33`"));
    }
}
