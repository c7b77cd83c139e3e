//! Sets of networks, for "is this address in one of them?".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use primitives::{IpPrefix, ParseIpPrefixError};

/// A set of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// First and last addresses, sorted; ranges neither overlap nor touch.
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
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

    /// Returns all addresses that are not in the set.
    pub fn complement(&self) -> Self {
        Self { v4: complement(&self.v4, u32::MAX.into()), v6: complement(&self.v6, u128::MAX) }
    }

    /// Returns the addresses that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        Self {
            v4: joined([&*self.v4, &*other.v4].concat()),
            v6: joined([&*self.v6, &*other.v6].concat()),
        }
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
        self.v4.contains(&(0, u32::MAX.into())) || self.v6.contains(&(0, u128::MAX))
    }

    /// Returns the fewest prefixes that the set consists of.
    pub fn prefixes(&self) -> Vec<IpPrefix> {
        let v4 = self.v4.iter().flat_map(|range| prefixes(*range, 32));
        let v4 = v4.map(|(first, bits)| IpPrefix::v4(Ipv4Addr::from_bits(first as u32), bits));
        let v6 = self.v6.iter().flat_map(|range| prefixes(*range, 128));
        let v6 = v6.map(|(first, bits)| IpPrefix::v6(Ipv6Addr::from_bits(first), bits));
        v4.chain(v6).collect()
    }

    /// Returns whether the set contains `ip`. A v4-mapped v6 address counts as its v4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => contains(&self.v4, ip.to_bits().into()),
            IpAddr::V6(ip) => contains(&self.v6, ip.to_bits()),
        }
    }
}

impl FromIterator<IpPrefix> for Networks {
    fn from_iter<I: IntoIterator<Item = IpPrefix>>(prefixes: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            let family = if prefix.address().is_ipv4() { &mut v4 } else { &mut v6 };
            family.push(prefix.bounds());
        }
        Self { v4: joined(v4), v6: joined(v6) }
    }
}

/// Returns the ranges between sorted ranges, up to `max`.
fn complement(ranges: &[(u128, u128)], max: u128) -> Vec<(u128, u128)> {
    let mut gaps = Vec::with_capacity(ranges.len() + 1);
    let mut next = Some(0);
    for (first, last) in ranges {
        gaps.extend(next.filter(|next| next < first).map(|next| (next, first - 1)));
        next = last.checked_add(1).filter(|next| *next <= max);
    }
    gaps.extend(next.map(|next| (next, max)));
    gaps
}

/// Sorts ranges, and joins those that overlap or touch.
fn joined(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    ranges.sort_unstable();
    ranges.dedup_by(|(first, last), (_, last_before)| {
        let joins = *first <= last_before.saturating_add(1);
        if joins {
            *last_before = (*last_before).max(*last);
        }
        joins
    });
    ranges
}

/// Iterates over the first addresses and lengths of the prefixes that a range of addresses of `width` bits
/// consists of.
fn prefixes((first, last): (u128, u128), width: u8) -> impl Iterator<Item = (u128, u8)> {
    let mut next = Some(first);
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

/// Returns whether one of the ranges contains `ip`.
fn contains(ranges: &[(u128, u128)], ip: u128) -> bool {
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
