//! A torrent with 100 honest peers, and one host that announces 20,000.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::proxied::{Announce, Client, Proxy, SETTINGS, honest};
use super::{HELD, HONEST, Outcome, Target};
use crate::figures::percent;
use crate::record::Figures;

const HONEST_PEERS: u32 = 100;
const ATTACKERS: u32 = 20_000;
const ANSWERS: u32 = 10;
const WANTED: u32 = 50;
const TORRENT: [u8; 20] = [0x5a; 20];

/// Where the attacker's peers are: the case, and the address of the n-th.
type Attacker = (&'static str, fn(u32) -> SocketAddr);

const ATTACKERS_AT: [Attacker; 3] = [
    ("torrent, one IPv4 address", |number| {
        SocketAddr::from(([93, 184, 216, 34], 20_000 + number as u16))
    }),
    ("torrent, one /64", |number| in_network(0x2001_0db9_0001_0000, number)),
    ("torrent, /64s of one /48", |number| in_network(0x2001_0db9_0002_0000 + u64::from(number), 1)),
];

pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    ATTACKERS_AT.iter().map(|(case, address)| drown(target, case, *address)).collect()
}

fn drown(
    target: &Target<'_>,
    case: &'static str,
    address: fn(u32) -> SocketAddr,
) -> Result<Outcome> {
    let mut settings = SETTINGS.to_vec();
    // What is measured is the torrent, not the rates of requests.
    settings.extend([
        ("TIDEGATE_LIMITS__ANNOUNCES_PER_S", "0"),
        ("TIDEGATE_LIMITS__CONNECTS_PER_S", "0"),
    ]);
    let (tracker, _api) = target.start(&settings)?;
    let proxy = Proxy::new(tracker.address)?;
    let is_v4 = address(0).is_ipv4();
    let announce = Announce { info_hash: TORRENT, left: 1, want: 0 };
    for number in 0..HONEST_PEERS {
        proxy.announce(proxy.connect(honest(number, is_v4))?, announce)?;
    }
    let mut last: Option<Client> = None;
    for number in 0..ATTACKERS {
        let address = address(number);
        let client = match last.and_then(|last| last.at(address)) {
            Some(client) => client,
            None => proxy.connect(address)?,
        };
        last = Some(client);
        proxy.announce(client, announce)?;
    }
    let honest_peers: HashSet<Vec<u8>> =
        (0..HONEST_PEERS).map(|number| wire(honest(number, is_v4))).collect();
    let asker = proxy.connect(honest(HONEST_PEERS, is_v4))?;
    let mut seen = HashSet::new();
    let mut all = 0;
    for _ in 0..ANSWERS {
        let answer = proxy.announce(asker, Announce { want: WANTED, ..announce })?;
        all = answer.leechers + answer.seeders;
        seen.extend(answer.peers.into_iter().filter(|peer| honest_peers.contains(peer)));
    }
    let part = seen.len() as f64 / f64::from(HONEST_PEERS);
    let held = f64::from(all.saturating_sub(HONEST_PEERS + 1));
    let figures = Figures::default().with(HONEST, part).with(HELD, held);
    Ok((
        case,
        figures,
        format!("{} of the honest peers seen, {held} of the attacker's kept", percent(part)),
    ))
}

fn in_network(network: u64, host: u32) -> SocketAddr {
    SocketAddr::from((((u128::from(network) << 64) + u128::from(host)).to_be_bytes(), 6881))
}

fn wire(address: SocketAddr) -> Vec<u8> {
    let mut wire = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    wire.extend(address.port().to_be_bytes());
    wire
}
