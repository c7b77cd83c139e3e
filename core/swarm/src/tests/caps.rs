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
#[derive(Clone, Copy, PartialEq)]
struct Groups {
    host: u64,
    customer: u64,
    network: u64,
}

fn groups(ip: IpAddr) -> Option<Groups> {
    let number = |bytes: &[u8]| bytes.iter().fold(1, |sum, byte| sum << 8 | u64::from(*byte));
    match ip {
        IpAddr::V4(ip) if ip.is_private() => None,
        IpAddr::V4(ip) => {
            let host = number(&ip.octets());
            Some(Groups { host, customer: host, network: number(&ip.octets()[..3]) })
        }
        IpAddr::V6(ip) => {
            let [_, address @ ..] = ip.octets();
            let [host, customer, network] = [7, 6, 5].map(|len| number(&address[..len]));
            Some(Groups { host, customer, network })
        }
    }
}

/// A stored peer's address, and when it last announced.
pub(crate) type Held = (IpAddr, u32);

/// Checks which of the peers `held` a new one replaced: the oldest of its host, or of the customer with the most
/// peers in its network, to 16 seconds.
pub(crate) fn check_replaced(held: &[Held], new: IpAddr, caps: PeerCaps, gone: Option<Held>) {
    let Some(own) = groups(new) else { return assert_eq!(gone, None, "local: no cap") };
    let public = held.iter().filter_map(|(ip, seen)| Some((groups(*ip)?, seen / 16)));
    let of_network: Vec<_> = public.filter(|(it, _)| it.network == own.network).collect();
    let is_own = |(it, _): &&(Groups, u32)| it.host == own.host;
    let mut full: Vec<_> = of_network.iter().filter(is_own).collect();
    if full.len() < caps.per_address.into() {
        if of_network.len() < caps.per_network.into() {
            return assert_eq!(gone, None, "replaced below the caps");
        }
        let weight = |customer: u64| {
            let of_customer = of_network.iter().filter(|(it, _)| it.customer == customer);
            of_customer.count() + usize::from(customer == own.customer)
        };
        let most = of_network.iter().map(|(it, _)| weight(it.customer)).max();
        let most = most.max(Some(weight(own.customer)));
        full = of_network.iter().filter(|(it, _)| Some(weight(it.customer)) == most).collect();
    }
    let (ip, seen) = gone.expect("a peer above a cap replaces another");
    let oldest = full.iter().map(|(_, seen)| *seen).min();
    assert_eq!(Some(seen / 16), oldest, "a younger one was replaced");
    assert!(full.iter().any(|(it, _)| Some(*it) == groups(ip)), "{ip} has too few peers to go");
}

/// Returns an address of a few networks and hosts, some of them local. Some v6 hosts are of one customer.
pub(crate) fn random_address(random: &mut Random, networks: u32, hosts: u32) -> IpAddr {
    let (network, host) = (random.below(networks) as u8, random.below(hosts) as u8);
    let subnet = u16::from(host % 5) << 8 | u16::from(host);
    let interface = random.below(3) as u16;
    match random.below(5) {
        0 => Ipv6Addr::new(0x2400, network.into(), 0, subnet, 0, 0, 0, interface).into(),
        1 => Ipv4Addr::new(192, 168, network, host).into(),
        _ => Ipv4Addr::new(20, 0, network, host).into(),
    }
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
        let address = random_address(&mut random, networks, 12);
        let peer = PeerKey::new(address, 1 + random.below(ports) as u16);
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
                let held_of = |peer: &PeerKey| (peer.socket_addr().ip(), twin[peer]);
                let held: Vec<_> = twin.keys().map(held_of).collect();
                check_replaced(&held, address, caps, gone.first().map(held_of));
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
            let network = |peer: &PeerKey| groups(peer.socket_addr().ip()).unwrap().network;
            distinct += answer.peers.iter().map(network).collect::<BTreeSet<_>>().len();
        }
        let mean = distinct as f64 / f64::from(rounds);
        match networks {
            1 => assert!(mean == 1.0, "{mean}"),
            _ => assert!(mean > 10.0, "{networks} networks: {mean}"),
        }
    }
}
