//! Validates announce responses.

use std::net::IpAddr;

use client::AnnounceResponse;
use serde::{Deserialize, Serialize};

use crate::population::{TorrentPeer, Workload};

/// Number of validated responses, and faults found in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Validated announce responses.
    pub checked: u64,
    /// Responses that contain the requester's own address.
    pub own_address: u64,
    /// Peers listed more than once in a response.
    pub duplicates: u64,
    /// Peers that cannot have been announced in this run.
    pub unknown_peers: u64,
    /// Responses that list more peers than they count or than were requested, or whose counts
    /// exceed all peers of the run.
    pub bad_counts: u64,
}

/// Validates responses.
#[derive(Default)]
pub(crate) struct Checker {
    /// All source addresses of announces, sorted.
    sources: Vec<u128>,
    /// Peers that may have existed, including those that have left.
    peers: u64,
    seen: Vec<(u128, u16)>,
}

impl Checker {
    pub(crate) fn new(sources: impl Iterator<Item = IpAddr>, peers: u64) -> Self {
        let mut sources: Vec<u128> = sources.map(number).collect();
        sources.sort_unstable();
        sources.dedup();
        Self { sources, peers, seen: Vec::new() }
    }

    /// Counts a peer that replaces one that left.
    pub(crate) fn expect_another_peer(&mut self) {
        self.peers += 1;
    }

    /// Validates the response to `asker`, whose address is `source`.
    pub(crate) fn check(
        &mut self,
        workload: &Workload,
        (asker, source): (TorrentPeer, IpAddr),
        answer: &AnnounceResponse,
        checks: &mut Checks,
    ) {
        checks.checked += 1;
        self.seen.clear();
        self.seen.extend(answer.peers.iter().map(|peer| (number(peer.ip()), peer.port())));
        let count = self.seen.len() as u64;
        // A count that the tracker omits cannot be wrong.
        let all = answer.seeders.unwrap_or(count).saturating_add(answer.leechers.unwrap_or(0));
        let wanted = workload.want.map_or(u64::MAX, u64::from);
        // In the protocols, 0 means the tracker's default.
        let too_many = wanted > 0 && count > wanted;
        checks.bad_counts += u64::from(count > all || all > self.peers || too_many);
        checks.own_address += u64::from(self.seen.contains(&(number(source), asker.port)));
        let unknown = self.seen.iter().filter(|(address, port)| {
            self.sources.binary_search(address).is_err() || !workload.admits(asker.torrent, *port)
        });
        checks.unknown_peers += unknown.count() as u64;
        self.seen.sort_unstable();
        self.seen.dedup();
        checks.duplicates += count - self.seen.len() as u64;
    }
}

fn number(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));

    fn check(peers: &[(IpAddr, u16)], seeders: u64, source: IpAddr) -> Checks {
        let workload = Workload { want: Some(3), ..Workload::default() };
        let mut checker = Checker::new([source].into_iter(), 100);
        let asker = TorrentPeer { torrent: 5, port: port(0) };
        let answer = AnnounceResponse {
            seeders: Some(seeders),
            leechers: Some(1),
            peers: peers.iter().map(|peer| (*peer).into()).collect(),
            ..AnnounceResponse::default()
        };
        let mut checks = Checks::default();
        checker.check(&workload, (asker, source), &answer, &mut checks);
        checks
    }

    /// Returns ports of torrent 5.
    fn port(number: u64) -> u16 {
        Workload::default().port(5, number)
    }

    #[test]
    fn accepts_correct_responses() {
        let fine = Checks { checked: 1, ..Checks::default() };
        for here in [HERE, "::1".parse().unwrap()] {
            assert_eq!(check(&[(here, port(1)), (here, port(2))], 9, here), fine);
            assert_eq!(check(&[], 0, here), fine);
        }
    }

    #[test]
    fn counts_each_fault_once() {
        let (other, one) =
            ("192.0.2.1".parse().unwrap(), Checks { checked: 1, ..Checks::default() });
        for (peers, seeders, expected) in [
            (vec![(HERE, port(0))], 9, Checks { own_address: 1, ..one }),
            (vec![(HERE, port(1)), (HERE, port(1))], 9, Checks { duplicates: 1, ..one }),
            (vec![(other, port(1))], 9, Checks { unknown_peers: 1, ..one }),
            (vec![(HERE, port(1) + 1)], 9, Checks { unknown_peers: 1, ..one }),
            (vec![(HERE, port(1)), (HERE, port(2))], 0, Checks { bad_counts: 1, ..one }),
            (vec![], 100, Checks { bad_counts: 1, ..one }),
            ((1..5).map(|n| (HERE, port(n))).collect(), 9, Checks { bad_counts: 1, ..one }),
        ] {
            assert_eq!(check(&peers, seeders, HERE), expected, "{peers:?}");
        }
    }
}
