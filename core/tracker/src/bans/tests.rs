//! Bans beside a plain list.

use std::collections::BTreeMap;

use primitives::Random;

use super::*;
use crate::Networks;

fn network(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn bans() -> Bans {
    Bans::new([1; 16])
}

#[test]
fn networks_of_the_configuration_hold_beside_bans() {
    let bans = bans();
    let networks = |texts: &[&str]| {
        let networks = Networks::parse(texts.iter().copied()).unwrap();
        NetworkTable::new([(NetworkAction::Deny, networks)])
    };
    let contains = |text: &str| bans.contains(Tick(5), text.parse().unwrap());
    bans.set_networks(networks(&["10.1.0.0/16", "2001:db8::/33", "10.3.0.0/30"]));
    assert!(contains("10.1.2.3") && contains("2001:db8::1") && contains("10.3.0.1"));
    assert!(!contains("10.2.0.0") && !contains("10.3.0.4") && !contains("2001:db8:8000::"));
    assert_eq!((bans.len(), bans.network_ranges()), (0, 3));
    // Bans in, around and beside them.
    let ends = Some(Tick(7));
    bans.put(&[(network("10.1.2.0/24"), ends), (network("10.0.0.0/14"), ends)]);
    bans.put(&[(network("10.9.0.0/16"), None), (network("10.3.0.0/30"), ends)]);
    assert!(contains("10.2.0.0") && contains("10.9.0.0") && contains("10.3.0.4"));
    bans.settle(Tick(8));
    assert!(contains("10.1.2.3") && !contains("10.2.0.0") && contains("10.3.0.1"));
    let ranges = bans.ranges(0).unwrap();
    assert_eq!((ranges.v4.len(), ranges.v6.len()), (3, 1));
    // The same again builds nothing.
    bans.set_networks(networks(&["10.3.0.0/30", "2001:db8::/33", "10.1.0.0/16"]));
    assert_eq!(bans.ranges(ranges.version), None);
    bans.set_networks(NetworkTable::default());
    assert!(!contains("10.1.2.3") && contains("10.9.0.0") && bans.len() == 1);
    bans.remove(&[network("10.9.0.0/16")]);
    assert!(!bans.is_any.load(Ordering::Relaxed));
}

/// Random networks, nested and disjoint, at both ends of the address spaces.
#[test]
fn agrees_with_a_scan_of_all_networks() {
    let mut random = Random::new(3);
    let v4 = |random: &mut Random| {
        let start = [0, 10 << 24, (10 << 24) | (1 << 16), u32::MAX - 8][random.below(4) as usize];
        IpAddr::from(Ipv4Addr::from_bits(start + random.below(9)))
    };
    let v6 = |random: &mut Random| {
        let start = [0, 0x2001 << 112, 0x2001_0001 << 96, u128::MAX - 8][random.below(4) as usize];
        IpAddr::from(Ipv6Addr::from_bits(start + u128::from(random.below(9))))
    };
    for _ in 0..60 {
        let (bans, mut twin) = (bans(), BTreeMap::<IpPrefix, Option<Tick>>::new());
        for now in 0..60 {
            let one = |random: &mut Random| match random.below(2) {
                0 => IpPrefix::new(v4(random), [8, 16, 24, 29, 32][random.below(5) as usize]),
                _ => IpPrefix::new(v6(random), [16, 32, 64, 126, 128][random.below(5) as usize]),
            };
            let count = random.below(4);
            if random.below(3) > 0 {
                let until = (random.below(3) > 0).then(|| Tick(now + random.below(30)));
                let new: Vec<_> = (0..count).map(|_| (one(&mut random), until)).collect();
                assert_eq!(bans.put(&new), new.len());
                twin.extend(new);
            } else {
                let old: Vec<_> = (0..count).map(|_| one(&mut random)).collect();
                let gone = old.iter().filter(|network| twin.remove(network).is_some()).count();
                assert_eq!(bans.remove(&old), gone);
            }
            if random.below(4) == 0 {
                bans.settle(Tick(now));
                twin.retain(|_, until| until.is_none_or(|until| Tick(now) < until));
                assert_eq!(bans.len(), twin.len());
            }
            for _ in 0..40 {
                let ip = if random.below(2) == 0 { v4(&mut random) } else { v6(&mut random) };
                let expected = twin.iter().any(|(network, until)| {
                    IpPrefix::new(ip, network.bits()) == *network
                        && until.is_none_or(|until| Tick(now) < until)
                });
                assert_eq!(bans.contains(Tick(now), ip), expected, "{ip} of {twin:?}");
            }
        }
    }
}

/// edge/xdp passes the smallest network around an IPv6 range: around both of these it would be a /32.
#[test]
fn ranges_that_touch_stay_apart() {
    let bans = bans();
    bans.put(&["2001:db8:7fff::/48", "2001:db8:8000::/48"].map(|text| (network(text), None)));
    assert_eq!(bans.ranges(0).unwrap().v6.len(), 2);
}

#[test]
fn ranges_are_returned_when_they_have_changed() {
    let bans = bans();
    let ranges = |version| {
        let ranges = bans.ranges(version)?;
        let v4 = ranges.v4.iter().map(|(first, last)| format!("{first} {last}"));
        let v6 = ranges.v6.iter().map(|(first, last)| format!("{first} {last}"));
        Some((ranges.version, v4.chain(v6).collect::<Vec<_>>()))
    };
    assert_eq!(ranges(0), None);
    bans.put(&[(network("192.0.2.0/24"), Some(Tick(9))), (network("2001:db8::/32"), None)]);
    let (version, found) = ranges(0).unwrap();
    let v6 = "2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff";
    assert_eq!(found, ["192.0.2.0 192.0.2.255", v6]);
    assert_eq!(ranges(version), None);
    bans.put(&[(network("198.51.100.7"), None)]);
    let (version, found) = ranges(version).unwrap();
    assert_eq!(found, ["192.0.2.0 192.0.2.255", "198.51.100.7 198.51.100.7", v6]);
    bans.settle(Tick(8));
    assert_eq!(ranges(version), None);
    bans.settle(Tick(9));
    assert_eq!(ranges(version).unwrap().1, ["198.51.100.7 198.51.100.7", v6]);
}

fn rules() -> BanRules {
    BanRules { malformed_per_min: 10, wrong_keys_per_min: 0, time_s: 60 }
}

#[test]
fn too_many_offences_ban_for_a_time() {
    let bans = bans();
    let (bad, good) = (network("192.0.2.1"), network("192.0.2.2"));
    let note =
        |count, network, reason| (0..count).for_each(|_| bans.note(Tick(0), network, reason));
    note(100, bad, BanReason::Malformed);
    bans.set_rules(rules());
    note(10, bad, BanReason::Malformed);
    note(10, good, BanReason::Malformed);
    note(100, good, BanReason::WrongKeys);
    bans.settle(Tick(0));
    assert!(bans.is_empty(), "within the rules");
    note(2, bad, BanReason::Malformed);
    bans.settle(Tick(0));
    assert!(bans.contains(Tick(59), bad.address()) && !bans.contains(Tick(60), bad.address()));
    assert!(!bans.contains(Tick(0), good.address()));
    let mut taken = Vec::new();
    bans.take_automatic(&mut taken);
    bans.take_automatic(&mut taken);
    assert_eq!(taken, [(bad, Some(Tick(60)), BanReason::Malformed)]);
    bans.settle(Tick(60));
    assert!(bans.is_empty());
}

#[test]
fn offences_do_not_change_an_operators_ban() {
    let bans = bans();
    bans.set_rules(rules());
    let bad = network("192.0.2.1");
    bans.put(&[(bad, None)]);
    (0..50).for_each(|_| bans.note(Tick(0), bad, BanReason::Malformed));
    bans.settle(Tick(100));
    assert!(bans.contains(Tick(1000), bad.address()));
    assert_eq!(bans.remove(&[bad]), 1);
    assert!(!bans.contains(Tick(0), bad.address()));
}

#[test]
fn automatic_bans_are_bounded() {
    let bans = bans();
    bans.set_rules(BanRules { wrong_keys_per_min: 1, ..rules() });
    let most = limits::BANS_AUTOMATIC_MAX as u32;
    for number in 0..most + 1000 {
        let network = IpPrefix::from(IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
        (0..2).for_each(|_| bans.note(Tick(0), network, BanReason::WrongKeys));
    }
    assert_eq!(bans.len(), most as usize);
    bans.put(&[(network("192.0.2.0/24"), None)]);
    assert_eq!(bans.len(), most as usize + 1, "operators' bans have room of their own");
    let mut taken = Vec::new();
    bans.take_automatic(&mut taken);
    assert_eq!(taken.len(), FRESH_MAX);
    bans.settle(Tick(60));
    assert_eq!(bans.len(), 1);
}
