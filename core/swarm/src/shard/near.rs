//! Peers near the one that announces, in place of some of an answer.
//!
//! An answer is chosen first, as always. Then a part of it is replaced, by near peers of the same family and role: so it
//! has as many as before, and those that stay are a random sample spread over networks, which no
//! peer nearby can influence. Near peers are searched among a bounded number of neighbours from a random start.
//!
//! Plain form: a list of all near peers, of which some are drawn. Departures: the search is bounded, so in a large swarm
//! with few near peers it finds less than there are; and it takes at most one peer of each public network.

use std::net::IpAddr;

use types::Family;

use super::answer::Chosen;
use super::torrent::FamilyPeers;
use crate::role::{ByRole, SetRole};
use crate::set::{PeerSet, Position};

/// Peers examined for each of a role that an answer has, and at most.
const EXAMINED_RATIO: u32 = 8;
const EXAMINED_MAX: u32 = 512;

impl Chosen<'_> {
    /// Returns the chosen peers of a family, of which `counts` are of each role, with near ones in place of at most
    /// `percent` of them; and how many these are.
    pub(super) fn with_near<E: FamilyPeers>(
        &self,
        family: Family,
        counts: ByRole<u32>,
        percent: u8,
        is_near: &mut impl FnMut(IpAddr) -> bool,
    ) -> (Vec<E>, usize) {
        let (mut peers, mut near) = (Vec::new(), 0);
        if !self.record.is_spilled() {
            // So few that an answer has all of them.
            self.each(family, counts, |run| peers.extend_from_slice(run));
            return (peers, near);
        }
        for role in SetRole::BOTH {
            let set = E::sets(self.record.sets())[role];
            let own = self.own.filter(|(own, place)| *own == family && place.role == role);
            let own = own.map(|(_, place)| place.position);
            let (first, count) = (peers.len(), counts[role]);
            set.sample(&self.shard.arena, count, own, self.sample_seed, |run| {
                peers.extend_from_slice(run);
            });
            let most = (count * u32::from(percent) / 100) as usize;
            if most == 0 || count >= set.len() - u32::from(own.is_some()) {
                continue;
            }
            let mut found = self.find_near(set, own, &peers[first..], most, is_near);
            peers.truncate(peers.len() - found.len());
            near += found.len();
            peers.append(&mut found);
        }
        (peers, near)
    }

    /// Finds up to `most` near peers of a set that are not `chosen`.
    fn find_near<E: FamilyPeers>(
        &self,
        set: PeerSet<E>,
        own: Option<Position>,
        chosen: &[E],
        most: usize,
        is_near: &mut impl FnMut(IpAddr) -> bool,
    ) -> Vec<E> {
        let mut found: Vec<E> = Vec::new();
        let examined = (chosen.len() as u32 * EXAMINED_RATIO).min(EXAMINED_MAX);
        set.search(&self.shard.arena, own, self.sample_seed, examined, |peer| {
            let key = peer.key();
            let is_known = || found.iter().chain(chosen).any(|it| it.key() == key);
            let has_neighbour =
                || E::network(key).is_some() && found.iter().any(|it| it.shares_network(key));
            let ip = peer.peer_key().socket_addr().ip();
            if is_near(ip) && !is_known() && !has_neighbour() {
                found.push(*peer);
            }
            found.len() < most
        });
        found
    }
}
