//! Caps on the peers of one host or network in a torrent.

use types::limits;

use super::*;

const CAPS: PeerCaps = PeerCaps { per_address: 8, per_network: 64 };
const TORRENT: u8 = 1;

/// Returns a peer with a public v4 address: `host` of a /24 of its own for each `network`.
fn public_v4(network: u16, host: u8, port: u16) -> PeerKey {
    let [a, b] = network.to_be_bytes();
    PeerKey::new(Ipv4Addr::new(20, a, b, host).into(), port)
}

/// Returns a peer with a public v6 address: in one /64 of a /48 of its own for each `network`.
fn public_v6(network: u16, subnet: u16, port: u16) -> PeerKey {
    let host = port.wrapping_mul(7);
    PeerKey::new(Ipv6Addr::new(0x2400, network, 0, subnet, 0, 0, 0, host).into(), port)
}

fn capped(peer: PeerKey, role: Role) -> StoreAnnounce {
    StoreAnnounce { caps: CAPS, ..update(TORRENT, peer, role) }
}

fn peers_of(store: &Store, now: u32) -> BTreeSet<PeerKey> {
    let details = store.inspect(Tick(now), &InfoHash([TORRENT; 20]), limits::INSPECT_PEERS_MAX);
    let peers = details.map(|details| details.peers).unwrap_or_default();
    let key = |address: std::net::SocketAddr| PeerKey::new(address.ip(), address.port());
    peers.iter().filter_map(|peer| peer.address).map(key).collect()
}

/// Numbers of the host, the customer and the network that an address counts for.
#[derive(PartialEq)]
struct Groups {
    host: u64,
    customer: u64,
    network: u64,
}

fn groups(peer: &PeerKey) -> Groups {
    let number = |bytes: &[u8]| bytes.iter().fold(1, |sum, byte| sum << 8 | u64::from(*byte));
    let [host, customer, network] = match peer {
        PeerKey::V4(key) => [&key[..4], &key[..4], &key[..3]],
        PeerKey::V6(key) => [&key[1..8], &key[1..7], &key[1..6]],
    }
    .map(number);
    Groups { host, customer, network }
}

/// Checks what a new peer replaced: the oldest of its host, or of the customer with the most peers in its network,
/// to 16 seconds.
fn check_replaced(
    twin: &BTreeMap<PeerKey, u32>,
    peer: &PeerKey,
    caps: PeerCaps,
    gone: Option<PeerKey>,
) {
    let Groups { host, customer, network } = groups(peer);
    let members = |is_in: &dyn Fn(&PeerKey) -> bool| -> BTreeMap<PeerKey, u32> {
        let held = twin.iter().filter(|(key, _)| is_in(key));
        held.map(|(key, seen)| (*key, *seen)).collect()
    };
    let of_host = members(&|key| groups(key).host == host);
    let of_network = members(&|key| groups(key).network == network);
    let full = if of_host.len() >= caps.per_address.into() {
        of_host
    } else if of_network.len() >= caps.per_network.into() {
        let weight = |key: &PeerKey| {
            let own = groups(key).customer;
            let others = of_network.keys().filter(|other| groups(other).customer == own).count();
            others + usize::from(own == customer)
        };
        let most = of_network.keys().chain([peer]).map(weight).max();
        members(&|key| groups(key).network == network && Some(weight(key)) == most)
    } else {
        assert_eq!(gone, None, "replaced below the caps");
        return;
    };
    let gone = gone.expect("a peer above a cap replaces another");
    let oldest = full.values().min().expect("a full group has peers");
    let seen = full.get(&gone).expect("only the heaviest of the host or network is replaced");
    assert!(seen / 16 == oldest / 16, "{seen} is younger than {oldest}");
}

/// Drives a torrent with random announces of few hosts, and compares its peers after each with what
/// the caps allow. `ports` decides how large it grows.
fn check_caps(seed: u64, caps: PeerCaps, networks: u32, ports: u32) {
    let rounds = 100 * networks + 400;
    let store = store(1);
    let mut twin = BTreeMap::<PeerKey, u32>::new();
    let mut random = Random::new(seed);
    let (mut now, mut replaced) = (1, 0);
    for _ in 0..rounds {
        now += random.below(9);
        let (network, host) = (random.below(networks) as u16, random.below(12) as u8);
        let port = 1 + random.below(ports) as u16;
        let peer = match random.below(3) {
            // Some of a customer, each with several /64s.
            0 => public_v6(network, u16::from(host % 5) << 8 | u16::from(host), port),
            _ => public_v4(network, host, port),
        };
        let role = ROLES[random.below(3) as usize];
        let action =
            [Action::Stop, Action::Update { completed: false }][random.below(8).min(1) as usize];
        let request = StoreAnnounce { action, caps, ..update(TORRENT, peer, role) };
        announce(&store, now, &[request]);
        let peers = peers_of(&store, now);
        if action == Action::Stop {
            twin.remove(&peer);
        } else {
            let gone: Vec<_> = twin.keys().filter(|key| !peers.contains(key)).copied().collect();
            assert!(gone.len() <= 1, "{gone:?}");
            if !twin.contains_key(&peer) {
                check_replaced(&twin, &peer, caps, gone.first().copied());
            }
            twin.retain(|key, _| !gone.contains(key));
            replaced += gone.len() as u64;
            twin.insert(peer, now);
        }
        assert_eq!(peers, twin.keys().copied().collect());
    }
    let totals = store.totals();
    let count = |family: crate::FamilyTotals| family.seeders + family.leechers;
    assert_eq!(count(totals.v4) + count(totals.v6), twin.len() as u64);
    assert_eq!(totals.replaced, replaced);
    assert!(replaced > 50, "{replaced}");
}

#[test]
fn a_new_peer_above_a_cap_replaces_the_oldest_of_its_host_or_of_the_heaviest_customer() {
    let caps = |per_address, per_network| PeerCaps { per_address, per_network };
    // Inline, dense and paged sets.
    check_caps(1, caps(1, 2), 1, 4);
    check_caps(2, caps(2, 3), 3, 4);
    check_caps(3, CAPS, 2, 60);
    check_caps(4, caps(3, 20), 10, 60);
}

#[test]
fn exempt_and_unlimited_networks_keep_to_the_highest_cap() {
    let store = store(1);
    store.set_exempt(|_| true);
    let peers = (0..5000).map(|number| public_v4(1, number as u8, number + 1));
    let requests: Vec<_> = peers.map(|peer| capped(peer, Role::Leecher)).collect();
    announce(&store, 1, &requests);
    assert_eq!(store.totals().v4.leechers, limits::PEERS_PER_NETWORK_MAX.into());
    store.set_exempt(|_| false);
    let unlimited = PeerCaps::default();
    let peers = (0..5000).map(|number| public_v6(2, number, 6881));
    let requests: Vec<StoreAnnounce> = peers
        .map(|peer| StoreAnnounce { caps: unlimited, ..capped(peer, Role::Leecher) })
        .collect();
    announce(&store, 2, &requests);
    assert_eq!(store.totals().v6.leechers, limits::PEERS_PER_NETWORK_MAX.into());
    // No peer is exempt any more, so those above the cap go.
    let replaced = store.totals().replaced;
    announce(&store, 3, &[capped(public_v4(1, 0, 9999), Role::Leecher)]);
    assert_eq!(store.totals().replaced, replaced + 64);
}

/// Returns how many peers a host has.
fn held_at(store: &Store, now: u32, peer: PeerKey) -> usize {
    peers_of(store, now).iter().filter(|other| groups(other).host == groups(&peer).host).count()
}

#[test]
fn a_lower_cap_removes_the_peers_above_it() {
    let store = store(1);
    let high = PeerCaps { per_address: 200, per_network: 300 };
    let port = |port: u16| public_v4(1, 1, port);
    let all: Vec<_> = (1..=200)
        .map(|number| StoreAnnounce { caps: high, ..capped(port(number), Role::Leecher) })
        .collect();
    announce(&store, 1, &all);
    assert_eq!(held_at(&store, 1, port(1)), 200);
    // Known peers are not counted; a new one makes room, 64 peers at a time.
    announce(&store, 2, &all.iter().map(|one| capped(one.peer, Role::Leecher)).collect::<Vec<_>>());
    let held: Vec<_> = (201..=206)
        .map(|number| {
            announce(&store, 3, &[capped(port(number), Role::Seeder)]);
            held_at(&store, 3, port(1))
        })
        .collect();
    assert_eq!(held, [137, 74, 11, 8, 8, 8]);
}

#[test]
fn exempt_peers_are_not_replaced_and_do_not_fill_their_network() {
    let store = store(1);
    let exempt = public_v4(1, 1, 1);
    store.set_exempt(move |ip| ip == exempt.socket_addr().ip());
    for port in 1..=100 {
        announce(&store, 1, &[capped(public_v4(1, 1, port), Role::Leecher)]);
    }
    let neighbours: Vec<_> = (2..22)
        .flat_map(|host| (1..=8).map(move |port| capped(public_v4(1, host, port), Role::Seeder)))
        .collect();
    announce(&store, 20, &neighbours);
    assert_eq!(held_at(&store, 20, exempt), 100);
    assert_eq!(store.totals().v4.seeders, 64);
}

#[test]
fn addresses_that_are_not_public_have_no_cap() {
    let store = store(1);
    let local = |number: u16| PeerKey::new(Ipv4Addr::LOCALHOST.into(), number + 1);
    let documentation = |number| PeerKey::new("2001:db8::1".parse().unwrap(), number + 1);
    for peer in [&local as &dyn Fn(u16) -> PeerKey, &documentation] {
        let requests: Vec<StoreAnnounce> =
            (0..20_000).map(|number| capped(peer(number), Role::Seeder)).collect();
        announce(&store, 1, &requests);
    }
    assert_eq!(store.totals().v4.seeders, 20_000);
    assert_eq!(store.totals().v6.seeders, 20_000);
    assert_eq!(store.totals().replaced, 0);
}

/// Peers of a network share a page, so pages differ in length. Every peer must still be given to
/// others, wherever in a page it is.
#[test]
fn peers_of_full_networks_are_given_as_often_as_others() {
    let store = store(1);
    let networks = 300;
    for network in 0..networks {
        let members = if network % 2 == 0 { 64 } else { 1 };
        let requests: Vec<StoreAnnounce> = (0..members)
            .map(|host| capped(public_v4(network, host, 6881), Role::Leecher))
            .map(|request| StoreAnnounce { want: 0, ..request })
            .collect();
        announce(&store, 1, &requests);
    }
    let held = u32::from(networks) / 2 * 65;
    assert_eq!(store.totals().v4.leechers, u64::from(held));
    let mut seen: HashMap<PeerKey, u32> = HashMap::new();
    let mut random = Random::new(4);
    let rounds = 40_000;
    for _ in 0..rounds {
        let asking = public_v4(random.below(networks.into()) as u16 / 2 * 2, 1, 6881);
        let answers = answers(&store, 1, &mut random, &[capped(asking, Role::Leecher)]);
        answers[&0].peers.iter().for_each(|peer| *seen.entry(*peer).or_default() += 1);
    }
    assert_eq!(seen.len() as u32, held, "some are never given");
}

#[test]
fn answers_prefer_peers_of_different_networks() {
    for networks in [1, 30, 300] {
        let store = store(1);
        // One network in three has 64 peers: 97 % of all.
        let of_network = |network: u16| {
            let members = if network.is_multiple_of(3) { 64 } else { 1 };
            (0..members).map(move |host| capped(public_v4(network, host, 6881), Role::Leecher))
        };
        let requests: Vec<StoreAnnounce> = (0..networks).flat_map(of_network).collect();
        announce(&store, 1, &requests);
        let want = 20;
        let mut distinct = 0;
        let rounds = 200;
        for round in 0..rounds {
            let asking = capped(public_v4(9999, 1, 1), Role::Leecher);
            let answer = &announce(&store, 2 + round, &[StoreAnnounce { want, ..asking }])[0];
            assert_eq!(answer.peers.len(), usize::from(want));
            let peers: BTreeSet<_> = answer.peers.iter().collect();
            assert_eq!(peers.len(), usize::from(want), "a peer twice");
            distinct +=
                answer.peers.iter().map(|peer| groups(peer).network).collect::<BTreeSet<_>>().len();
        }
        let mean = distinct as f64 / f64::from(rounds);
        match networks {
            1 => assert!(mean == 1.0, "{mean}"),
            _ => assert!(mean > 10.0, "{networks} networks: {mean}"),
        }
    }
}
