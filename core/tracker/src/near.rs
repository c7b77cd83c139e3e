//! Zones of addresses, such as autonomous systems, and the share of an answer that comes from the asker's own zone.

use std::net::IpAddr;

use primitives::IpPrefix;
use types::Refusal;

use crate::steps::Steps;
use crate::{AnnounceOk, AnnounceRequest, Random, View};

/// The zones of addresses. IPv4 addresses stand in the upper half of a number, and of IPv6 addresses the upper half is
/// one.
#[derive(Clone, Debug, Default)]
pub struct Zones {
    v4: Steps<u64, u32>,
    v6: Steps<u64, u32>,
}

/// Ranges in order, each of which ends where the next one begins, while they are collected.
#[derive(Default)]
struct Ranges {
    starts: Vec<u64>,
    /// [`NO_ZONE`] = none.
    zones: Vec<u32>,
}

/// Stands for a range that is in no zone.
const NO_ZONE: u32 = u32::MAX;

/// A network and its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneNetwork {
    /// The network.
    pub network: IpPrefix,
    /// The number of its zone; `u32::MAX` stands for none.
    pub zone: u32,
}

/// The rules by which answers prefer near peers.
#[derive(Clone, Debug)]
pub struct Near {
    /// Percent of an answer's peers that may come from the asker's zone in place of others.
    pub percent: u8,
    /// The zones that the operator names; they come before systems.
    pub own: Zones,
    /// The autonomous systems.
    pub systems: Zones,
}

/// A zone of one of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    Own(u32),
    System(u32),
}

impl Near {
    #[inline]
    pub(crate) fn zone(&self, ip: IpAddr) -> Option<Zone> {
        let own = self.own.find(ip).map(Zone::Own);
        own.or_else(|| self.systems.find(ip).map(Zone::System))
    }
}

impl View<'_> {
    /// Does what [`View::announce`] does, with peers of the asker's zone in place of some others.
    // Not inline: without zones there are none.
    #[inline(never)]
    pub(crate) fn announce_near(
        &self,
        near: &Near,
        random: &mut Random,
        requests: &[AnnounceRequest],
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        self.announce_plainly(random, requests, &mut |slot, answered| {
            let accepted = match answered {
                Ok(accepted) => accepted,
                Err(refusal) => return answer(slot, Err(refusal)),
            };
            let zone = requests.get(usize::from(slot));
            let Some(zone) = zone.and_then(|it| near.zone(it.grant.client_ip())) else {
                return answer(slot, Ok(accepted));
            };
            let changes = accepted.answer.near(near.percent, |ip| near.zone(ip) == Some(zone));
            answer(slot, Ok(AnnounceOk { answer: accepted.answer.with(&changes), ..accepted }));
        });
    }
}

impl Zones {
    /// Builds zones from networks. A network within another one is in its own zone.
    pub fn new(networks: impl IntoIterator<Item = ZoneNetwork>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for ZoneNetwork { network, zone } in networks {
            let first = number(network.address());
            match network.address() {
                IpAddr::V4(_) => v4.push(Span::new(first, network.bits(), zone)),
                // Longer ones than a /64 are within one number.
                IpAddr::V6(_) => v6.push(Span::new(first, network.bits().min(64), zone)),
            }
        }
        Self { v4: steps(v4), v6: steps(v6) }
    }

    /// Returns the zone of an address.
    #[inline]
    pub fn find(&self, ip: IpAddr) -> Option<u32> {
        let steps = if ip.is_ipv4() { &self.v4 } else { &self.v6 };
        steps.find(number(ip)).filter(|zone| *zone != NO_ZONE)
    }

    /// Returns the bytes of memory that the zones take.
    pub fn memory_bytes(&self) -> usize {
        self.v4.memory_bytes() + self.v6.memory_bytes()
    }
}

/// Returns the place of an address on the line of all addresses of its family.
#[inline]
fn number(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()) << 32,
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

/// A network on that line.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u64,
    last: u64,
    zone: u32,
}

impl Span {
    fn new(first: u64, prefix_len: u8, zone: u32) -> Self {
        let rest = u64::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
        Self { first: first & !rest, last: first | rest, zone }
    }
}

fn steps(mut spans: Vec<Span>) -> Steps<u64, u32> {
    // Outer networks before those within.
    spans.sort_by_key(|span| (span.first, u64::MAX - span.last));
    let mut ranges = Ranges::default();
    let mut open: Vec<Span> = Vec::new();
    for span in spans {
        ranges.close(&mut open, Some(span.first));
        ranges.begin(span.first, span.zone);
        open.push(span);
    }
    ranges.close(&mut open, None);
    Steps::new(ranges.starts, ranges.zones)
}

impl Ranges {
    /// Ends the networks that are over before `next`: behind each, the one around it continues.
    fn close(&mut self, open: &mut Vec<Span>, next: Option<u64>) {
        while let Some(inner) = open.last().copied()
            && next.is_none_or(|next| inner.last < next)
        {
            open.pop();
            if let Some(after) = inner.last.checked_add(1) {
                self.begin(after, open.last().map_or(NO_ZONE, |outer| outer.zone));
            }
        }
    }

    /// Begins a range. One that was begun at the same place is replaced.
    fn begin(&mut self, first: u64, zone: u32) {
        if self.starts.last() == Some(&first) {
            self.starts.pop();
            self.zones.pop();
        }
        if self.zones.last() != Some(&zone) {
            self.starts.push(first);
            self.zones.push(zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_prefixes_than_a_64_are_within_one_number() {
        let network = "2001:db8:2:3::8/128".parse().unwrap();
        let zones = Zones::new([ZoneNetwork { network, zone: 8 }]);
        let find = |ip: &str| zones.find(ip.parse().unwrap());
        assert_eq!([find("2001:db8:2:3::1"), find("2001:db8:2:4::8")], [Some(8), None]);
        assert_eq!(Zones::default().find([1, 2, 3, 4].into()), None);
    }

    #[test]
    fn ranges_find_what_a_list_finds() {
        let mut random = Random::new(7);
        for round in 0..200 {
            // Bits of an IPv4 address, or the first ones of an IPv6 address.
            let address = |bits: u32| match round % 2 {
                0 => IpAddr::V4(bits.into()),
                _ => IpAddr::V6((u128::from(bits) << 96).into()),
            };
            let networks: Vec<ZoneNetwork> = (0..random.below(30))
                .map(|zone| {
                    let bits = random.below(4) << 30 | random.below(16) << 12 | random.below(4);
                    let length = [0, 1, 2, 16, 20, 30, 32][random.below(7) as usize];
                    let network = IpPrefix::new(address(bits), length);
                    ZoneNetwork { network, zone }
                })
                .collect();
            let zones = Zones::new(networks.iter().copied());
            for _ in 0..100 {
                let ip = address(random.below(4) << 30 | random.below(32) << 11);
                // Of equal networks the last one counts.
                let around = networks.iter().filter(|it| it.network.contains(ip));
                let expected = around.max_by_key(|it| it.network.bits()).map(|it| it.zone);
                assert_eq!(zones.find(ip), expected, "{ip} {networks:?}");
            }
        }
    }
}
