//! A part of the ledger behind one lock: some users, with all their torrents.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};
use primitives::prefetch_all;
use types::{Event, PeerId, Role};

use super::presence::{Changes, Presence};
use super::{LedgerLimits, PairSessions, Report, Terms};
use crate::batch::{Agent, Batch, Counting, Record, Session, SessionChange, Unregistered};

/// Unregistered torrents that are kept of a shard until the next batch.
const UNREGISTERED_MAX: usize = 1_000;

/// Some users, with all their torrents.
#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) pairs: HashTable<Pair>,
    /// Users with clients that others get.
    presences: HashMap<u32, Presence>,
    /// By index.
    pub(crate) records: Vec<Record>,
    unregistered: HashSet<Unregistered>,
    /// Grows with each cut: an older pair has no record.
    epoch: u32,
}

/// The numbers of a user in a torrent, with their hash.
pub(crate) struct PairKey {
    user: u32,
    torrent: u32,
    hash: u64,
}

/// A user in a torrent.
pub(crate) struct Pair {
    pub(crate) user: u32,
    pub(crate) torrent: u32,
    /// The index of its record, if `epoch` is the shard's.
    record: u32,
    epoch: u32,
    pub(crate) sessions: PairSessions,
}

impl PairKey {
    pub(crate) fn new(user: u32, torrent: u32, hasher: &DefaultHashBuilder) -> Self {
        Self { user, torrent, hash: hasher.hash_one((user, torrent)) }
    }
}

impl Pair {
    fn is(&self, key: &PairKey) -> bool {
        (self.user, self.torrent) == (key.user, key.torrent)
    }

    pub(crate) fn session(&self, peer_id: PeerId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.peer_id == peer_id)
    }

    pub(crate) fn session_mut(&mut self, peer_id: PeerId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.peer_id == peer_id)
    }

    pub(crate) fn active(&self) -> usize {
        self.sessions.iter().filter(|session| session.active).count()
    }

    /// Inserts or replaces a session. Of more than `most`, forgets the oldest that has ended. Returns true if there is one
    /// more now.
    pub(crate) fn put(&mut self, session: Session, most: usize) -> bool {
        if let Some(old) = self.session_mut(session.peer_id) {
            *old = session;
            return false;
        }
        let before = self.sessions.len();
        if before >= most {
            let ended = self.sessions.iter().enumerate().filter(|(_, session)| !session.active);
            let oldest = ended.min_by_key(|(_, session)| session.updated_s).map(|(at, _)| at);
            if let Some(oldest) = oldest {
                self.sessions.swap_remove(oldest);
            }
        }
        self.sessions.push(session);
        self.sessions.len() > before
    }
}

impl Shard {
    /// Prefetches the place where the table begins to look for a pair, and that of a new record. With a million
    /// sessions, to wait for these one after the other is most of what an announce costs here.
    pub(crate) fn prefetch(&mut self, key: &PairKey) {
        let first = key.hash as usize & self.pairs.num_buckets().wrapping_sub(1);
        self.pairs.get_bucket(first).into_iter().for_each(prefetch_all);
        self.records.spare_capacity_mut().first().into_iter().for_each(prefetch_all);
    }

    pub(crate) fn find(&self, key: &PairKey) -> Option<usize> {
        self.pairs.find_bucket_index(key.hash, |pair| pair.is(key))
    }

    /// Returns a pair, after inserting it if it is new.
    pub(crate) fn pair(&mut self, key: &PairKey, hasher: &DefaultHashBuilder) -> &mut Pair {
        let bucket = self.find(key).unwrap_or_else(|| self.insert(key, hasher));
        self.pairs.get_bucket_mut(bucket).expect("the pair was found or inserted")
    }

    /// Returns a pair and its record, after inserting those that are missing. `found` is where the pair is.
    pub(crate) fn change(
        &mut self,
        found: Option<usize>,
        key: &PairKey,
        now_s: u32,
        hasher: &DefaultHashBuilder,
    ) -> (&mut Pair, &mut Record) {
        let bucket = found.unwrap_or_else(|| self.insert(key, hasher));
        let Self { pairs, records, epoch, .. } = self;
        let pair = pairs.get_bucket_mut(bucket).expect("the pair was found or inserted");
        if pair.epoch != *epoch {
            pair.epoch = *epoch;
            pair.record = records.len() as u32;
            records.push(Record::new(key.user, key.torrent, now_s));
        }
        let record = &mut records[pair.record as usize];
        (pair, record)
    }

    /// Inserts a pair that is missing, without a record, and returns its bucket.
    fn insert(&mut self, key: &PairKey, hasher: &DefaultHashBuilder) -> usize {
        let pair = Pair {
            user: key.user,
            torrent: key.torrent,
            record: 0,
            epoch: self.epoch.wrapping_sub(1),
            sessions: PairSessions::new(),
        };
        let rehash = |pair: &Pair| hasher.hash_one((pair.user, pair.torrent));
        self.pairs.insert_unique(key.hash, pair, rehash).bucket_index()
    }

    /// Returns the state of a session after an announce.
    pub(crate) fn next_session(
        &self,
        report: &Report,
        terms: &Terms,
        old: Option<&Session>,
    ) -> Session {
        let stops = report.event == Event::Stopped;
        let seeder = Role::claimed(report.event, report.left) == Role::Seeder;
        // A client that has a slot keeps it.
        let has_slot = old.is_some_and(|old| old.leechers() == 1);
        let is_full = |slots| self.presence(report.user).leeching >= slots;
        let over_slots = !seeder && !has_slot && terms.slots.is_some_and(is_full);
        Session {
            peer_id: report.peer_id,
            ip: report.ip,
            port: report.port,
            uploaded: report.uploaded,
            downloaded: report.downloaded,
            left: report.left.unwrap_or_default(),
            created_s: old.map_or(report.now_s, |old| old.created_s),
            updated_s: report.now_s,
            active: !stops,
            seeder,
            visible: terms.visible && !stops && !over_slots,
            counting: old.filter(|old| old.is_late()).map_or(Counting::Here, |old| old.counting),
        }
    }

    pub(crate) fn presence(&self, user: u32) -> Presence {
        self.presences.get(&user).copied().unwrap_or_default()
    }

    pub(crate) fn add_totals(&self, totals: &mut Presence) {
        for presence in self.presences.values() {
            totals.seeding += presence.seeding;
            totals.leeching += presence.leeching;
        }
    }

    /// Counts the new state of a session instead of the old one.
    pub(crate) fn replace(&mut self, user: u32, old: Option<&Session>, new: &Session) -> Changes {
        let changes = Changes::between(old, new);
        if changes.seeders != 0 || changes.leechers != 0 {
            let presence = self.presences.entry(user).or_default();
            changes.apply(presence);
            if *presence == Presence::default() {
                self.presences.remove(&user);
            }
        }
        changes
    }

    pub(crate) fn note_unregistered(&mut self, one: Unregistered) {
        if self.unregistered.len() < UNREGISTERED_MAX {
            self.unregistered.insert(one);
        }
    }

    pub(crate) fn take(&mut self, batch: &mut Batch) {
        if !self.records.is_empty() {
            self.epoch = self.epoch.wrapping_add(1);
            batch.records.append(&mut self.records);
        }
        batch.unregistered.extend(self.unregistered.drain());
    }

    /// Ends sessions that are silent for too long, and forgets old ones. Returns the number of the latter.
    pub(crate) fn sweep(
        &mut self,
        now_s: u32,
        limits: &LedgerLimits,
        hasher: &DefaultHashBuilder,
    ) -> usize {
        let silent_s = |session: &Session| now_s.saturating_sub(session.updated_s);
        let is_silent = |it: &Session| it.active && silent_s(it) >= limits.active_s;
        let mut ended = Vec::new();
        let mut forgotten = 0;
        self.pairs.retain(|pair| {
            let before = pair.sessions.len();
            pair.sessions.retain(|it| it.active || silent_s(it) < limits.remembered_s);
            forgotten += before - pair.sessions.len();
            if pair.sessions.iter().any(is_silent) {
                ended.push(PairKey::new(pair.user, pair.torrent, hasher));
            }
            // A pair with a record stays: the record is found through it.
            !pair.sessions.is_empty() || pair.epoch == self.epoch
        });
        for key in ended {
            self.end_silent(&key, now_s, limits, hasher);
        }
        forgotten
    }

    fn end_silent(
        &mut self,
        key: &PairKey,
        now_s: u32,
        limits: &LedgerLimits,
        hasher: &DefaultHashBuilder,
    ) {
        let found = self.find(key);
        let (pair, record) = self.change(found, key, now_s, hasher);
        let mut ended = PairSessions::new();
        for session in &mut pair.sessions {
            if session.active && now_s.saturating_sub(session.updated_s) >= limits.active_s {
                ended.push(*session);
                session.active = false;
                session.visible = false;
            }
        }
        record.active = pair.active() > 0;
        let index = pair.record as usize;
        for old in ended {
            let session = Session { active: false, visible: false, ..old };
            let changes = self.replace(key.user, Some(&old), &session);
            let record = &mut self.records[index];
            record.seeders += changes.seeders;
            record.leechers += changes.leechers;
            record.put_session(SessionChange {
                session,
                agent: Agent::new(),
                expired: true,
                learned: false,
            });
        }
    }
}
