//! The client software that announces, by the prefixes of peer ids (BEP 20), and the networks that announce most.

use std::net::IpAddr;

use primitives::IpPrefix;
use types::PeerId;

use crate::frequent::Frequent;

/// The first bytes of a peer id, where most clients put their name and version: printable, without quotes
/// or backslashes.
pub type ClientPrefix = [u8; 8];

/// The most frequent of recent announces by client software, for each worker and listener.
pub type Clients = Frequent<ClientPrefix, 128>;

/// The same by network (IPv4 /24, IPv6 /48).
pub type BusyNetworks = Frequent<IpPrefix, 64>;

/// Chooses the announces that are looked at. At low rates that is every one; at high ones a sample, in which each
/// announce stands for those since the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Announces since the last one that was looked at.
    passed: u32,
    /// Is added to `passed`: at low rates enough that one announce is looked at.
    ahead: u32,
    /// Announces since the last call of [`Self::adapt`].
    recent: u32,
}

/// Announces for each that is looked at, at high rates.
const ONE_OF: u32 = 64;

impl Sampling {
    /// Counts announces. Returns whether it is time to look at one of them.
    #[inline]
    pub(super) fn pass(&mut self, announces: u32) -> bool {
        self.passed += announces;
        self.passed + self.ahead >= ONE_OF
    }

    /// Returns the number of announces for which the one that is looked at stands.
    #[cold]
    pub(super) fn take(&mut self) -> u32 {
        let passed = std::mem::take(&mut self.passed);
        self.recent = self.recent.saturating_add(passed);
        passed
    }

    /// Looks at every announce from now on if there were few since the last call, else at one of many. Call a few
    /// times a second.
    pub(super) fn adapt(&mut self) {
        self.ahead = if self.recent < ONE_OF { ONE_OF - 1 } else { 0 };
        self.recent = 0;
    }
}

/// Returns the prefix of a peer id if it is printable.
pub(super) fn prefix(PeerId(id): &PeerId) -> Option<ClientPrefix> {
    let prefix = *id.first_chunk()?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    prefix.iter().all(is_plain).then_some(prefix)
}

pub(super) fn network(address: IpAddr) -> IpPrefix {
    IpPrefix::new(address, if address.is_ipv4() { 24 } else { 48 })
}

#[cfg(test)]
mod tests {
    use super::super::Counters;
    use super::*;

    /// Counts announces of one client, one by one. Returns how many were looked at.
    fn announce(counters: &mut Counters, prefix: &[u8; 8], times: u32) -> usize {
        let mut id = [7; 20];
        id[..8].copy_from_slice(prefix);
        let mut looked_at = 0;
        for _ in 0..times {
            counters.announced(1, || {
                looked_at += 1;
                Some((PeerId(id), [192, 0, 2, 7].into()))
            });
        }
        looked_at
    }

    #[test]
    fn every_announce_is_counted_at_low_rates() {
        let mut counters = Counters::default();
        counters.sampling.adapt();
        for round in 0..20 {
            announce(&mut counters, b"-qB5000-", 2);
            announce(&mut counters, b"-TR4000-", round % 2);
            announce(&mut counters, b"-qB\"00}-", 1);
            counters.sampling.adapt();
        }
        let Counters { clients, busy_networks, .. } = counters;
        assert_eq!(clients.counts(), [(*b"-qB5000-", 40), (*b"-TR4000-", 10)]);
        assert_eq!((clients.total(), clients.others()), (70, 20));
        assert_eq!(busy_networks.counts(), [(IpPrefix::new([192, 0, 2, 0].into(), 24), 70)]);
    }

    #[test]
    fn one_of_many_stands_for_all_at_high_rates() {
        let mut counters = Counters::default();
        counters.sampling.adapt();
        announce(&mut counters, b"-qB5000-", ONE_OF);
        counters.sampling.adapt();
        assert_eq!(announce(&mut counters, b"-qB5000-", 10 * ONE_OF), 10);
        assert_eq!(counters.clients.counts(), [(*b"-qB5000-", 11 * ONE_OF)]);
        // Batches of several.
        let sampling = &mut counters.sampling;
        assert!(!sampling.pass(50) && sampling.pass(40));
        assert_eq!(sampling.take(), 90);
        sampling.adapt();
        sampling.adapt();
        assert!(sampling.pass(1), "the rate is low again");
    }
}
