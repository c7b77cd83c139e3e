//! WebTorrent announces.

use std::net::{IpAddr, Ipv4Addr};

use primitives::Random;
use replication::block::{WebChange, Word};
use replication::{AGE_UNIT_S, PeerMeta};
use types::{InfoHash, Role, Tick, TooSoon, WebPeer};

use super::Shard;
use super::answer::apportion;
use super::caps::REPLACED_MAX;
use super::memory::Networks;
use super::torrent::Visited;
use crate::role::SetRole;
use crate::web::{Host, RelayTargets, WebAnnounceSummary, WebEntry, WebKnown};
use crate::{Action, StoreWebAnnounce};

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
        let located = self.find(&announce.info_hash, hash);
        let known = located.and_then(|number| self.web_torrent(number).find(&announce.peer));
        let found = match known {
            Some(_) => located,
            None => self.admit_web(now, located, announce, (hash, host)),
        };
        let Some(number) = found else {
            let counts = self.counts(&announce.info_hash, hash);
            return Ok(WebAnnounceSummary { counts, downloaded: false });
        };
        let downloaded = self.put_web(now, number, known, announce, (completed, host))?;
        if let Some(swarm) = self.web_torrent(number).swarm() {
            // Seeders need no seeders.
            let seeders = if announce.role == Role::Leecher {
                swarm.others(SetRole::Seeders, &announce.peer)
            } else {
                0
            };
            let others = [seeders, swarm.others(SetRole::Leechers, &announce.peer), 0, 0];
            let [seeders, leechers, ..] = apportion(others, announce.want.into(), random);
            swarm.choose(SetRole::Seeders, seeders, &announce.peer, random, targets);
            swarm.choose(SetRole::Leechers, leechers, &announce.peer, random, targets);
        }
        Ok(WebAnnounceSummary { counts: self.counts_at(number), downloaded })
    }

    /// Makes room for a new peer. Returns its torrent, created if there is none; `None` if the peer may not be
    /// stored.
    fn admit_web(
        &mut self,
        now: Tick,
        located: Option<u32>,
        announce: &StoreWebAnnounce,
        (hash, host): (u64, Option<Host>),
    ) -> Option<u32> {
        if !self.admits_web(host) {
            return None;
        }
        let number = located.unwrap_or_else(|| self.create(now, announce.info_hash, hash));
        if let Some(host) = host {
            self.make_room_for_web(now, number, announce, host);
        }
        Some(number)
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
            let mut torrent = self.web_torrent(number);
            let victim = torrent.swarm().and_then(|swarm| swarm.victim(now, host, announce.caps));
            let Some(victim) = victim else { return };
            torrent.remove(&victim);
            self.push_web_gone(&announce.info_hash, victim);
            self.totals.replaced += 1;
        }
    }

    /// Adds or refreshes the peer. Returns whether it was counted as a download, or an error if the
    /// announce comes too soon.
    fn put_web(
        &mut self,
        now: Tick,
        number: u32,
        known: Option<WebKnown>,
        announce: &StoreWebAnnounce,
        (completed, host): (bool, Option<Host>),
    ) -> Result<bool, TooSoon> {
        let role = announce.role.into();
        let partial = announce.role == Role::PartialSeed;
        let same_role = known.filter(|known| known.role == role).map(|known| known.entry.meta);
        if let Some(old) = same_role {
            let min_interval_s =
                if old.is_partial() == partial { announce.min_interval_s } else { 0 };
            old.check_interval(now, min_interval_s)?;
        }
        let was_counted = known.is_some_and(|known| known.entry.meta.is_counted());
        // A peer with a longer interval is kept as if it had announced later.
        let announced = now.after(announce.extra_s);
        let meta = PeerMeta::new(announced, was_counted || completed, partial);
        let entry = WebEntry { meta, host };
        self.web_torrent(number).put(announce.peer, WebKnown { role, entry }, true);
        let downloaded = completed && !was_counted;
        let is_same = same_role.is_some_and(|old| old.is_partial() == partial);
        let is_due = || {
            // The age does not say in which period such a peer announced last.
            if announce.extra_s > 0 {
                return true;
            }
            let age = same_role.map_or(0, |old| old.age(now));
            replication::is_web_due(age, now.0 / AGE_UNIT_S, &announce.peer)
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
            self.count_download(number, announce.info_hash);
        }
        Ok(downloaded)
    }

    pub(crate) fn has_web(&mut self, info_hash: &InfoHash, peer: &WebPeer, hash: u64) -> bool {
        let found = self.find(info_hash, hash);
        found.is_some_and(|number| self.web_torrent(number).find(peer).is_some())
    }

    pub(crate) fn leave_web(&mut self, info_hash: &InfoHash, peer: WebPeer, hash: u64) {
        let Some(number) = self.find(info_hash, hash) else { return };
        if self.web_torrent(number).remove(&peer).is_some() {
            self.push_web_gone(info_hash, peer);
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
        role: SetRole,
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
                    // Counted at once: the count decides whether more of the network go.
                    self.web_torrent(number).remove(&peer);
                    gone += 1;
                }
                Some(_) => at += 1,
                None => break,
            }
        }
        Visited { next: found(self, at).map(|_| at as u32), lines: visited, gone }
    }
}
