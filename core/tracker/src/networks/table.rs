//! Networks with what is done about their clients, looked up for each request.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::Networks;
use crate::steps::{Address, Span, Steps};

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
        for ((_, networks), place) in rules.iter().zip(0..) {
            v4.extend(spans(&networks.v4, place));
            v6.extend(spans(&networks.v6, place));
        }
        let v4 = Steps::new(v4, NONE, |Reverse(place)| place);
        let v6 = Steps::new(v6, NONE, |Reverse(place)| place);
        let ranges = v4.ranges().filter(|(.., place)| *place != NONE).count()
            + v6.ranges().filter(|(.., place)| *place != NONE).count();
        Self { v4, v6, actions: rules.into_iter().map(|(action, _)| action).collect(), ranges }
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

/// Iterates over the networks of an action, of which the first place counts.
fn spans<A: Address>(ranges: &[(A, A)], place: u8) -> impl Iterator<Item = Span<A, Reverse<u8>>> {
    let rank = Reverse(place);
    ranges.iter().map(move |(first, last)| Span { first: *first, last: *last, rank })
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
}
