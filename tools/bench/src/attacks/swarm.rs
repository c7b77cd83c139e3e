//! A torrent with 100 honest peers, and one host that announces 20,000.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::nats::{Nats, Operator};
use harness::{Directory, wait_for};

use super::proxied::{self, Announce, Client, Proxy, SETTINGS, honest, translated};
use super::{HELD, HONEST, Outcome, Target};
use crate::figures::percent;
use crate::lab::{Api, RunningTracker, free_address};
use crate::record::Figures;

const HONEST_PEERS: u32 = 100;
const ATTACKERS: u32 = 20_000;
const ANSWERS: u32 = 10;
const WANTED: u32 = 50;
const TORRENT: [u8; 20] = [0x5a; 20];
/// Announces of the attacker at a node of a cluster before the next one's turn. The nodes tell each other of
/// them meanwhile.
const TURN: u32 = 100;
/// How long nodes of a cluster have to start, and to hear each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests at once from an address: more than a burst of the default rate allows.
const REQUESTS: u32 = 70_000;
const BATCH: u32 = 64;
/// Honest clients of a network, and announces of one of their neighbours: as many as the network may have peers.
const NEIGHBOURS: Range<u32> = 0..40;
const ATTACKS: Range<u32> = 0..64;
/// More than two units of the ages that the tracker compares, so that the honest peers are the oldest.
const SILENCE: Duration = Duration::from_secs(36);
/// What is measured is the torrent, not the rates of requests.
const WITHOUT_RATES: [(&str, &str); 2] =
    [("TIDEGATE_LIMITS__ANNOUNCES_PER_S", "0"), ("TIDEGATE_LIMITS__CONNECTS_PER_S", "0")];

/// An attack on a torrent.
struct Scene {
    case: &'static str,
    /// The addresses of the n-th peer of the attacker, and of the n-th honest client.
    attacker: fn(u32) -> SocketAddr,
    honest: fn(u32) -> SocketAddr,
}

/// Peers of one network, in a torrent of their own.
struct Neighbourhood {
    case: &'static str,
    honest: Vec<SocketAddr>,
    attackers: Vec<SocketAddr>,
}

const SCENES: [Scene; 4] = [
    Scene { case: "torrent, one IPv4 address", attacker: one_address, honest: honest_v4 },
    Scene {
        case: "torrent, one IPv4 address behind a translator",
        attacker: |number| translated(one_address(number)),
        honest: |number| translated(honest_v4(number)),
    },
    Scene {
        case: "torrent, one /64",
        attacker: |number| in_network(0x2001_0db9_0001_0000, number),
        honest: honest_v6,
    },
    Scene {
        case: "torrent, /64s of one /48",
        attacker: |number| in_network(0x2001_0db9_0002_0000 + u64::from(number), 1),
        honest: honest_v6,
    },
];

pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let settings = [&SETTINGS[..], &WITHOUT_RATES].concat();
    let attack = |scene: &Scene| {
        let (tracker, _api) = target.start(&settings)?;
        scene.drown(&[Proxy::new(tracker.address)?], || Ok(()))
    };
    SCENES.iter().map(attack).collect()
}

/// Attacks a torrent at two nodes of a cluster, whose clients come to one of them.
pub(super) fn attack_cluster(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let nats = Nats::start(1)?;
    let folder = Directory::new()?;
    // The own program sets the cluster up, as operators do. Earlier builds have no such command.
    let program = &target.lab.tidegate()?.tracker.path;
    let servers = [nats.address(0).to_string()];
    let operator = Operator::init(program, &folder.path("operator"), "attacked", &servers)?;
    operator.run("set size 64MiB")?;
    let start = |number: u8| -> Result<(RunningTracker, Api)> {
        let join = operator.invite_without_user(number)?;
        let join = join.to_str().context("a path in UTF-8")?;
        let cluster = [("TIDEGATE_CLUSTER__JOIN", join)];
        target.start_at(free_address()?, &[&SETTINGS[..], &WITHOUT_RATES, &cluster].concat())
    };
    let (mut nodes, mut apis): (Vec<_>, Vec<_>) = [start(1)?, start(2)?].into_iter().unzip();
    let mut wait = |metric: &str, labels: &[(&str, &str)], is_so: fn(f64) -> bool| {
        for api in &mut apis {
            wait_for(PATIENCE, metric, || {
                Ok::<_, anyhow::Error>(is_so(api.metric(metric, labels)?))
            })?;
        }
        Ok(())
    };
    wait("tidegate_cluster_nodes", &[("state", "alive")], |nodes| nodes == 2.0)?;
    let proxies = nodes.iter_mut().map(|node| Proxy::new(node.address));
    let proxies = proxies.collect::<Result<Vec<_>>>()?;
    let scene = Scene {
        case: "torrent of a cluster, one IPv4 address at two nodes",
        attacker: one_address,
        honest: honest_v4,
    };
    let outcome = scene.drown(&proxies, || {
        // Blocks are cut some times a second, and applied as they come.
        std::thread::sleep(Duration::from_secs(2));
        wait("tidegate_cluster_unstored_seconds", &[], |seconds| seconds < 1.0)
    })?;
    Ok(vec![outcome])
}

/// Has an address behind a translator use up its rate, and then others announce that share the translator.
pub(super) fn attack_rates(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let (tracker, _api) = target.start(&SETTINGS)?;
    let proxy = Proxy::new(tracker.address)?;
    let honest = |number| proxy.connect(translated(honest_v4(number)));
    let clients: Vec<Client> = (0..HONEST_PEERS).map(honest).collect::<Result<_>>()?;
    let attacker = proxy.connect(translated(one_address(0)))?;
    proxy.set_patience(Duration::from_millis(20))?;
    let announce = Announce { info_hash: TORRENT, left: 1, want: 0 };
    let mut held = 0;
    for _ in 0..REQUESTS / BATCH {
        held += proxy.announce_all((0..BATCH).map(|_| (attacker, announce)))?;
    }
    proxy.set_patience(Duration::from_secs(1))?;
    let served = proxy.announce_all(clients.into_iter().map(|client| (client, announce)))?;
    let part = f64::from(served) / f64::from(HONEST_PEERS);
    let figures = Figures::default().with(HONEST, part).with(HELD, held.into());
    let text = format!("{held} requests of the attacker served, {} of the honest", percent(part));
    Ok(vec![("requests, IPv4 addresses behind a translator", figures, text)])
}

/// Has neighbours of honest clients announce when these have been silent for a while.
pub(super) fn attack_neighbours(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let (tracker, _api) = target.start(&[&SETTINGS[..], &WITHOUT_RATES].concat())?;
    let proxy = Proxy::new(tracker.address)?;
    let v4 = |host: u32| SocketAddr::from(((0x5db8_d800 + host).to_be_bytes(), 6881));
    // An honest client has a /56 of its own, the attacker /64s of another one.
    let v6 = |subnet: u32| in_network(0x2001_0db9_0003_0000 + u64::from(subnet), 1);
    let scenes = [
        Neighbourhood {
            case: "neighbours, 8 addresses of an IPv4 /24",
            honest: NEIGHBOURS.map(|number| v4(1 + number)).collect(),
            attackers: ATTACKS.map(|number| v4(200 + number % 8)).collect(),
        },
        Neighbourhood {
            case: "neighbours, a /56 of a /48",
            honest: NEIGHBOURS.map(|number| v6(number << 8)).collect(),
            attackers: ATTACKS.map(|number| v6(0xff00 + number)).collect(),
        },
    ];
    for (torrent, scene) in (1..).zip(&scenes) {
        let announce = Announce { info_hash: [torrent; 20], left: 1, want: 0 };
        for peer in &scene.honest {
            proxy.announce(proxy.connect(*peer)?, announce)?;
        }
    }
    std::thread::sleep(SILENCE);
    let mut outcomes = Vec::new();
    for (torrent, Neighbourhood { case, honest, mut attackers }) in (1..).zip(scenes) {
        let announce = Announce { info_hash: [torrent; 20], left: 1, want: 0 };
        for (port, peer) in (7000..).zip(&mut attackers) {
            peer.set_port(port);
            proxy.announce(proxy.connect(*peer)?, announce)?;
        }
        let asker = proxied::honest(0, honest[0].is_ipv4());
        let (honest_seen, _) = ask(&proxy, announce.info_hash, &honest, asker)?;
        let (attackers_seen, _) = ask(&proxy, announce.info_hash, &attackers, asker)?;
        let part = f64::from(honest_seen) / honest.len() as f64;
        let figures = Figures::default().with(HONEST, part).with(HELD, attackers_seen.into());
        let all = honest.len();
        let text = format!("{honest_seen} of {all} neighbours, {attackers_seen} attackers seen");
        outcomes.push((case, figures, text));
    }
    Ok(outcomes)
}

impl Scene {
    /// Has all announce, the attacker at one tracker after the other, and asks each of them for peers. `settle`
    /// waits until trackers that share the torrent know the same.
    fn drown(&self, proxies: &[Proxy], settle: impl FnOnce() -> Result<()>) -> Result<Outcome> {
        let announce = Announce { info_hash: TORRENT, left: 1, want: 0 };
        for (number, proxy) in (0..HONEST_PEERS).zip(proxies.iter().cycle()) {
            proxy.announce(proxy.connect((self.honest)(number))?, announce)?;
        }
        let mut last: Vec<Option<Client>> = vec![None; proxies.len()];
        for number in 0..ATTACKERS {
            let turn = (number / TURN) as usize % proxies.len();
            let (proxy, last) = (&proxies[turn], &mut last[turn]);
            let address = (self.attacker)(number);
            let client = match last.and_then(|last| last.at(address)) {
                Some(client) => client,
                None => proxy.connect(address)?,
            };
            *last = Some(client);
            proxy.announce(client, announce)?;
        }
        settle()?;
        let honest = Vec::from_iter((0..HONEST_PEERS).map(self.honest));
        let asker = (self.honest)(HONEST_PEERS);
        let seen = proxies.iter().map(|proxy| ask(proxy, TORRENT, &honest, asker));
        let seen = seen.collect::<Result<Vec<_>>>()?;
        let (seen, all): (Vec<u32>, Vec<u32>) = seen.into_iter().unzip();
        let seen = seen.into_iter().min().context("no tracker")?;
        let all = all.into_iter().max().context("no tracker")?;
        let part = f64::from(seen) / f64::from(HONEST_PEERS);
        let held = f64::from(all.saturating_sub(HONEST_PEERS + 1));
        let figures = Figures::default().with(HONEST, part).with(HELD, held);
        let text =
            format!("{} of the honest peers seen, {held} of the attacker's kept", percent(part));
        Ok((self.case, figures, text))
    }
}

/// Returns how many of the honest peers are in ten answers, and how many peers there are, with the asker.
fn ask(
    proxy: &Proxy,
    info_hash: [u8; 20],
    honest: &[SocketAddr],
    asker: SocketAddr,
) -> Result<(u32, u32)> {
    let honest: HashSet<Vec<u8>> = honest.iter().copied().map(wire).collect();
    let asker = proxy.connect(asker)?;
    let (mut seen, mut all) = (HashSet::new(), 0);
    for _ in 0..ANSWERS {
        let announce = Announce { info_hash, left: 1, want: WANTED };
        let answer = proxy.announce(asker, announce)?;
        all = answer.leechers + answer.seeders;
        seen.extend(answer.peers.into_iter().filter(|peer| honest.contains(peer)));
    }
    Ok((seen.len() as u32, all))
}

/// Returns the n-th port of an address.
fn one_address(number: u32) -> SocketAddr {
    SocketAddr::from(([93, 184, 216, 34], 20_000 + number as u16))
}

fn honest_v4(number: u32) -> SocketAddr {
    honest(number, true)
}

fn honest_v6(number: u32) -> SocketAddr {
    honest(number, false)
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
