//! Peers near the one that announces, in place of some of an answer.
//!
//! An answer is chosen first, as always. Then a part of it is replaced, by near peers of the same family and role: so it
//! has as many as before, and those that stay are a random sample spread over networks, which no
//! peer nearby can influence. Near peers are searched among a bounded number of neighbours from a random start.
//!
//! Plain form: a list of all near peers, of which some are drawn. Departures: the search is bounded, so in a large swarm
//! with few near peers it finds less than there are; and it takes at most one peer of each public network.

use std::net::IpAddr;

use types::{Family, PackedV4, PackedV6};

use super::answer::Chosen;
use super::torrent::{FamilyPeers, Place};
use crate::role::{ByRole, SetRole};

/// Peers examined for each of a role that an answer has, and at most.
const EXAMINED_RATIO: u32 = 8;
const EXAMINED_MAX: u32 = 512;
/// Attempts to choose as many others as are missing because they are near peers too.
const ROUNDS: u32 = 3;

/// The near peers of an answer, and how many others stay.
#[derive(Clone, Debug, Default)]
pub(super) struct NearPeers {
    pub(super) v4: NearOfFamily<PackedV4>,
    pub(super) v6: NearOfFamily<PackedV6>,
}

/// The near peers of one family.
#[derive(Clone, Debug, Default)]
pub(super) struct NearOfFamily<E> {
    pub(super) peers: Vec<E>,
    /// The numbers of peers that are chosen as before.
    pub(super) others: ByRole<u32>,
    /// The number of these that are near peers too, and are left out.
    pub(super) doubled: u32,
}

/// The part of an answer that may be near peers, and which peers these are.
pub(super) struct NearSearch<F> {
    /// Percent of the peers of each family and role, rounded down.
    pub(super) percent: u8,
    pub(super) is_near: F,
}

impl<F: FnMut(IpAddr) -> bool> NearSearch<F> {
    /// Returns the near peers that take the place of chosen ones.
    pub(super) fn run(&mut self, chosen: &Chosen<'_>) -> NearPeers {
        if chosen.record.is_spilled() {
            let v4 = self.family(chosen, Family::V4, chosen.v4);
            NearPeers { v4, v6: self.family(chosen, Family::V6, chosen.v6) }
        } else {
            // So few that an answer has all of them.
            let v4 = NearOfFamily { others: chosen.v4, ..NearOfFamily::default() };
            NearPeers { v4, v6: NearOfFamily { others: chosen.v6, ..NearOfFamily::default() } }
        }
    }

    fn family<E: FamilyPeers>(
        &mut self,
        chosen: &Chosen<'_>,
        family: Family,
        counts: ByRole<u32>,
    ) -> NearOfFamily<E> {
        let mut near = NearOfFamily { peers: Vec::new(), others: counts, doubled: 0 };
        let own = chosen.own.filter(|(own, _)| *own == family).map(|(_, place)| place);
        for role in SetRole::BOTH {
            self.role(chosen, role, own.filter(|place| place.role == role), &mut near);
        }
        near
    }

    fn role<E: FamilyPeers>(
        &mut self,
        chosen: &Chosen<'_>,
        role: SetRole,
        own: Option<Place>,
        near: &mut NearOfFamily<E>,
    ) {
        let set = E::sets(chosen.record.sets())[role];
        let count = near.others[role];
        let available = set.len() - u32::from(own.is_some());
        let most = (count * u32::from(self.percent) / 100) as usize;
        if most == 0 || count >= available {
            return;
        }
        let (arena, seed, skip) =
            (&chosen.shard.arena, chosen.sample_seed, own.map(|it| it.position));
        let examined = (count * EXAMINED_RATIO).min(EXAMINED_MAX);
        let mut found: Vec<E> = Vec::new();
        set.search(arena, skip, seed, examined, |peer| {
            let is_first = || {
                let key = peer.key();
                E::network(key).is_none() || !found.iter().any(|it| it.shares_network(key))
            };
            if (self.is_near)(peer.peer_key().socket_addr().ip()) && is_first() {
                found.push(*peer);
            }
            found.len() < most
        });
        if found.is_empty() {
            return;
        }
        // Of the others, as many more as are near peers: an answer has no peer twice.
        let doubled = |count: u32| {
            let mut doubled = 0;
            set.sample(arena, count, skip, seed, |run| {
                doubled +=
                    run.iter().filter(|it| found.iter().any(|near| near.key() == it.key())).count()
                        as u32;
            });
            doubled
        };
        let left = count - found.len() as u32;
        let (mut others, mut twice) = (left, doubled(left));
        for _ in 0..ROUNDS {
            if others - twice >= left || others >= available {
                break;
            }
            others = (left + twice).min(available);
            twice = doubled(others);
        }
        if others - twice > left {
            // A sample that is spread over networks may be another one, and would be too long.
            (others, twice) = (left, doubled(left));
        }
        near.others[role] = others;
        near.doubled += twice;
        near.peers.append(&mut found);
    }
}
