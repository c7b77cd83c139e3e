//! Zones of addresses, such as autonomous systems, and the share of an answer that comes from the asker's own zone.

use std::net::IpAddr;

use primitives::IpPrefix;
use types::Refusal;

use crate::steps::{Span, Steps};
use crate::{AnnounceOk, AnnounceRequest, Random, View};

/// The zones of addresses. IPv4 addresses stand in the upper half of a number, and of IPv6 addresses the upper half is
/// one.
#[derive(Clone, Debug, Default)]
pub struct Zones {
    v4: Steps<u64, u32>,
    v6: Steps<u64, u32>,
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
        for (order, ZoneNetwork { network, zone }) in networks.into_iter().enumerate() {
            // Longer ones than a /64 are within one number.
            let bits = network.bits().min(64);
            let rest = u64::MAX.checked_shr(bits.into()).unwrap_or(0);
            let first = number(network.address()) & !rest;
            let rank = Rank { bits: network.bits(), order, zone };
            let of_family = if network.address().is_ipv4() { &mut v4 } else { &mut v6 };
            of_family.push(Span { first, last: first | rest, rank });
        }
        Self {
            v4: Steps::new(v4, NO_ZONE, |rank| rank.zone),
            v6: Steps::new(v6, NO_ZONE, |rank| rank.zone),
        }
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

/// The longest network counts, and of equal ones the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    bits: u8,
    order: usize,
    zone: u32,
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
