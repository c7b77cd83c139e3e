//! WebTorrent announces.

use primitives::Random;
use types::{InfoHash, Role, Tick, TooSoon, WebPeer};

use super::announce::{Stamp, split};
use super::sweep::Visited;
use super::{LEECHERS, SEEDERS, Shard};
use crate::mark::Mark;
use crate::web::{RelayTargets, WebAnnounceSummary, WebSwarm};
use crate::{Action, StoreWebAnnounce, TorrentEvent};

/// Peers that one visit of the sweep looks at.
const VISIT: u32 = 64;

impl Shard {
    pub(crate) fn announce_web(
        &mut self,
        now: Tick,
        random: &mut Random,
        job: &StoreWebAnnounce,
        hash: u64,
        chosen: &mut RelayTargets,
    ) -> Result<WebAnnounceSummary, TooSoon> {
        let Action::Update { completed } = job.action else {
            self.leave_web(&job.info_hash, job.peer, hash);
            let counts = self.counts(&job.info_hash, hash);
            return Ok(WebAnnounceSummary { counts, downloaded: false });
        };
        let found = self.find(&job.info_hash, hash);
        let found = found
            .or_else(|| if self.is_full() { None } else { self.create(now, job.info_hash, hash) });
        let is_new = self.web.get(&job.info_hash).is_none_or(|swarm| !swarm.holds(&job.peer));
        let Some(number) = found.filter(|_| !is_new || !self.is_full()) else {
            self.totals.refused_for_memory += 1;
            let counts = self.counts(&job.info_hash, hash);
            return Ok(WebAnnounceSummary { counts, downloaded: false });
        };
        let downloaded = self.enter(now, number, job, completed)?;
        if let Some(swarm) = self.web.get(&job.info_hash) {
            // Who has everything needs no seeders.
            let seeders =
                if job.role == Role::Leecher { swarm.others(SEEDERS, &job.peer) } else { 0 };
            let others = [seeders, swarm.others(LEECHERS, &job.peer), 0, 0];
            let takes = split(others, job.want.into(), random);
            for role in [SEEDERS, LEECHERS] {
                swarm.choose(role, takes[role], &job.peer, random, chosen);
            }
        }
        Ok(WebAnnounceSummary { counts: self.counts_at(number), downloaded })
    }

    /// Adds the peer or refreshes it, unless it comes too soon. Gives whether it was counted as a download.
    fn enter(
        &mut self,
        now: Tick,
        number: u32,
        job: &StoreWebAnnounce,
        completed: bool,
    ) -> Result<bool, TooSoon> {
        let (own, other) = match job.role {
            Role::Seeder => (SEEDERS, LEECHERS),
            Role::Leecher | Role::PartialSeed => (LEECHERS, SEEDERS),
        };
        self.records.at_mut(number).set_has_web(true);
        let key = self.key;
        let swarm = self.web.entry(job.info_hash).or_insert_with(|| WebSwarm::new(key));
        let is_partial = job.role == Role::PartialSeed;
        let stamp =
            Stamp { now, completed, partial: is_partial, min_interval_s: job.min_interval_s };
        let was_own = swarm.peers[own].get(&job.peer).copied();
        if let Some(old) = was_own {
            stamp.renew(old)?;
        }
        let was_other = swarm.peers[other].swap_remove(&job.peer);
        let was_counted = was_own.or(was_other).is_some_and(Mark::is_counted);
        let mark = stamp.mark(was_counted);
        swarm.peers[own].insert(job.peer, mark);
        if let Some(old) = was_own {
            self.count_web_gone(number, own, old);
        }
        if let Some(old) = was_other {
            self.count_web_gone(number, other, old);
        }
        let totals = &mut self.totals.web;
        *if own == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } += 1;
        let record = self.records.at_mut(number);
        record.partial_seeds += u32::from(is_partial);
        self.totals.partial_seeds += u64::from(is_partial);
        let downloaded = completed && !was_counted;
        if downloaded {
            record.downloads = record.downloads.saturating_add(1);
            self.totals.downloads += 1;
            self.ear.hear(|| TorrentEvent::Completed(job.info_hash));
        }
        Ok(downloaded)
    }

    pub(crate) fn leave_web(&mut self, info_hash: &InfoHash, peer: WebPeer, hash: u64) {
        let Some(swarm) = self.web.get_mut(info_hash) else { return };
        let gone = [SEEDERS, LEECHERS]
            .into_iter()
            .find_map(|role| Some((role, swarm.peers[role].swap_remove(&peer)?)));
        if let Some((role, mark)) = gone
            && let Some(number) = self.find(info_hash, hash)
        {
            self.count_web_gone(number, role, mark);
            self.drop_web_if_empty(number);
        }
    }

    /// Drops those that are dead of some of a role's peers from number `at` on.
    pub(super) fn visit_web(
        &mut self,
        number: u32,
        role: usize,
        at: u32,
        is_dead: impl Fn(Mark) -> bool,
    ) -> Visited {
        let info_hash = self.records.at(number).info_hash;
        let Some(swarm) = self.web.get_mut(&info_hash) else { return Visited::default() };
        let peers = &mut swarm.peers[role];
        let mut at = at as usize;
        let mut dead = Vec::new();
        for _ in 0..VISIT {
            match peers.get_index(at) {
                Some((_, mark)) if is_dead(*mark) => {
                    dead.extend(peers.swap_remove_index(at).map(|(_, mark)| mark));
                }
                Some(_) => at += 1,
                None => break,
            }
        }
        let next = (at < peers.len()).then_some(at as u32);
        let gone = dead.len() as u64;
        dead.into_iter().for_each(|mark| self.count_web_gone(number, role, mark));
        self.drop_web_if_empty(number);
        Visited { next, lines: VISIT, gone }
    }

    fn count_web_gone(&mut self, number: u32, role: usize, mark: Mark) {
        let totals = &mut self.totals.web;
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= 1;
        if mark.is_partial() {
            self.records.at_mut(number).partial_seeds -= 1;
            self.totals.partial_seeds -= 1;
        }
    }

    fn drop_web_if_empty(&mut self, number: u32) {
        let info_hash = self.records.at(number).info_hash;
        if self.web.get(&info_hash).is_some_and(WebSwarm::is_empty) {
            self.web.remove(&info_hash);
            self.records.at_mut(number).set_has_web(false);
        }
    }
}
