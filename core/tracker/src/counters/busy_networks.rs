//! The networks that announce most.

use std::net::IpAddr;

use primitives::IpPrefix;

use crate::frequent::Frequent;

/// The networks (IPv4 /24, IPv6 /48) with the most of the recent announces that [`Clients`](super::Clients) looked at, for
/// each worker and listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyNetworks {
    known: Frequent<IpPrefix, 64>,
    announces: u32,
}

impl BusyNetworks {
    /// Announces after which all counts are halved, so that the past fades.
    const FADE_AFTER: u32 = 8192 * 64;

    /// Counts announces as ones from this address.
    #[cold]
    pub(super) fn sample(&mut self, from: IpAddr, announces: u32) {
        self.known.count(network(from), announces);
        self.announces += announces;
        if self.announces >= Self::FADE_AFTER {
            self.announces /= 2;
            self.known.fade();
        }
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        for (network, count) in other.known.counts() {
            self.known.count(*network, *count);
        }
        self.announces = self.announces.saturating_add(other.announces);
    }

    /// Returns the recent announces of each known network, and how many there are in all.
    pub fn counts(&self) -> (&[(IpPrefix, u32)], u32) {
        (self.known.counts(), self.announces)
    }
}

fn network(address: IpAddr) -> IpPrefix {
    IpPrefix::new(address, if address.is_ipv4() { 24 } else { 48 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_fades_and_workers_add_up() {
        let [mut one, mut other] = [BusyNetworks::default(), BusyNetworks::default()];
        let (past, present) = ("2001:db8:1:2::3".parse().unwrap(), "192.0.2.7".parse().unwrap());
        one.sample(past, 100);
        (0..20).for_each(|_| one.sample(present, BusyNetworks::FADE_AFTER / 2));
        assert_eq!(one.counts().0.len(), 1);
        other.sample(past, 50);
        one.add(&other);
        let counts = one.counts().0.to_vec();
        assert_eq!(counts[1], (IpPrefix::new(past, 48), 50));
    }
}
