//! The share of an answer that stays within the asker's own system, and what that costs: a virtual tracker with swarms and
//! systems of published shapes, whose answers are those of the real code.
//!
//! ```text
//! cargo test -p tidegate-tracker --test locality -- --nocapture
//! ```
//!
//! Peers are distributed over torrents as on a public tracker (Zipf–Mandelbrot, exponent 0.92), and over systems by
//! Zipf's law, so that the largest of 5,000 has a tenth of all peers. "Regional" means that half of the torrents have
//! peers of one of 20 countries only. A leecher is taken to load as much from each peer of its list.

#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use tidegate_tracker::{
    AnnouncePolicy, AnnounceRequest, IpPrefix, ListenerPolicyId, Near, Options, Policy, Random,
    RequestKind, Secrets, Tracker, ZoneNetwork, Zones,
};
use types::{Announce, Families, InfoHash, NumWant, PeerId, Tick};

const SYSTEMS: u32 = 5000;
const COUNTRIES: u32 = 20;
/// Networks of 256 addresses that all systems have together; the first one is 16.0.0.0/24.
const NETWORKS: f64 = 400_000.0;
const FIRST_NETWORK: u32 = 16 << 16;
const WANT: u16 = 50;

/// The systems: where their networks begin, and what share of the peers they and those before them have.
struct Systems {
    first_networks: Vec<u32>,
    shares: Vec<f64>,
}

#[derive(Clone, Copy)]
struct Peer {
    torrent: u32,
    system: u32,
    address: Ipv4Addr,
    is_seeder: bool,
}

/// The properties of the answers to all peers.
#[derive(Debug, Default)]
struct Outcome {
    /// Mean share of a leecher's list that is in its own system.
    inside: f64,
    /// The same for leechers of the ten largest systems.
    inside_large: f64,
    /// Share of the leechers that have any other peer of their system in the torrent.
    possible: f64,
    /// Peers that are not connected to the largest part of their torrent.
    apart: usize,
    /// Distinct systems in a list of 50, on average.
    systems: f64,
    /// The times that the peer that is given most often is given, as a multiple of its torrent's mean.
    most_given: f64,
    /// Peers in the lists of torrents with more than 50 others, on average.
    length: f64,
}

fn unit(random: &mut Random) -> f64 {
    f64::from(random.below(1 << 30)) / f64::from(1 << 30)
}

impl Systems {
    fn new() -> Self {
        let all: f64 = (1..=SYSTEMS).map(|rank| 1.0 / f64::from(rank)).sum();
        let (mut first_networks, mut shares) = (vec![FIRST_NETWORK], Vec::new());
        let mut sum = 0.0;
        for rank in 1..=SYSTEMS {
            let share = 1.0 / f64::from(rank) / all;
            sum += share;
            shares.push(sum);
            first_networks
                .push(first_networks[shares.len() - 1] + (share * NETWORKS).ceil() as u32);
        }
        Self { first_networks, shares }
    }

    fn draw(&self, random: &mut Random, country: Option<u32>) -> u32 {
        loop {
            let at = unit(random);
            let system = self.shares.partition_point(|share| *share < at) as u32;
            if system < SYSTEMS && country.is_none_or(|country| system % COUNTRIES == country) {
                return system;
            }
        }
    }

    fn address(&self, system: u32, random: &mut Random) -> Ipv4Addr {
        let [first, end] = [system, system + 1].map(|it| self.first_networks[it as usize]);
        let network = first + random.below(end - first);
        Ipv4Addr::from_bits(network << 8 | (1 + random.below(254)))
    }

    fn zones(&self) -> Zones {
        let of_system = |system: u32| {
            let [first, end] = [system, system + 1].map(|it| self.first_networks[it as usize]);
            (first..end).map(move |network| ZoneNetwork {
                network: IpPrefix::v4(Ipv4Addr::from_bits(network << 8), 24),
                zone: system,
            })
        };
        Zones::new((0..SYSTEMS).flat_map(of_system))
    }
}

/// Draws the torrent of a peer, as `Spread::Real` of the load tester does.
fn draw_torrent(torrents: u32, random: &mut Random) -> u32 {
    let (all, power) = (f64::from(torrents), 1.0 - 0.92);
    let flat = (all * 6e-5).max(1.0);
    let (low, high) = (flat.powf(power), (all + flat).powf(power));
    ((low + unit(random) * (high - low)).powf(1.0 / power) - flat).min(all - 1.0).max(0.0) as u32
}

fn peers(systems: &Systems, count: u32, is_regional: bool) -> Vec<Peer> {
    let mut random = Random::new(11);
    let mut addresses = BTreeSet::new();
    let mut peers = Vec::new();
    while peers.len() < count as usize {
        let torrent = draw_torrent(count / 5, &mut random);
        let country = (is_regional && torrent.is_multiple_of(2)).then_some(torrent / 2 % COUNTRIES);
        let system = systems.draw(&mut random, country);
        let address = systems.address(system, &mut random);
        if addresses.insert((torrent, address)) {
            peers.push(Peer { torrent, system, address, is_seeder: random.below(10) < 3 });
        }
    }
    peers
}

/// Announces a peer, and returns the addresses that it gets.
fn announce(
    tracker: &Tracker,
    random: &mut Random,
    (now, want): (u32, u16),
    peer: &Peer,
) -> Vec<Ipv4Addr> {
    let view = tracker.view(Tick(now));
    let from = peer.address.into();
    let grant =
        view.authorize_unverified(ListenerPolicyId(0), from, RequestKind::Announce, None).unwrap();
    let mut info_hash = [7; 20];
    info_hash[..4].copy_from_slice(&peer.torrent.to_be_bytes());
    let announce = Announce {
        left: Some(u64::from(!peer.is_seeder)),
        want: NumWant::Peers(want),
        ..Announce::new(InfoHash(info_hash), PeerId([1; 20]), 6881)
    };
    let policy = AnnouncePolicy { peers_max: 50, families: Families::Both, with_downloads: false };
    let request = AnnounceRequest { grant, via_local_address: false, announce, policy };
    let mut found = Vec::new();
    view.announce(random, &[request], &mut |_, answer| {
        answer.unwrap().answer.each_v4(|run| {
            found.extend(run.iter().map(|peer| match peer.key().socket_addr().ip() {
                std::net::IpAddr::V4(ip) => ip,
                std::net::IpAddr::V6(ip) => panic!("{ip}"),
            }));
        });
    });
    found
}

/// Returns an empty tracker with fixed secrets.
fn tracker() -> Tracker {
    Tracker::new(&Options::predictable(Policy::default()), &Secrets::PUBLIC)
}

/// Returns the lists that all peers get.
fn lists(peers: &[Peer], zones: &Zones, percent: u8) -> Vec<Vec<Ipv4Addr>> {
    let tracker = tracker();
    let mut random = Random::new(5);
    peers.iter().for_each(|peer| _ = announce(&tracker, &mut random, (0, 0), peer));
    let (own, systems) = (Zones::default(), zones.clone());
    tracker.set_near((percent > 0).then(|| Arc::new(Near { percent, own, systems })));
    peers.iter().map(|peer| announce(&tracker, &mut random, (1800, WANT), peer)).collect()
}

fn outcome(peers: &[Peer], lists: &[Vec<Ipv4Addr>], zones: &Zones) -> Outcome {
    let mut torrents: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, peer) in peers.iter().enumerate() {
        torrents.entry(peer.torrent).or_default().push(number);
    }
    let mut outcome = Outcome::default();
    let (mut leechers, mut of_large, mut long) = (0.0, 0.0, 0.0);
    for members in torrents.values() {
        let mut of_system: BTreeMap<u32, u32> = BTreeMap::new();
        members.iter().for_each(|it| *of_system.entry(peers[*it].system).or_default() += 1);
        for member in members {
            let (peer, list) = (&peers[*member], &lists[*member]);
            let systems: Vec<_> = list.iter().map(|ip| zones.find((*ip).into())).collect();
            if members.len() > usize::from(WANT) + 1 {
                long += 1.0;
                outcome.length += list.len() as f64;
                outcome.systems += systems.iter().collect::<BTreeSet<_>>().len() as f64;
            }
            if peer.is_seeder || list.is_empty() {
                continue;
            }
            let near = systems.iter().filter(|system| **system == Some(peer.system)).count();
            let share = near as f64 / list.len() as f64;
            leechers += 1.0;
            outcome.inside += share;
            outcome.possible += f64::from(u8::from(of_system[&peer.system] > 1));
            if peer.system < 10 {
                of_large += 1.0;
                outcome.inside_large += share;
            }
        }
        if members.len() > usize::from(WANT) + 1 {
            outcome.add_graph(peers, lists, members);
        }
    }
    outcome.inside /= leechers;
    outcome.possible /= leechers;
    outcome.inside_large /= of_large;
    outcome.systems /= long;
    outcome.length /= long;
    outcome
}

impl Outcome {
    /// Adds what the lists of a torrent say about its graph of connections.
    fn add_graph(&mut self, peers: &[Peer], lists: &[Vec<Ipv4Addr>], members: &[usize]) {
        let place: BTreeMap<Ipv4Addr, usize> =
            members.iter().enumerate().map(|(at, it)| (peers[*it].address, at)).collect();
        let mut parts: Vec<usize> = (0..members.len()).collect();
        let mut given = vec![0_u32; members.len()];
        let root = |parts: &mut Vec<usize>, mut at: usize| {
            while parts[at] != at {
                parts[at] = parts[parts[at]];
                at = parts[at];
            }
            at
        };
        for (at, member) in members.iter().enumerate() {
            for ip in &lists[*member] {
                let other = place[ip];
                given[other] += 1;
                let (one, other) = (root(&mut parts, at), root(&mut parts, other));
                parts[one] = other;
            }
        }
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for at in 0..members.len() {
            *sizes.entry(root(&mut parts, at)).or_default() += 1;
        }
        self.apart += members.len() - sizes.values().max().unwrap();
        let mean = f64::from(given.iter().sum::<u32>()) / given.len() as f64;
        let most = f64::from(given.iter().copied().max().unwrap_or(0)) / mean;
        self.most_given = self.most_given.max(most);
    }
}

fn simulate(count: u32, is_regional: bool, percents: &[u8]) -> Vec<Outcome> {
    let systems = Systems::new();
    let zones = systems.zones();
    let peers = peers(&systems, count, is_regional);
    percents.iter().map(|it| outcome(&peers, &lists(&peers, &zones, *it), &zones)).collect()
}

#[test]
#[expect(clippy::disallowed_macros, reason = "the table of bench/record")]
fn more_of_a_list_is_inside_and_no_peer_is_apart() {
    for (swarms, is_regional) in [("worldwide", false), ("half regional", true)] {
        let outcomes = simulate(10_000, is_regional, &[0, 20]);
        for (percent, it) in [0, 20].iter().zip(&outcomes) {
            println!(
                "| {swarms} | {percent} | {:.1} % | {:.1} % | {:.1} % | {:.1} | {:.1} × | {:.2} | {} |",
                it.inside * 100.0,
                it.inside_large * 100.0,
                it.possible * 100.0,
                it.systems,
                it.most_given,
                it.length,
                it.apart
            );
        }
        let [plain, near] = &outcomes[..] else { panic!("two outcomes") };
        assert!(near.inside > plain.inside + 0.008, "{plain:?} {near:?}");
        assert!(near.inside_large > plain.inside_large + 0.02, "{plain:?} {near:?}");
        assert_eq!((plain.apart, near.apart), (0, 0));
        assert!(near.length > plain.length - 0.5, "{plain:?} {near:?}");
    }
}
