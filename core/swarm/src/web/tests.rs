//! WebTorrent peers beside a naive model, in torrents that have IP peers, too.

mod nodes;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use primitives::Random;
use replication::AGE_UNIT_S;
use types::{ConnectionKey, InfoHash, PeerId, PeerKey, Role, SwarmCounts, Tick, TooSoon, WebPeer};

use super::{Host, RelayTargets};
use crate::tests::{ROLES, options, update, web_update};
use crate::{Action, Options, PeerCaps, Store, StoreAnnounce, StoreWebAnnounce};

const WEB_LIFETIME_S: u32 = 10 * AGE_UNIT_S;
const TORRENTS: u8 = 12;
const UPDATE: Action = Action::Update { completed: false };

fn store() -> Store {
    Store::new(&Options {
        peer_lifetime_s: 400 * AGE_UNIT_S,
        web_lifetime_s: WEB_LIFETIME_S,
        keep_peer_ids: false,
        ..options(2)
    })
}

/// An IP leecher announces; returns the counts of the answer.
fn announce_plain(store: &Store, now: Tick, torrent: u8, action: Action) -> SwarmCounts {
    let peer = PeerKey::V4([10, 0, 0, 1, 1, 1]);
    let request = StoreAnnounce { action, ..update(torrent, peer, Role::Leecher) };
    let mut counts = SwarmCounts::default();
    store.announce(now, &mut Random::new(1), &[request], &mut |_, answer| {
        counts = answer.expect("no minimal interval").counts;
    });
    counts
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

/// The expected role, and whether the download has been counted.
#[derive(Default)]
struct Model {
    peers: BTreeMap<(u8, u64, u8), (Role, bool)>,
    downloads: [u32; TORRENTS as usize],
}

impl Model {
    /// Returns true if the announce counts as a download.
    fn take(&mut self, request: &StoreWebAnnounce) -> bool {
        let torrent = request.info_hash.0[0];
        let key = (torrent, request.peer.connection.0, request.peer.peer_id.0[0]);
        let Action::Update { completed } = request.action else {
            self.peers.remove(&key);
            return false;
        };
        let counted = self.peers.get(&key).is_some_and(|(_, counted)| *counted);
        self.downloads[torrent as usize] += u32::from(completed && !counted);
        self.peers.insert(key, (request.role, counted || completed));
        completed && !counted
    }

    fn of(&self, torrent: u8) -> Vec<(WebPeer, Role)> {
        let all = self.peers.range((torrent, 0, 0)..(torrent + 1, 0, 0));
        all.map(|((_, connection, id), (role, _))| (peer(*connection, *id), *role)).collect()
    }

    /// Checks the counts and targets of an announce, in a torrent with one IP leecher.
    fn check(&self, request: &StoreWebAnnounce, counts: SwarmCounts, chosen: &RelayTargets) {
        let torrent = request.info_hash.0[0];
        let all = self.of(torrent);
        let count =
            |wanted: fn(Role) -> bool| all.iter().filter(|(_, role)| wanted(*role)).count() as u32;
        assert_eq!(counts.web.seeders, count(|role| role == Role::Seeder));
        assert_eq!(counts.web.leechers, count(|role| role != Role::Seeder));
        assert_eq!(counts.partial_seeds, count(|role| role == Role::PartialSeed));
        assert_eq!(counts.downloads, self.downloads[torrent as usize]);
        assert_eq!(counts.leechers(), counts.web.leechers + 1);
        let is_of_use = |(peer, role): &&(WebPeer, Role)| {
            *peer != request.peer && (request.role == Role::Leecher || *role != Role::Seeder)
        };
        let mut of_use: Vec<WebPeer> =
            all.iter().filter(is_of_use).map(|(peer, _)| *peer).collect();
        assert_eq!(chosen.len(), of_use.len().min(request.want.into()));
        for peer in chosen {
            let at = of_use.iter().position(|other| other == peer).expect("one of them, once");
            of_use.swap_remove(at);
        }
    }
}

#[test]
fn agrees_with_a_naive_model() {
    let (store, mut model) = (store(), Model::default());
    let (mut random, mut sample_seed) = (Random::new(6), Random::new(5));
    // A torrent without peers may be removed, with its download count: an IP peer keeps each.
    for torrent in 0..TORRENTS {
        announce_plain(&store, Tick(0), torrent, UPDATE);
    }
    for round in 0..10_000_u32 {
        let torrent = sample_seed.below(TORRENTS.into()) as u8;
        let peer = peer(sample_seed.below(90).into(), sample_seed.below(2) as u8);
        let role = ROLES[sample_seed.below(3) as usize];
        let completed = role == Role::Seeder && sample_seed.below(4) == 0;
        let request = match sample_seed.below(5) {
            0 => web_request(torrent, peer, role, Action::Stop, 0),
            _ => web_request(
                torrent,
                peer,
                role,
                Action::Update { completed },
                sample_seed.below(12) as u16,
            ),
        };
        let downloaded = model.take(&request);
        let mut chosen = RelayTargets::new();
        let summary = store.announce_web(Tick(0), &mut random, &request, &mut chosen).unwrap();
        assert_eq!(summary.downloaded, downloaded);
        model.check(&request, summary.counts, &chosen);
        if round % 100 == 0 {
            store.sweep(Tick(0), 10);
        }
    }
    let totals = store.totals();
    assert_eq!(totals.web.seeders + totals.web.leechers, model.peers.len() as u64);
    for (torrent, connection, id) in model.peers.into_keys() {
        store.leave_web(&InfoHash([torrent; 20]), peer(connection, id));
    }
    assert_eq!(store.totals().web, Default::default());
    assert_eq!(store.totals().partial_seeds, 0);
}

#[test]
fn silent_peers_expire_and_empty_torrents_with_them() {
    let (store, mut random) = (store(), Random::new(1));
    let mut announce = |now: u32, connection: u64| {
        let request = web_request(1, peer(connection, 0), Role::Leecher, UPDATE, 0);
        store.announce_web(Tick(now), &mut random, &request, &mut RelayTargets::new()).unwrap()
    };
    (0..1000).for_each(|connection| _ = announce(0, connection));
    announce_plain(&store, Tick(0), 1, UPDATE);
    let late = WEB_LIFETIME_S + 2 * AGE_UNIT_S;
    (0..300).for_each(|connection| _ = announce(late, connection));
    let sweep = |now: u32| (0..3).for_each(|_| store.sweep(Tick(now), 1));
    sweep(WEB_LIFETIME_S);
    assert_eq!(store.totals().web.leechers, 1000, "no peer expires early");
    sweep(late);
    assert_eq!(store.totals().web.leechers, 300);
    assert_eq!(store.totals().v4.leechers, 1, "plain peers live longer");
    assert_eq!(store.totals().expired, 700);
    sweep(late + late);
    assert_eq!((store.totals().web.leechers, store.totals().torrents), (0, 1));
    sweep(410 * AGE_UNIT_S);
    assert_eq!(store.totals().torrents, 0);
}

#[test]
fn too_soon_announces_change_nothing() {
    let (store, mut random) = (store(), Random::new(1));
    let mut announce = |now: u32, role, action| {
        let spaced =
            StoreWebAnnounce { min_interval_s: 45, ..web_request(1, peer(1, 0), role, action, 0) };
        let done = store.announce_web(Tick(now), &mut random, &spaced, &mut RelayTargets::new());
        done.map(|done| done.counts)
    };
    let leecher = Role::Leecher;
    assert_eq!(announce(0, leecher, UPDATE).unwrap().web.leechers, 1);
    assert_eq!(announce(15, leecher, UPDATE), Err(TooSoon { age_s: 0 }));
    assert_eq!(announce(31, leecher, UPDATE), Err(TooSoon { age_s: 16 }));
    assert!(announce(32, leecher, UPDATE).is_ok(), "rejected announces do not reset its age");
    assert_eq!(announce(33, Role::PartialSeed, UPDATE).unwrap().partial_seeds, 1);
    assert_eq!(announce(34, Role::PartialSeed, UPDATE), Err(TooSoon { age_s: 0 }));
    assert_eq!(announce(34, Role::Seeder, UPDATE).unwrap().web.seeders, 1);
    assert_eq!(announce(35, Role::Seeder, Action::Stop).unwrap().web.seeders, 0);
    assert!(announce(35, leecher, UPDATE).is_ok(), "it is new");
    assert_eq!(store.totals().web.leechers, 1);
}

/// Returns an address of a few networks with a few hosts each.
fn random_address(random: &mut Random) -> IpAddr {
    let (network, host) = (random.below(3) as u8, random.below(4) as u8);
    match random.below(4) {
        // Two customers, with two /64s each.
        0 => Ipv6Addr::from([0x2400, 0, network.into(), u16::from(host) * 0x80, 0, 0, 0, 1]).into(),
        1 => Ipv4Addr::new(192, 168, network, host).into(),
        _ => Ipv4Addr::new(20, 0, network, host).into(),
    }
}

#[test]
fn a_new_peer_above_a_cap_replaces_the_oldest_of_its_host_or_of_the_heaviest_customer() {
    const CAPS: PeerCaps = PeerCaps { per_address: 3, per_network: 8 };
    let (store, mut random) = (store(), Random::new(3));
    // Each peer's host, and when it last announced.
    let mut model = BTreeMap::<WebPeer, (Option<Host>, u32)>::new();
    let (mut targets, mut replaced) = (RelayTargets::new(), 0);
    let inspected = |now| store.inspect(Tick(now), &InfoHash([1; 20]), 1000).unwrap().peers;
    for round in 0..3000_u32 {
        let now = round * AGE_UNIT_S / 32;
        // A client at an address is a connection; ids differ between connections.
        let address = random_address(&mut random);
        let id = random.below(100) as u8;
        let peer = peer(u64::from(id) % 7, id);
        let host = Host::of(address);
        if model.get(&peer).is_some_and(|(other, _)| *other != host) {
            continue;
        }
        if random.below(8) == 0 {
            store.leave_web(&InfoHash([1; 20]), peer);
            model.remove(&peer);
            continue;
        }
        let role = ROLES[random.below(3) as usize];
        let request = StoreWebAnnounce {
            address,
            caps: CAPS,
            min_interval_s: 0,
            ..web_request(1, peer, role, UPDATE, 0)
        };
        store.announce_web(Tick(now), &mut Random::new(1), &request, &mut targets).unwrap();
        let ids: Vec<_> = inspected(now).into_iter().filter_map(|peer| peer.id).collect();
        let gone: Vec<_> =
            model.keys().filter(|peer| !ids.contains(&peer.peer_id)).copied().collect();
        let is_full = |network: bool, cap| {
            let is_near = |other: &Host| match host {
                Some(host) if network => (other.is_v6, other.network) == (host.is_v6, host.network),
                Some(host) => *other == host,
                None => false,
            };
            let near =
                || model.values().filter_map(|(other, seen)| Some((other.filter(is_near)?, *seen)));
            let customers = near().map(|(other, _)| other).chain(host).map(|host| host.customer());
            let weight =
                |host: &Host| customers.clone().filter(|it| *it == host.customer()).count();
            let most =
                near().map(|(other, _)| weight(&other)).chain(host.as_ref().map(weight)).max();
            let heaviest = near().filter(|(other, _)| !network || Some(weight(other)) == most);
            let seen = heaviest.map(|(_, seen)| seen / AGE_UNIT_S);
            (near().count() >= cap).then(|| seen.min().unwrap())
        };
        let oldest = if model.contains_key(&peer) {
            None
        } else {
            is_full(false, 3).or_else(|| is_full(true, 8))
        };
        let gone_at = gone.first().map(|gone| model[gone].1 / AGE_UNIT_S);
        assert_eq!((gone.len(), gone_at), (usize::from(oldest.is_some()), oldest));
        replaced += gone.len() as u64;
        model.retain(|peer, _| !gone.contains(peer));
        model.insert(peer, (host, now));
    }
    assert!(replaced > 100, "{replaced}");
    let totals = store.totals();
    assert_eq!(totals.replaced, replaced);
    assert_eq!(totals.web.seeders + totals.web.leechers, model.len() as u64);
    assert!(model.values().filter(|(host, _)| host.is_none()).count() > 12, "local: no cap");
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
