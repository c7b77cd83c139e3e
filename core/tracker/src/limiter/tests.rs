//! The table compared with a map, and in floods that overflow it.

use std::collections::HashMap;

use std::net::{Ipv4Addr, Ipv6Addr};

use primitives::Random;

use super::buckets::TIME_BITS;
use super::*;
use crate::Policy;

impl Limiter {
    /// Counts a request as [`crate::View`] does.
    fn admits(&self, now: Tick, from: IpAddr, kind: RequestKind) -> bool {
        let limits = &self.settings.load().limits;
        self.take(limits, now, from, kind) || limits.exempt.contains(from)
    }
}

fn rate(per_s: u32, burst: u32) -> Rate {
    Rate { per_s, burst }
}

fn limiter(limits: Limits) -> Limiter {
    let limiter = Limiter::new([9; 16], SharedSettings::new(Policy::default()));
    limiter.replace(limits);
    limiter
}

fn announces(rate: Rate) -> Limits {
    Limits { announces: rate, ..Limits::default() }
}

fn v4(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

/// Returns how many of `count` announces are admitted.
fn admitted(limiter: &Limiter, now: u32, from: IpAddr, count: u32) -> u32 {
    let admits = |_: &u32| limiter.admits(Tick(now), from, RequestKind::Announce);
    (0..count).filter(admits).count() as u32
}

/// The plain form of the table.
#[derive(Default)]
struct Twin(HashMap<u64, (u32, u32)>);

impl Twin {
    fn take(&mut self, name: u64, now: u32, rate: Rate) -> bool {
        let (debt, at) = self.0.entry(name).or_default();
        *debt = debt.saturating_sub((now - *at).saturating_mul(rate.per_s));
        *at = now;
        if *debt >= rate.burst {
            return false;
        }
        *debt += 1;
        true
    }
}

#[test]
fn agrees_with_a_map_while_all_prefixes_have_room() {
    for seed in 1..20 {
        let mut random = Random::new(seed);
        let names: Vec<u64> = (0..100).map(|_| random.next()).collect();
        let rate = rate(1 + random.below(20), 1 + random.below(40));
        let rate = Rate { burst: rate.burst.max(rate.per_s), ..rate };
        let (buckets, mut twin) = (Buckets::new(1 << 12), Twin::default());
        // Across the end of a bucket's clock.
        let mut now = (1 << TIME_BITS) - 1000;
        for step in 0..20_000 {
            now += u32::from(random.below(100) == 0) * random.below(5);
            let name = names[random.below(100) as usize];
            let expected = twin.take(name, now, rate);
            assert_eq!(buckets.take(name, Tick(now), rate), expected, "seed {seed}, step {step}");
        }
        let in_debt = |(debt, at): &&(u32, u32)| *debt > (now - at).saturating_mul(rate.per_s);
        let expected = twin.0.values().filter(in_debt).count();
        assert_eq!(buckets.in_use(Tick(now), rate.per_s), expected);
    }
}

#[test]
fn each_kind_has_its_own_rate_and_zero_is_unlimited() {
    let limiter = limiter(Limits {
        connects: rate(1, 3),
        scrapes: rate(1, 2),
        others: rate(1, 4),
        ..announces(rate(1, 1))
    });
    let count = |kind| (0..9).filter(|_| limiter.admits(Tick(0), v4(1), kind)).count();
    let labels = limiter.table_usages(Tick(0)).iter().map(|usage| usage.label).collect::<Vec<_>>();
    assert_eq!(labels, ["connect", "announce", "scrape", "other"]);
    assert_eq!(RequestKind::ALL.map(count), [3, 1, 2, 9, 4]);
    limiter.replace(announces(Rate::default()));
    assert_eq!(RequestKind::ALL.map(count), [9; 5]);
    assert!(limiter.table_usages(Tick(0)).is_empty());
}

#[test]
fn clients_are_counted_by_prefix() {
    let limiter = limiter(announces(rate(1, 1)));
    let ask = |text: &str| limiter.admits(Tick(0), text.parse().unwrap(), RequestKind::Announce);
    assert!(ask("192.0.2.1") && !ask("192.0.2.1") && !ask("::ffff:192.0.2.1"));
    assert!(ask("192.0.2.2"));
    assert!(ask("2001:db8::1") && !ask("2001:db8::2") && !ask("2001:db8::ffff:0:0:0"));
    assert!(ask("2001:db8:0:1::1"));
    for (prefix_v6, own, other) in [
        (48, "2001:db8:0:ffff::", "2001:db8:1::"),
        (0, "::1", "10.0.0.0"),
        (128, "2001:db8::", "2001:db8::1"),
    ] {
        let limits = Limits { prefix_v6, ..announces(rate(1, 1)) };
        let limiter = self::limiter(limits);
        let ask =
            |text: &str| limiter.admits(Tick(0), text.parse().unwrap(), RequestKind::Announce);
        assert!(ask("2001:db8::") && !ask(own) && ask(other), "/{prefix_v6}");
    }
}

#[test]
fn exempt_networks_have_no_limit() {
    let exempt = Networks::parse(["10.0.0.0/8"]).unwrap();
    let limiter = limiter(Limits { connections: 1, exempt, ..announces(rate(1, 1)) });
    assert_eq!(admitted(&limiter, 0, [10, 0, 0, 1].into(), 100), 100);
    assert_eq!(admitted(&limiter, 0, [11, 0, 0, 1].into(), 100), 1);
    let connections = [(); 3].map(|()| limiter.permit([10, 0, 0, 1].into(), None));
    assert!(connections.iter().all(Result::is_ok));
}

#[test]
fn counts_outlive_a_change_of_the_rate() {
    let limiter = limiter(announces(rate(1, 50)));
    assert_eq!(admitted(&limiter, 0, v4(1), 100), 50);
    limiter.replace(announces(rate(60, 1)));
    assert_eq!(admitted(&limiter, 0, v4(1), 100), 10, "the burst is at least the rate");
    limiter.replace(announces(Rate::default()));
    limiter.replace(announces(rate(1, 70)));
    assert_eq!(admitted(&limiter, 0, v4(1), 100), 10);
}

/// Forty times as many addresses as the table holds make one request each, or more than their limit.
/// Clients below the limit are never limited. A flooder is limited as if the others were not there; if all
/// are flooders, it is forgotten now and then.
#[test]
fn flood_of_sources_hides_no_flooder_and_limits_no_other_client() {
    for (strangers_requests, flooded_max) in [(1, 20 + 19 * 10), (25, 40_000 / 20)] {
        let limiter = limiter(Limits { buckets: 1 << 10, ..announces(rate(10, 20)) });
        let (flooder, client) = (v4(1), v4(2));
        let (mut flooded, mut refused, mut stranger) = (0, 0, 0x0100_0000);
        for now in 0..20 {
            for _ in 0..2000 {
                admitted(&limiter, now, v4(stranger), strangers_requests);
                flooded += admitted(&limiter, now, flooder, 1);
                stranger += 1;
            }
            refused += 10 - admitted(&limiter, now, client, 10);
        }
        assert_eq!(refused, 0, "with {strangers_requests} requests of each stranger");
        assert!(
            flooded <= flooded_max,
            "{flooded} while with {strangers_requests} requests of each stranger"
        );
    }
}

#[test]
fn earlier_clock_of_another_worker_drains_nothing() {
    let limiter = limiter(announces(rate(10, 10)));
    assert_eq!(admitted(&limiter, 7, v4(1), 10), 10);
    assert_eq!(admitted(&limiter, 6, v4(1), 10), 0);
    assert_eq!(admitted(&limiter, 7, v4(1), 10), 0);
}

#[test]
fn connections_are_counted_while_they_last() {
    let limiter = limiter(Limits { connections: 2, ..Limits::default() });
    let v6 = |host: u128| IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) | host));
    let connections =
        (limiter.permit(v4(1), None), limiter.permit(v6(1), None), limiter.permit(v6(2), None));
    assert!(connections.0.is_ok() && connections.1.is_ok() && connections.2.is_ok());
    assert!(limiter.permit(v6(3), None).is_err());
    assert!(limiter.permit(v6(1 << 64), None).is_ok() && limiter.permit(v4(1), None).is_ok());
    assert_eq!(limiter.permits.holders(), [2, 0]);
    // Permits are released under the prefix that they were counted under.
    limiter.replace(Limits { connections: 1, prefix_v6: 32, ..Limits::default() });
    drop(connections);
    assert_eq!(limiter.permits.holders(), [0, 0]);
    // Connections opened while there was no limit do not count.
    limiter.replace(Limits::default());
    let early = [v4(1), v4(1)].map(|ip| limiter.permit(ip, None));
    limiter.replace(Limits { connections: 1, ..Limits::default() });
    let late = limiter.permit(v4(1), None);
    assert!(late.is_ok() && limiter.permit(v4(1), None).is_err());
    drop(early);
    assert!(limiter.permit(v4(1), None).is_err());
    drop(late);
    assert!(limiter.permit(v4(1), None).is_ok());
    assert_eq!(limiter.permits.holders(), [0, 0]);
}

#[test]
fn one_network_holds_no_more_than_its_share() {
    let limiter = limiter(Limits { connections: 5, network_connections: 100, ..Limits::default() });
    // Subnets from 0 to 65,535 are the /64s of one /48.
    let v6 =
        |subnet: u128| IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) | subnet << 64 | 1));
    let mut held: Vec<ConnectionPermit> =
        (0..200).filter_map(|subnet| limiter.permit(v6(subnet), None).ok()).collect();
    assert_eq!((held.len(), limiter.permits.holders()), (100, [100, 1]));
    assert_eq!(limiter.permit(v6(0xffff), None).err(), Some(PermitDenied::Network));
    // The next /48, and IPv4, are not affected.
    assert!(limiter.permit(v6(0x1_0000), None).is_ok() && limiter.permit(v4(1), None).is_ok());
    held.pop();
    assert!(limiter.permit(v6(0xffff), None).is_ok());
    drop(held);
    assert_eq!(limiter.permits.holders(), [0, 0]);
    // The prefix is checked first, and the /24 of IPv4 as the /48 of IPv6.
    limiter.replace(Limits { connections: 5, network_connections: 7, ..Limits::default() });
    let all: Vec<_> = (0..2)
        .flat_map(|host| (0..10).map(move |_| v4(host)))
        .map(|ip| limiter.permit(ip, None))
        .collect();
    let denied = |reason| all.iter().filter(|one| one.as_ref().err() == Some(&reason)).count();
    assert_eq!([PermitDenied::Prefix, PermitDenied::Network].map(denied), [5, 8]);
    assert!(limiter.permit(v4(256), None).is_ok() && limiter.permit(v4(255), None).is_err());
}

#[test]
fn one_network_holds_no_more_than_its_share_of_a_listener() {
    let limits = Limits { connections: 100, network_connections: 20, ..Limits::default() };
    let limiter = limiter(limits);
    let share = |port, connections_max| ListenerShare {
        address: ([192, 0, 2, 1], port).into(),
        connections_max,
        worker_max: 100,
    };
    let [small, other, tiny] = [share(1, 25), share(2, 50), share(3, 1)];
    let take = |share: &ListenerShare| -> Vec<_> {
        (0..30).filter_map(|host| limiter.permit(v4(host), Some(share)).ok()).collect()
    };
    let held = take(&small);
    assert_eq!(held.len(), 5);
    assert_eq!(limiter.permit(v4(9), Some(&small)).err(), Some(PermitDenied::Network));
    // Other listeners and other networks have room, up to the share of all.
    assert!(limiter.permit(v4(256), Some(&small)).is_ok());
    let more = (take(&other), take(&tiny));
    assert_eq!((more.0.len(), more.1.len()), (10, 1));
    let rest: Vec<_> = (0..30).filter_map(|host| limiter.permit(v4(host), None).ok()).collect();
    assert_eq!(rest.len(), 4);
    drop((held, more, rest));
    assert_eq!(limiter.permits.holders(), [0, 0]);
    // Without a limit there is no share.
    limiter.replace(Limits { connections: 100, ..Limits::default() });
    assert_eq!(take(&tiny).len(), 30);
}

#[test]
fn network_is_no_smaller_than_the_prefix() {
    let limiter = limiter(Limits { network_connections: 1, prefix_v6: 32, ..Limits::default() });
    let permit = |text: &str| limiter.permit(text.parse().unwrap(), None);
    let held = permit("2001:db8::1");
    assert!(held.is_ok() && permit("2001:db8:ffff::1").is_err());
    assert!(permit("2001:db9::1").is_ok());
}
