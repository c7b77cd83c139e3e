//! The networks that announce most.

use std::net::IpAddr;

use primitives::IpPrefix;

/// The networks (IPv4 /24, IPv6 /48) with the most announces in a recent sample, one in
/// [`Clients::ONE_OF`](super::Clients::ONE_OF).
///
/// A Misra-Gries summary: any network with more than one in 65 of the samples is in the table, however many
/// others there are, and its count is at most that share too low.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyNetworks {
    known: Vec<(IpPrefix, u32)>,
    samples: u32,
}

impl BusyNetworks {
    /// Networks with a count of their own, for each worker and listener.
    const KNOWN_MAX: usize = 64;
    /// Samples after which all counts are halved, so that the past fades.
    const FADE_AFTER: u32 = 8192;

    /// Counts an announce from this address.
    #[cold]
    pub(super) fn sample(&mut self, from: IpAddr) {
        self.count(network(from), 1);
        self.samples += 1;
        if self.samples >= Self::FADE_AFTER {
            self.samples /= 2;
            self.known.iter_mut().for_each(|(_, count)| *count /= 2);
            self.known.retain(|(_, count)| *count > 0);
        }
    }

    fn count(&mut self, network: IpPrefix, times: u32) {
        if let Some((_, count)) = self.known.iter_mut().find(|(known, _)| *known == network) {
            *count += times;
        } else if self.known.len() < Self::KNOWN_MAX {
            self.known.push((network, times));
        } else {
            self.known.iter_mut().for_each(|(_, count)| *count = count.saturating_sub(times));
            self.known.retain(|(_, count)| *count > 0);
        }
    }

    /// Adds another worker's samples.
    pub fn add(&mut self, other: &Self) {
        other.known.iter().for_each(|(network, count)| self.count(*network, *count));
        self.samples = self.samples.saturating_add(other.samples);
    }

    /// Returns the recent samples of each known network, and how many samples there are in all.
    pub fn counts(&self) -> (&[(IpPrefix, u32)], u32) {
        (&self.known, self.samples)
    }
}

fn network(address: IpAddr) -> IpPrefix {
    IpPrefix::new(address, if address.is_ipv4() { 24 } else { 48 })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn finds_a_busy_network_in_a_crowd() {
        let mut networks = BusyNetworks::default();
        for number in 0..4000 {
            networks.sample(Ipv4Addr::from_bits(0x0a00_0000 + (number << 8)).into());
            if number % 10 == 0 {
                networks.sample(Ipv4Addr::new(192, 0, 2, number as u8).into());
            }
        }
        let (known, samples) = networks.counts();
        assert_eq!(samples, 4400);
        let busy = known.iter().max_by_key(|(_, count)| *count).unwrap();
        assert_eq!(busy.0.to_string(), "192.0.2.0/24");
        assert!(busy.1 > 400 - 4400 / 65, "{busy:?}");
    }

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
