//! Sets of networks, for "is this address in one of them?".

mod list;
mod table;

use std::io::BufRead;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use primitives::{IpPrefix, ParseIpPrefixError};

use crate::lines::BadLine;
use crate::steps::Address;
pub use table::{NetworkAction, NetworkTable};

/// A set of networks: 8 bytes for each range of IPv4 addresses, 32 for each of IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// First and last addresses, sorted; ranges neither overlap nor touch.
    pub(crate) v4: Vec<(u32, u32)>,
    pub(crate) v6: Vec<(u128, u128)>,
}

impl Networks {
    /// Parses addresses (`192.0.2.1`) and networks (`192.0.2.0/24`, `2001:db8::/32`).
    ///
    /// # Errors
    ///
    /// Returns the error of the first text that is neither.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseIpPrefixError> {
        texts.into_iter().map(str::parse).collect()
    }

    /// Parses a list of networks, one a line: `192.0.2.0/24`, `192.0.2.7`, `192.0.2.1-192.0.2.9`, and the forms
    /// of P2P (`name:192.0.2.1-192.0.2.9`) and DAT lists (`192.000.002.001 - 192.000.002.009 , 100 , name`), of
    /// both families. `#` or `;` at the beginning of a line, or behind a network, begins a comment. Ranges of DAT
    /// lists with a level above 127 are skipped, as programs that read them do.
    ///
    /// # Errors
    ///
    /// Fails at the first bad line: half a list must not come into force.
    pub fn parse_list(text: impl BufRead) -> Result<Self, BadLine> {
        list::parse(text)
    }

    /// Returns the set of these ranges of addresses, each by its first and last one.
    pub(crate) fn from_ranges(v4: Vec<(u32, u32)>, v6: Vec<(u128, u128)>) -> Self {
        Self { v4: joined(v4), v6: joined(v6) }
    }

    /// Returns all addresses that are not in the set.
    pub fn complement(&self) -> Self {
        Self { v4: complement(&self.v4), v6: complement(&self.v6) }
    }

    /// Returns the addresses that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges([&*self.v4, &*other.v4].concat(), [&*self.v6, &*other.v6].concat())
    }

    /// Returns the number of ranges of addresses that the set consists of.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns whether the set contains all addresses of a family.
    pub fn contains_whole_family(&self) -> bool {
        self.v4.contains(&(0, u32::MAX)) || self.v6.contains(&(0, u128::MAX))
    }

    /// Returns the fewest prefixes that the set consists of.
    pub fn prefixes(&self) -> Vec<IpPrefix> {
        let v4 = self.v4.iter().flat_map(|(first, last)| prefixes(*first, *last, 32));
        let v4 = v4.map(|(first, bits)| IpPrefix::v4(Ipv4Addr::from_bits(first as u32), bits));
        let v6 = self.v6.iter().flat_map(|(first, last)| prefixes(*first, *last, 128));
        let v6 = v6.map(|(first, bits)| IpPrefix::v6(Ipv6Addr::from_bits(first), bits));
        v4.chain(v6).collect()
    }

    /// Returns whether the set contains `ip`. A v4-mapped v6 address counts as its v4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => contains(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => contains(&self.v6, ip.to_bits()),
        }
    }
}

impl FromIterator<IpPrefix> for Networks {
    fn from_iter<I: IntoIterator<Item = IpPrefix>>(prefixes: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            let (first, last) = prefix.bounds();
            match prefix.address() {
                IpAddr::V4(_) => v4.push((first as u32, last as u32)),
                IpAddr::V6(_) => v6.push((first, last)),
            }
        }
        Self::from_ranges(v4, v6)
    }
}

/// Returns the ranges between sorted ranges.
fn complement<A: Address>(ranges: &[(A, A)]) -> Vec<(A, A)> {
    let mut gaps = Vec::with_capacity(ranges.len() + 1);
    let mut next = Some(A::MIN);
    for (first, last) in ranges {
        let before = first.previous();
        gaps.extend(next.zip(before).filter(|(next, before)| next <= before));
        next = last.next();
    }
    gaps.extend(next.map(|next| (next, A::MAX)));
    gaps
}

/// Sorts ranges, and joins those that overlap or touch.
fn joined<A: Address>(mut ranges: Vec<(A, A)>) -> Vec<(A, A)> {
    ranges.sort_unstable();
    ranges.dedup_by(|(first, last), (_, last_before)| {
        let joins = last_before.next().is_none_or(|next| *first <= next);
        if joins {
            *last_before = (*last_before).max(*last);
        }
        joins
    });
    ranges.shrink_to_fit();
    ranges
}

/// Iterates over the first addresses and lengths of the prefixes that a range of addresses of `width` bits
/// consists of.
fn prefixes(
    first: impl Into<u128>,
    last: impl Into<u128>,
    width: u8,
) -> impl Iterator<Item = (u128, u8)> {
    let (mut next, last) = (Some(first.into()), last.into());
    std::iter::from_fn(move || {
        let first = next.filter(|first| *first <= last)?;
        // The longest block that begins here: as its alignment, and what is left, allow.
        let mut free = first.trailing_zeros().min(width.into());
        let end = |free: u32| first | u128::MAX.checked_shr(128 - free).unwrap_or(0);
        while end(free) > last {
            free -= 1;
        }
        next = end(free).checked_add(1);
        Some((first, width - free as u8))
    })
}

fn contains<A: Address>(ranges: &[(A, A)], ip: A) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= ip);
    behind.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| ip <= *last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares random networks with a scan of the list.
    #[test]
    fn ranges_contain_what_the_networks_contain() {
        let mut numbers = primitives::Random::new(1);
        let mut random = |below| numbers.below(below);
        for _ in 0..300 {
            let texts: Vec<String> = (0..random(8))
                .map(|_| match random(2) {
                    0 => format!("10.{}.{}.0/{}", random(4), random(4), 12 + random(21)),
                    _ => format!("fd00::{:x}:0/{}", random(16), 100 + random(29)),
                })
                .collect();
            let naive: Vec<IpPrefix> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let networks = Networks::parse(texts.iter().map(String::as_str)).unwrap();
            assert_eq!(networks.is_empty(), texts.is_empty());
            let prefixes: Vec<String> =
                networks.prefixes().iter().map(ToString::to_string).collect();
            let again = Networks::parse(prefixes.iter().map(String::as_str)).unwrap();
            assert_eq!(again, networks, "{prefixes:?}");
            let others = networks.complement();
            assert_eq!(others.complement(), networks);
            assert_eq!(others.union(&networks), Networks::parse(["0.0.0.0/0", "::/0"]).unwrap());
            for _ in 0..100 {
                let v4 = Ipv4Addr::new(10, random(4) as u8, random(4) as u8, random(256) as u8);
                let v6 = format!("fd00::{:x}:{:x}", random(16), random(1 << 16)).parse().unwrap();
                for ip in [IpAddr::V4(v4), v6] {
                    let expected = naive.iter().any(|network| network.contains(ip));
                    assert_eq!(networks.contains(ip), expected, "{ip} in {texts:?}");
                    assert_ne!(others.contains(ip), expected, "{ip} not in {texts:?}");
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
    fn prefixes_are_as_few_as_possible() {
        let prefixes = |texts: &[&str]| {
            let networks = Networks::parse(texts.iter().copied()).unwrap();
            networks.prefixes().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(prefixes(&["0.0.0.0/0", "::/0"]), "0.0.0.0/0 ::/0");
        assert_eq!(prefixes(&["10.0.0.0/9", "10.128.0.0/9", "::1"]), "10.0.0.0/8 ::1/128");
        assert_eq!(prefixes(&["10.0.1.0/24", "10.0.2.0/24"]), "10.0.1.0/24 10.0.2.0/24");
        assert_eq!(prefixes(&["255.255.255.255"]), "255.255.255.255/32");
    }
}
