//! WebTorrent peers, in torrents that have IP peers, too.

mod nodes;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use primitives::Random;
use replication::AGE_UNIT_S;
use replication::block::{WebChange, Word};
use types::{ConnectionKey, InfoHash, PeerId, Role, Tick, WebPeer};

use super::RelayTargets;
use crate::tests::caps::{Held, check_replaced, random_address};
use crate::tests::{ROLES, join, options, web_update};
use crate::{Action, Options, PeerCaps, Store, StoreWebAnnounce};
use nodes::{change, merge, peer_of, take};

const WEB_LIFETIME_S: u32 = 10 * AGE_UNIT_S;
const UPDATE: Action = Action::Update { completed: false };

fn store() -> Store {
    Store::new(&Options {
        peer_lifetime_s: 400 * AGE_UNIT_S,
        web_lifetime_s: WEB_LIFETIME_S,
        keep_peer_ids: false,
        ..options(2)
    })
}

fn peer(connection: u64, id: u8) -> WebPeer {
    WebPeer { connection: ConnectionKey(connection), peer_id: PeerId([id; 20]) }
}

fn web_request(
    torrent: u8,
    peer: WebPeer,
    role: Role,
    action: Action,
    want: u16,
) -> StoreWebAnnounce {
    StoreWebAnnounce { action, want, ..web_update(torrent, peer, role) }
}

#[test]
fn a_new_peer_above_a_cap_replaces_the_oldest_of_its_host_or_of_the_heaviest_customer() {
    const CAPS: PeerCaps = PeerCaps { per_address: 3, per_network: 8 };
    let (store, mut random) = (store(), Random::new(3));
    store.set_node(1);
    store.keep_web_changes(1 << 16);
    // Peers of another node make no room, for their node has admitted them.
    let address = Ipv4Addr::new(20, 0, 0, 0).into();
    let word = Word::present(0, Role::Leecher, false);
    let others = [1, 2, 3, 4].map(|id| WebChange { address, ..change(1, peer_of(2, 1, id), word) });
    assert_eq!(merge(&store, 0, 2, &others).peers, 4);
    let mut model = BTreeMap::<WebPeer, Held>::new();
    let mut replaced = 0;
    for round in 0..3000_u32 {
        let now = round * AGE_UNIT_S / 32;
        // A client at an address is a connection; ids differ between connections.
        let id = random.below(100) as u8;
        let peer = peer_of(1, usize::from(id % 7), id);
        if random.below(8) == 0 {
            store.leave_web(&InfoHash([1; 20]), peer);
            model.remove(&peer);
            continue;
        }
        take(&store);
        let address = model.get(&peer).map_or_else(|| random_address(&mut random, 3, 6), |it| it.0);
        let role = ROLES[random.below(3) as usize];
        let request =
            StoreWebAnnounce { address, caps: CAPS, ..web_request(1, peer, role, UPDATE, 0) };
        join(&store, now, &request);
        let gone: Vec<_> = take(&store).into_iter().filter(|it| it.word.is_gone()).collect();
        let gone = gone.iter().map(|it| model.remove_entry(&it.peer).unwrap()).collect::<Vec<_>>();
        assert!(gone.len() <= 1, "{gone:?}");
        if model.insert(peer, (address, now)).is_none() {
            let mut held = model.clone();
            held.remove(&peer);
            held.extend(gone.iter().copied());
            let held: Vec<_> = held.into_values().collect();
            check_replaced(&held, address, CAPS, gone.first().map(|(_, held)| *held));
        }
        replaced += gone.len() as u64;
    }
    assert!(replaced > 100, "{replaced}");
    let totals = store.totals();
    assert_eq!(totals.replaced, replaced);
    assert_eq!(totals.web.seeders + totals.web.leechers, model.len() as u64 + 4);
}

#[test]
fn every_peer_has_the_same_probability() {
    let (store, mut random) = (store(), Random::new(2));
    for connection in 0..20 {
        let role = if connection % 3 == 0 { Role::Seeder } else { Role::Leecher };
        let request = web_request(9, peer(connection, 1), role, UPDATE, 0);
        store.announce_web(Tick(0), &mut random, &request, &mut RelayTargets::new()).unwrap();
    }
    let mut seen = [0_u32; 20];
    for _ in 0..20_000 {
        let mut chosen = RelayTargets::new();
        let request = web_request(9, peer(99, 1), Role::Leecher, UPDATE, 5);
        store.announce_web(Tick(0), &mut random, &request, &mut chosen).unwrap();
        chosen.iter().for_each(|peer| seen[peer.connection.0 as usize] += 1);
    }
    // 5 of 20 in 20,000 rounds: 5000 each, within five standard deviations.
    assert!(seen.iter().all(|count| (4690..5310).contains(count)), "{seen:?}");
}
