//! Counts of a torrent's peers by client software, time since the last announce, and network.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use tracker::{IpPrefix, PeerInfo};

use crate::clients;
use utoipa::ToSchema;

/// Client software and networks listed; the others are left out.
const ROWS_MAX: usize = 10;
/// Upper ends of the ages that are counted together, seconds.
const AGES_S: [u32; 5] = [60, 300, 900, 1800, 3600];
/// Bits of the networks that peers are counted by, as in limits per network.
const NETWORK_BITS: (u8, u8) = (24, 48);

/// Counts of a torrent's peers.
#[derive(Serialize, ToSchema)]
pub(super) struct Breakdown {
    /// Peers counted here: all, or if there are more than 1000, a share of each family and role.
    counted: usize,
    /// By client software, as far as peer ids are known; at most 10, most peers first.
    clients: Vec<ClientCount>,
    /// By time since the last announce.
    ages: Vec<AgeCount>,
    /// By network, as far as addresses are known: IPv4 /24, IPv6 /48; at most 10, most peers first.
    networks: Vec<NetworkCount>,
}

#[derive(Serialize, ToSchema)]
struct ClientCount {
    /// The software; absent: unrecognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    peers: usize,
}

#[derive(Serialize, ToSchema)]
struct AgeCount {
    /// Up to this many seconds, and more than the entry before; absent: all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to_s: Option<u32>,
    peers: usize,
}

#[derive(Serialize, ToSchema)]
struct NetworkCount {
    /// In CIDR notation.
    network: String,
    peers: usize,
}

impl Breakdown {
    pub(super) fn of(peers: &[PeerInfo]) -> Self {
        let clients = peers.iter().filter_map(|peer| peer.id).map(|id| {
            let prefix = id.0.first_chunk();
            prefix.and_then(clients::name).map(|(name, _)| name)
        });
        let networks = peers.iter().filter_map(|peer| peer.address).map(|address| {
            let ip = address.ip();
            let bits = if ip.is_ipv4() { NETWORK_BITS.0 } else { NETWORK_BITS.1 };
            IpPrefix::new(ip, bits).to_string()
        });
        let clients = most(clients);
        let networks = most(networks);
        Self {
            counted: peers.len(),
            clients: clients.into_iter().map(|(name, peers)| ClientCount { name, peers }).collect(),
            ages: ages(peers),
            networks: networks
                .into_iter()
                .map(|(network, peers)| NetworkCount { network, peers })
                .collect(),
        }
    }
}

fn ages(peers: &[PeerInfo]) -> Vec<AgeCount> {
    let mut counts = [0; AGES_S.len() + 1];
    for peer in peers {
        counts[AGES_S.partition_point(|up_to_s| *up_to_s < peer.age_s)] += 1;
    }
    let ends = AGES_S.into_iter().map(Some).chain([None]);
    ends.zip(counts).map(|(up_to_s, peers)| AgeCount { up_to_s, peers }).collect()
}

/// Returns the names that occur most, with how often they do.
fn most<T: Ord>(names: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts = BTreeMap::<T, usize>::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.truncate(ROWS_MAX);
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use types::{PeerId, Role};

    use super::*;

    #[test]
    fn counts_clients_ages_and_networks() {
        let peer = |address: Option<&str>, age_s, id: Option<&[u8; 20]>| PeerInfo {
            address: address.map(|address| address.parse().unwrap()),
            role: Role::Seeder,
            age_s,
            id: id.map(|id| PeerId(*id)),
        };
        let (qb, other) = (b"-qB5010-aaaaaaaaaaaa", b"M7-9-2--aaaaaaaaaaaa");
        let peers = [
            peer(Some("192.0.2.1:1"), 60, Some(qb)),
            peer(Some("192.0.2.200:1"), 61, Some(other)),
            peer(Some("[2001:db8:1:2::1]:1"), 0, Some(qb)),
            peer(None, 5000, None),
        ];
        let found = serde_json::to_value(Breakdown::of(&peers)).unwrap();
        assert_eq!(
            found,
            json!({
                "counted": 4,
                "clients": [{ "name": "qBittorrent", "peers": 2 }, { "peers": 1 }],
                "ages": [
                    { "up_to_s": 60, "peers": 2 }, { "up_to_s": 300, "peers": 1 },
                    { "up_to_s": 900, "peers": 0 }, { "up_to_s": 1800, "peers": 0 },
                    { "up_to_s": 3600, "peers": 0 }, { "peers": 1 }
                ],
                "networks": [
                    { "network": "192.0.2.0/24", "peers": 2 },
                    { "network": "2001:db8:1::/48", "peers": 1 }
                ],
            })
        );
    }

    #[test]
    fn lists_the_ten_with_the_most_peers() {
        let names = (0..30_u32).flat_map(|name| (0..=name).map(move |_| name));
        let most = most(names);
        assert_eq!((most.len(), most[0], most[9]), (10, (29, 30), (20, 21)));
    }
}
