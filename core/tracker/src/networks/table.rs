//! Networks with what is done about their clients, looked up for each request.
//!
//! Plain form: a list of networks with actions, scanned for each request. Departure: [`Steps`].

use std::net::IpAddr;

use super::Networks;
use crate::steps::{Address, Steps};

/// The action for the clients of a network, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkAction {
    /// They are refused as if the network were banned.
    Deny,
    /// Their announces get a response without peers and with a long interval.
    Quiet,
    /// Their announces get this many peers at most.
    Numwant(u16),
}

/// Networks with actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkTable {
    /// The place of the action from each address on, or [`NONE`].
    v4: Steps<u32, u8>,
    v6: Steps<u128, u8>,
    actions: Vec<NetworkAction>,
    /// The number of ranges of addresses that have an action.
    ranges: usize,
}

/// A range of addresses, and the place of its action.
type Part<A> = (A, A, u8);

/// The place of no action.
const NONE: u8 = u8::MAX;

impl NetworkTable {
    /// Returns a table. An address in networks of several rules gets the most severe of their actions. Rules with
    /// more than 255 different actions are left out, the mildest first.
    pub fn new(rules: impl IntoIterator<Item = (NetworkAction, Networks)>) -> Self {
        let mut rules: Vec<(NetworkAction, Networks)> = rules.into_iter().collect();
        rules.sort_by_key(|(action, _)| *action);
        rules.truncate(usize::from(NONE));
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut covered = Networks::default();
        let count = rules.len();
        let mut actions = Vec::with_capacity(count);
        for ((action, networks), place) in rules.into_iter().zip(0_u8..) {
            let fresh = if covered.is_empty() { networks } else { networks.difference(&covered) };
            v4.extend(fresh.v4.iter().map(|(first, last)| (*first, *last, place)));
            v6.extend(fresh.v6.iter().map(|(first, last)| (*first, *last, place)));
            actions.push(action);
            if actions.len() < count {
                covered = covered.union(&fresh);
            }
        }
        let ranges = v4.len() + v6.len();
        Self { v4: steps(v4), v6: steps(v6), actions, ranges }
    }

    /// Returns the number of ranges of addresses that have an action.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    /// Returns whether no network has an action.
    pub fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    /// Returns the action for a client at `ip`. A v4-mapped v6 address counts as its v4 address.
    #[inline]
    pub fn find(&self, ip: IpAddr) -> Option<NetworkAction> {
        let place = match ip.to_canonical() {
            IpAddr::V4(ip) => self.v4.find(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.find(ip.to_bits()),
        };
        self.actions.get(usize::from(place?)).copied()
    }

    pub(crate) fn denied(&self) -> Networks {
        let place = self.actions.iter().position(|action| *action == NetworkAction::Deny);
        let is_denied = |of: u8| place == Some(of.into());
        let v4 = self.v4.ranges().filter(|(.., place)| is_denied(*place));
        let v6 = self.v6.ranges().filter(|(.., place)| is_denied(*place));
        Networks::from_ranges(
            v4.map(|(first, last, _)| (first, last)).collect(),
            v6.map(|(first, last, _)| (first, last)).collect(),
        )
    }
}

/// Returns the steps of ranges that do not overlap.
fn steps<A: Address>(mut parts: Vec<Part<A>>) -> Steps<A, u8> {
    parts.sort_unstable();
    let mut starts = Vec::with_capacity(2 * parts.len());
    let mut places = Vec::with_capacity(2 * parts.len());
    // The address behind the range before.
    let mut end: Option<A> = None;
    for (first, last, place) in parts {
        if let Some(end) = end.filter(|end| *end < first) {
            starts.push(end);
            places.push(NONE);
        }
        starts.push(first);
        places.push(place);
        end = last.next();
    }
    if let Some(end) = end {
        starts.push(end);
        places.push(NONE);
    }
    Steps::new(starts, places)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use primitives::Random;

    use super::*;

    fn networks(texts: &[String]) -> Networks {
        Networks::parse(texts.iter().map(String::as_str)).unwrap()
    }

    /// Compares random rules with a scan of them.
    #[test]
    fn the_most_severe_action_holds() {
        let mut numbers = Random::new(7);
        let mut random = |below| numbers.below(below);
        let (deny, quiet) = (NetworkAction::Deny, NetworkAction::Quiet);
        let known = [deny, quiet, NetworkAction::Numwant(5), NetworkAction::Numwant(20)];
        for count in [0, 1, 3, 40, 700] {
            let mut rules = Vec::new();
            for action in known {
                let texts: Vec<String> = (0..count)
                    .map(|number| {
                        let (third, bits) = (random(9), random(17));
                        match number % 2 {
                            0 => format!("10.{}.{third}.{}/{}", random(2), random(256), 16 + bits),
                            _ => format!("fd00::{third:x}:{:x}/{}", random(1 << 16), 111 + bits),
                        }
                    })
                    .collect();
                rules.push((action, networks(&texts)));
            }
            let table = NetworkTable::new(rules.clone());
            assert_eq!(table.is_empty(), count == 0);
            let of_rules = |ip: IpAddr| {
                let of = |rule: &(NetworkAction, Networks)| rule.1.contains(ip).then_some(rule.0);
                rules.iter().find_map(of)
            };
            for _ in 0..4000 {
                let v4 = Ipv4Addr::new(10, random(3) as u8, random(10) as u8, random(256) as u8);
                let v6 = format!("fd00::{:x}:{:x}", random(10), random(1 << 16)).parse().unwrap();
                for ip in [IpAddr::V4(v4), v6, [9, 255, 255, 255].into(), [255; 4].into()] {
                    assert_eq!(table.find(ip), of_rules(ip), "{ip}, {count} networks");
                }
            }
            let denied = table.denied();
            for _ in 0..50 {
                let v4 = Ipv4Addr::new(10, random(3) as u8, random(10) as u8, random(256) as u8);
                assert_eq!(denied.contains(v4.into()), of_rules(v4.into()) == Some(deny));
            }
        }
    }

    #[test]
    fn both_ends_of_the_families_have_actions() {
        let texts = ["0.0.0.0/8", "255.255.255.255", "::/8", "ff00::/8"].map(String::from);
        let table = NetworkTable::new([(NetworkAction::Deny, networks(&texts))]);
        let found = |text: &str| table.find(text.parse().unwrap()).is_some();
        assert!(found("0.0.0.0") && found("0.255.255.255") && found("255.255.255.255"));
        assert!(!found("1.0.0.0") && !found("255.255.255.254") && !found("2001:db8::"));
        assert!(found("::1") && found("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
        assert_eq!((table.ranges(), table.denied().len()), (4, 4));
        let whole = networks(&["0.0.0.0/0".into(), "::/0".into()]);
        let whole = NetworkTable::new([(NetworkAction::Quiet, whole)]);
        assert_eq!(whole.find([7; 4].into()), Some(NetworkAction::Quiet));
        assert!(whole.denied().is_empty() && whole.ranges() == 2);
    }
}
