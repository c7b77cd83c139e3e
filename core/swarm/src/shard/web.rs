//! WebTorrent announces.

use std::net::{IpAddr, Ipv4Addr};

use primitives::Random;
use types::{InfoHash, Role, Tick, TooSoon, WebPeer};

use super::announce::MetaUpdate;
use super::answer::apportion;
use super::caps::REPLACED_MAX;
use super::memory::Networks;
use super::sweep::Visited;
use super::{LEECHERS, SEEDERS, Shard};
use crate::block::{WebChange, Word};
use crate::meta::AGE_UNIT_S;
use crate::web::{Host, RelayTargets, WebAnnounceSummary, WebEntry, WebSwarm};
use crate::{Action, StoreWebAnnounce, TorrentEvent, refresh};

/// Peers in one visit of the sweep.
const VISIT: u32 = 64;

impl Shard {
    pub(crate) fn announce_web(
        &mut self,
        now: Tick,
        random: &mut Random,
        announce: &StoreWebAnnounce,
        hash: u64,
        targets: &mut RelayTargets,
    ) -> Result<WebAnnounceSummary, TooSoon> {
        let Action::Update { completed } = announce.action else {
            self.leave_web(&announce.info_hash, announce.peer, hash);
            let counts = self.counts(&announce.info_hash, hash);
            return Ok(WebAnnounceSummary { counts, downloaded: false });
        };
        let host = self.host_of(announce.address);
        let is_new =
            self.web.get(&announce.info_hash).is_none_or(|swarm| !swarm.holds(&announce.peer));
        let found = match is_new {
            true => self.torrent_for_web(now, announce.info_hash, hash, host),
            false => self.find(&announce.info_hash, hash),
        };
        let Some(number) = found else {
            let counts = self.counts(&announce.info_hash, hash);
            return Ok(WebAnnounceSummary { counts, downloaded: false });
        };
        if is_new && let Some(host) = host {
            self.make_room_for_web(now, number, announce, host);
        }
        let downloaded = self.enter(now, number, announce, (completed, host))?;
        if let Some(swarm) = self.web.get(&announce.info_hash) {
            // Seeders need no seeders.
            let seeders = if announce.role == Role::Leecher {
                swarm.others(SEEDERS, &announce.peer)
            } else {
                0
            };
            let others = [seeders, swarm.others(LEECHERS, &announce.peer), 0, 0];
            let shares = apportion(others, announce.want.into(), random);
            for role in [SEEDERS, LEECHERS] {
                swarm.choose(role, shares[role], &announce.peer, random, targets);
            }
        }
        Ok(WebAnnounceSummary { counts: self.counts_at(number), downloaded })
    }

    /// Returns the torrent of a new peer, created if there is none; `None` if the peer may not be stored.
    fn torrent_for_web(
        &mut self,
        now: Tick,
        info_hash: InfoHash,
        hash: u64,
        host: Option<Host>,
    ) -> Option<u32> {
        if !self.admits_web(host) {
            return None;
        }
        let found = self.find(&info_hash, hash).or_else(|| self.create(now, info_hash, hash));
        self.totals.refused_for_memory += u64::from(found.is_none());
        found
    }

    /// Returns the host under which a peer counts for caps and shares; `None` if it does not.
    pub(super) fn host_of(&self, address: IpAddr) -> Option<Host> {
        Host::of(address).filter(|_| !self.is_exempt(address))
    }

    /// Removes peers until the new one exceeds no cap.
    fn make_room_for_web(
        &mut self,
        now: Tick,
        number: u32,
        announce: &StoreWebAnnounce,
        host: Host,
    ) {
        for _ in 0..REPLACED_MAX {
            let Some(swarm) = self.web.get_mut(&announce.info_hash) else { return };
            let Some(victim) = swarm.victim(now, host, announce.caps) else { return };
            let gone = [SEEDERS, LEECHERS]
                .into_iter()
                .find_map(|role| Some((role, swarm.remove(role, &victim)?)));
            let Some((role, entry)) = gone else { return };
            self.count_web_removed(number, role, entry);
            self.push_web_gone(&announce.info_hash, victim);
            self.totals.replaced += 1;
        }
    }

    /// Adds or refreshes the peer. Returns whether it was counted as a download, or an error if the
    /// announce comes too soon.
    fn enter(
        &mut self,
        now: Tick,
        number: u32,
        announce: &StoreWebAnnounce,
        (completed, host): (bool, Option<Host>),
    ) -> Result<bool, TooSoon> {
        let (own, other) = match announce.role {
            Role::Seeder => (SEEDERS, LEECHERS),
            Role::Leecher | Role::PartialSeed => (LEECHERS, SEEDERS),
        };
        self.records.at_mut(number).set_has_web(true);
        let swarm = self.web_swarm(announce.info_hash);
        let is_partial = announce.role == Role::PartialSeed;
        let update = MetaUpdate {
            now,
            completed,
            partial: is_partial,
            min_interval_s: announce.min_interval_s,
        };
        let was_own = swarm.get(own, &announce.peer);
        if let Some(old) = was_own {
            update.renew(old.meta)?;
        }
        let was_other = swarm.remove(other, &announce.peer);
        let was_counted = was_own.or(was_other).is_some_and(|old| old.meta.is_counted());
        let entry = WebEntry { meta: update.meta(was_counted), host };
        swarm.insert(own, announce.peer, entry, true);
        if let Some(old) = was_own {
            self.count_web_removed(number, own, old);
        }
        if let Some(old) = was_other {
            self.count_web_removed(number, other, old);
        }
        self.count_web_added(number, own, entry);
        let downloaded = completed && !was_counted;
        let is_same = was_own.is_some_and(|old| old.meta.is_partial() == is_partial);
        let is_due = || {
            let age = was_own.map_or(0, |old| old.meta.age(now));
            refresh::is_web_due(age, now.0 / AGE_UNIT_S, &announce.peer)
        };
        if downloaded || !is_same || is_due() {
            self.web_changes.push(|| WebChange {
                info_hash: announce.info_hash,
                peer: announce.peer,
                address: announce.address,
                word: if downloaded {
                    Word::completed(announce.role)
                } else {
                    Word::present(0, announce.role, was_counted)
                },
            });
        }
        if downloaded {
            let record = self.records.at_mut(number);
            record.downloads = record.downloads.saturating_add(1);
            self.totals.downloads += 1;
            self.event_queue.push(|| TorrentEvent::Completed(announce.info_hash));
        }
        Ok(downloaded)
    }

    pub(crate) fn leave_web(&mut self, info_hash: &InfoHash, peer: WebPeer, hash: u64) {
        let Some(swarm) = self.web.get_mut(info_hash) else { return };
        let gone = [SEEDERS, LEECHERS]
            .into_iter()
            .find_map(|role| Some((role, swarm.remove(role, &peer)?)));
        if gone.is_some() {
            self.push_web_gone(info_hash, peer);
        }
        if let Some((role, entry)) = gone
            && let Some(number) = self.find(info_hash, hash)
        {
            self.count_web_removed(number, role, entry);
            self.drop_web_if_empty(number);
        }
    }

    /// Keeps the removal of a peer.
    fn push_web_gone(&mut self, info_hash: &InfoHash, peer: WebPeer) {
        self.web_changes.push(|| WebChange {
            info_hash: *info_hash,
            peer,
            address: Ipv4Addr::UNSPECIFIED.into(),
            word: Word::gone(),
        });
    }

    /// Removes the peers for which `is_gone` returns true among the next [`VISIT`] of a role, from index
    /// `at` on.
    pub(super) fn visit_web(
        &mut self,
        number: u32,
        role: usize,
        at: u32,
        is_gone: impl Fn(&WebPeer, WebEntry, &Networks) -> bool,
    ) -> Visited {
        let record = self.records.at(number);
        if !record.has_web() {
            return Visited::default();
        }
        let info_hash = record.info_hash;
        let found = |shard: &Self, at| shard.web.get(&info_hash)?.get_index(role, at);
        let mut at = at as usize;
        let (mut visited, mut gone) = (0, 0);
        while visited < VISIT {
            visited += 1;
            match found(self, at) {
                Some((peer, entry)) if is_gone(&peer, entry, &self.networks) => {
                    self.web_swarm(info_hash).remove(role, &peer);
                    // At once: the count decides whether more of the network go.
                    self.count_web_removed(number, role, entry);
                    gone += 1;
                }
                Some(_) => at += 1,
                None => break,
            }
        }
        let next = found(self, at).map(|_| at as u32);
        self.drop_web_if_empty(number);
        Visited { next, lines: visited, gone }
    }

    pub(super) fn count_web_added(&mut self, number: u32, role: usize, entry: WebEntry) {
        entry.host.into_iter().for_each(|host| self.networks.add_web(host));
        let totals = &mut self.totals.web;
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } += 1;
        if entry.meta.is_partial() {
            self.records.at_mut(number).partial_seeds += 1;
            self.totals.partial_seeds += 1;
        }
    }

    /// Returns the WebTorrent peers of a torrent, none at first.
    pub(super) fn web_swarm(&mut self, info_hash: InfoHash) -> &mut WebSwarm {
        let key = self.key;
        self.web.entry(info_hash).or_insert_with(|| WebSwarm::new(key))
    }

    pub(super) fn count_web_removed(&mut self, number: u32, role: usize, entry: WebEntry) {
        entry.host.into_iter().for_each(|host| self.networks.remove_web(host));
        let totals = &mut self.totals.web;
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= 1;
        if entry.meta.is_partial() {
            self.records.at_mut(number).partial_seeds -= 1;
            self.totals.partial_seeds -= 1;
        }
    }

    pub(super) fn drop_web_if_empty(&mut self, number: u32) {
        let info_hash = self.records.at(number).info_hash;
        if self.web.get(&info_hash).is_some_and(WebSwarm::is_empty) {
            self.web.remove(&info_hash);
            self.records.at_mut(number).set_has_web(false);
        }
    }
}
