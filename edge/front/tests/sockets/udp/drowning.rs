//! One host that announces thousands of peers in a torrent, beside honest clients.

use std::collections::BTreeSet;

use super::proxies::Proxy;
use super::*;

const HONEST: u16 = 100;
const ATTACKS: u16 = 20_000;

/// Announces as 100 honest clients, then as 20,000 peers of `attacker`. Returns the number of honest peers
/// in ten answers of 50 peers.
fn honest_peers_seen(
    honest: impl Fn(u16) -> String,
    attacker: impl Fn(u16) -> (String, u16),
) -> usize {
    let proxy = Proxy::start();
    let mut known = (String::new(), 0);
    let mut announce_as = |client: &str, port, want| {
        if known.0 != client {
            known = (client.into(), proxy.connect(client));
        }
        let fields = AnnounceFields { port, want, ..LEECHER };
        proxy.request(client, &announce(known.1, fields))
    };
    (0..HONEST).for_each(|number| drop(announce_as(&honest(number), 6881, 0)));
    for number in 0..ATTACKS {
        let (client, port) = attacker(number);
        announce_as(&client, port, 0);
    }
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        let reply = announce_as(&honest(HONEST), 6881, 50);
        let peers = parse_announce(&reply).2;
        let stride = peers.len() / 50;
        assert!(stride == 6 || stride == 18, "{} bytes of peers", peers.len());
        seen.extend(peers.chunks(stride).map(|peer| peer[..stride - 2].to_vec()));
    }
    let is_seen = |number: &u16| match honest(*number).parse().unwrap() {
        IpAddr::V4(ip) => seen.contains(&ip.octets()[..]),
        IpAddr::V6(ip) => seen.contains(&ip.octets()[..]),
    };
    (0..HONEST).filter(is_seen).count()
}

fn honest_v4(number: u16) -> String {
    format!("20.0.{number}.1")
}

fn honest_v6(number: u16) -> String {
    format!("2400:{number:x}::1")
}

#[test]
fn one_address_with_20_000_peers_hides_few_honest_ones() {
    let seen = honest_peers_seen(honest_v4, |number| ("20.9.9.9".into(), number + 1));
    assert!(seen >= 90, "{seen} of 100");
}

#[test]
fn one_v6_subnet_with_20_000_peers_hides_few_honest_ones() {
    let seen = honest_peers_seen(honest_v6, |number| ("2401::1".into(), number + 1));
    assert!(seen >= 90, "{seen} of 100");
}

#[test]
fn one_v6_network_with_20_000_subnets_hides_few_honest_ones() {
    let seen = honest_peers_seen(honest_v6, |number| (format!("2401:0:0:{number:x}::1"), 6881));
    assert!(seen >= 90, "{seen} of 100");
}
