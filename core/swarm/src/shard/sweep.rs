//! The sweep: removes peers that have not announced for a lifetime, a few lines at a time.

use std::cell::Cell;

use replication::{PeerMeta, age_max};
use types::{Family, PackedV4, PackedV6, PeerKey, Tick, WebPeer};

use super::Shard;
use super::memory::Networks;
use super::torrent::Visited;
use crate::entry::Entry;
use crate::role::SetRole;
use crate::web::WebEntry;

/// The progress of a pass over all torrents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    record: u32,
    stage: Stage,
    /// The page of the set; for WebTorrent peers, the index of the next peer.
    page: u32,
}

/// The peers of a torrent that are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A set, or all inline peers.
    Peers(Family, SetRole),
    Web(SetRole),
}

impl Default for Stage {
    fn default() -> Self {
        Self::Peers(Family::V4, SetRole::Seeders)
    }
}

impl Stage {
    fn next(self, is_spilled: bool) -> Option<Self> {
        match self {
            Self::Peers(family, SetRole::Seeders) if is_spilled => {
                Some(Self::Peers(family, SetRole::Leechers))
            }
            Self::Peers(Family::V4, _) if is_spilled => {
                Some(Self::Peers(Family::V6, SetRole::Seeders))
            }
            Self::Peers(..) => Some(Self::Web(SetRole::Seeders)),
            Self::Web(SetRole::Seeders) => Some(Self::Web(SetRole::Leechers)),
            Self::Web(SetRole::Leechers) => None,
        }
    }
}

/// Ticks at which passes began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    /// The current pass.
    began: Tick,
    /// The last complete pass.
    last: Tick,
}

impl Pass {
    /// Returns the seconds since the last moment after which every peer has been visited.
    pub(crate) fn lag_s(self, now: Tick) -> u32 {
        now.since(self.last)
    }
}

/// Free blocks that leave draining memory in a step.
const DRAIN_BLOCKS: u32 = 32;

/// Lifetimes of peers, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) plain_s: u32,
    /// WebTorrent peers of this node.
    pub(crate) web_s: u32,
    /// WebTorrent peers of other nodes.
    pub(crate) web_remote_s: u32,
    pub(crate) node: u8,
}

/// Returns true if a peer has expired, or its network has too many peers for the memory left.
#[inline]
fn is_gone<E: Entry>(
    peer: &E,
    networks: &Networks,
    is_expired: impl Fn(PeerMeta) -> bool,
    is_over: &dyn Fn(u32, PeerKey) -> bool,
) -> bool {
    is_expired(peer.meta()) || {
        let count = networks.count::<E>(peer.key());
        count > 0 && is_over(count, peer.peer_key())
    }
}

impl Shard {
    /// Returns about how many lines a whole pass visits.
    pub(crate) fn pass_lines(&self) -> u64 {
        let web = self.totals.web.seeders + self.totals.web.leechers;
        // For each torrent of theirs two visits, and the end of each role.
        let web = web + 4 * self.web.len() as u64;
        u64::from(self.records.len()) + self.arena.used() + web
    }

    /// Visits about `lines` lines and removes expired peers.
    pub(crate) fn sweep(&mut self, now: Tick, lifetimes: Lifetimes, lines: u32) {
        self.arena.drain(DRAIN_BLOCKS);
        if self.cursor == Cursor::default() {
            self.pass.began = now;
        }
        let expired_after = |seconds: u32| {
            let oldest = age_max(self.lifetime_under_pressure(seconds));
            move |meta: PeerMeta| meta.age(now) > oldest
        };
        let is_expired = expired_after(lifetimes.plain_s);
        let (is_own_expired, is_remote_expired) =
            (expired_after(lifetimes.web_s), expired_after(lifetimes.web_remote_s));
        let is_web_expired = |peer: &WebPeer, meta| match peer.connection.node() == lifetimes.node {
            true => is_own_expired(meta),
            false => is_remote_expired(meta),
        };
        let evicts_web_above = self.evicts_web_above().unwrap_or(u32::MAX);
        let evicts_above = self.evicts_above().unwrap_or(u32::MAX);
        let exempt = self.exempt.clone();
        let is_exempt = |ip| exempt.as_deref().is_some_and(|exempt| exempt(ip));
        let evicted = Cell::new(0);
        let is_over = |count: u32, peer: PeerKey| {
            let is_over = count > evicts_above && !is_exempt(peer.socket_addr().ip());
            evicted.set(evicted.get() + u64::from(is_over));
            is_over
        };
        let is_web_gone = |peer: &WebPeer, entry: WebEntry, networks: &Networks| {
            is_web_expired(peer, entry.meta) || {
                let count = entry.host.map_or(0, |host| networks.count_of(host));
                evicted.set(evicted.get() + u64::from(count > evicts_web_above));
                count > evicts_web_above
            }
        };
        let mut left = lines;
        while left > 0 {
            if self.cursor.record >= self.records.len() {
                self.cursor = Cursor::default();
                self.pass.last = self.pass.began;
                self.arena.plan_drain();
                return;
            }
            left = left.saturating_sub(self.visit(is_expired, is_web_gone, &is_over));
            let evicted = evicted.take();
            self.totals.expired -= evicted;
            self.totals.evicted += evicted;
        }
    }

    /// Visits the record, set and page at the cursor, and advances the cursor. Returns the lines
    /// visited.
    fn visit(
        &mut self,
        is_expired: impl Fn(PeerMeta) -> bool + Copy,
        is_web_gone: impl Fn(&WebPeer, WebEntry, &Networks) -> bool,
        is_over: &dyn Fn(u32, PeerKey) -> bool,
    ) -> u32 {
        let Cursor { record: number, stage, page } = self.cursor;
        let record = self.records.at(number);
        let (is_spilled, has_web) = (record.is_spilled(), record.has_web());
        let visited = match stage {
            Stage::Web(role) => self.visit_web(number, role, page, is_web_gone),
            Stage::Peers(..) if !is_spilled => {
                let gone = self.torrent(number).retain_inline(|_, peer, networks| {
                    is_gone(peer, networks, is_expired, is_over)
                });
                Visited { gone, ..Visited::default() }
            }
            Stage::Peers(Family::V4, role) => {
                self.torrent(number).retain_page(role, page, |peer: &PackedV4, networks| {
                    is_gone(peer, networks, is_expired, is_over)
                })
            }
            Stage::Peers(Family::V6, role) => {
                self.torrent(number).retain_page(role, page, |peer: &PackedV6, networks| {
                    is_gone(peer, networks, is_expired, is_over)
                })
            }
        };
        self.totals.expired += visited.gone;
        let next = match visited.next {
            Some(page) => Some(Cursor { page, ..self.cursor }),
            None => stage.next(is_spilled).map(|stage| Cursor { stage, page: 0, ..self.cursor }),
        };
        let was_last_set = matches!(stage, Stage::Peers(..))
            && next.is_some_and(|next| matches!(next.stage, Stage::Web(_)));
        if was_last_set && is_spilled {
            self.torrent(number).unspill();
        }
        match next.filter(|_| has_web || !was_last_set) {
            Some(next) => self.cursor = next,
            None => self.leave(number),
        }
        1 + visited.lines
    }

    /// Advances to the next record. An empty record is removed, and another takes its number.
    fn leave(&mut self, number: u32) {
        self.cursor = Cursor { record: number, ..Cursor::default() };
        let record = self.records.at(number);
        // A torrent's download count is kept as long as it has peers.
        if record.is_empty() {
            self.delete(number);
        } else {
            self.cursor.record += 1;
        }
    }
}
