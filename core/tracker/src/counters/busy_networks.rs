//! The networks that announce most.

use std::net::IpAddr;

use primitives::IpPrefix;

use crate::frequent::Frequent;

/// The networks (IPv4 /24, IPv6 /48) with the most announces in a recent sample, one in
/// [`Clients::ONE_OF`](super::Clients::ONE_OF), for each worker and listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyNetworks {
    known: Frequent<IpPrefix, 64>,
    samples: u32,
}

impl BusyNetworks {
    /// Samples after which all counts are halved, so that the past fades.
    const FADE_AFTER: u32 = 8192;

    /// Counts an announce from this address.
    #[cold]
    pub(super) fn sample(&mut self, from: IpAddr) {
        self.known.count(network(from), 1);
        self.samples += 1;
        if self.samples >= Self::FADE_AFTER {
            self.samples /= 2;
            self.known.fade();
        }
    }

    /// Adds another worker's samples.
    pub fn add(&mut self, other: &Self) {
        for (network, count) in other.known.counts() {
            self.known.count(*network, *count);
        }
        self.samples = self.samples.saturating_add(other.samples);
    }

    /// Returns the recent samples of each known network, and how many samples there are in all.
    pub fn counts(&self) -> (&[(IpPrefix, u32)], u32) {
        (self.known.counts(), self.samples)
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
        (0..100).for_each(|_| one.sample(past));
        (0..10 * BusyNetworks::FADE_AFTER).for_each(|_| one.sample(present));
        assert_eq!(one.counts().0.len(), 1);
        (0..50).for_each(|_| other.sample(past));
        one.add(&other);
        let counts = one.counts().0.to_vec();
        assert_eq!(counts[1], (IpPrefix::new(past, 48), 50));
    }
}
