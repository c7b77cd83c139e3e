//! The sessions of a shard, their places in the quotas of their keys, and those that have changed.
//!
//! Only peers of keys with bounds have a place. Places are in a table of their own, since they would make every
//! session larger by half.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use types::{Refusal, Tick, limits};

use super::KeyHash;
use super::changes::SessionChanges;
use super::session::{Reported, Session, SessionTag, Siblings};
use super::shard::{prefetch_entry, shrink_if_sparse};

pub(super) struct Sessions {
    table: HashTable<Session>,
    /// The sessions of the table that count against a quota.
    places: HashTable<(SessionTag, QuotaPlace)>,
    pub(super) changes: SessionChanges,
    pub(super) limits: Arc<SessionLimits>,
}

/// A peer's place in the quota of its key: torrent and address, as keyed hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuotaPlace {
    pub(super) key: KeyHash,
    pub(super) torrent: u32,
    pub(super) address: u32,
}

/// A session, and its peer's place in the quota of its key if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionRecord {
    pub(super) session: Session,
    pub(super) place: Option<QuotaPlace>,
    pub(super) has_ended: bool,
}

/// The numbers of sessions and of changes in all shards, and their bounds.
pub(super) struct SessionLimits {
    pub(super) count: AtomicUsize,
    /// Changes that were not taken yet.
    pub(super) changes: AtomicUsize,
    pub(super) all_max: usize,
    pub(super) of_key_max: u32,
    pub(super) changes_max: usize,
}

/// When sessions end without an announce, in seconds after the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) plain_s: u32,
    pub(super) web_s: u32,
}

impl Sessions {
    /// Returns an empty table. `limits` are those of all shards.
    pub(super) fn new(limits: Arc<SessionLimits>) -> Self {
        Self {
            table: HashTable::new(),
            places: HashTable::new(),
            changes: SessionChanges::default(),
            limits,
        }
    }

    /// Prefetches the session `tag`, and its place if it may have one.
    #[inline]
    pub(super) fn prefetch(&self, tag: SessionTag) {
        prefetch_entry(&self.table, tag.client);
        prefetch_entry(&self.places, tag.client);
    }

    #[inline]
    pub(super) fn find(&self, tag: SessionTag) -> Option<Session> {
        self.table.find(tag.client, |session| session.tag == tag).copied()
    }

    pub(super) fn find_record(&self, tag: SessionTag) -> Option<SessionRecord> {
        self.find(tag).map(|session| self.record(session))
    }

    fn record(&self, session: Session) -> SessionRecord {
        SessionRecord { session, place: self.place(session.tag), has_ended: false }
    }

    pub(super) fn place(&self, tag: SessionTag) -> Option<QuotaPlace> {
        let found = self.places.find(tag.client, |(other, _)| *other == tag);
        found.map(|(_, place)| *place)
    }

    /// Returns all sessions of a client: those of its key and torrent with its peer id.
    #[inline]
    pub(super) fn of_client(&self, client: u64) -> impl Iterator<Item = &Session> {
        self.table.iter_hash(client).filter(move |session| session.tag.client == client)
    }

    /// Returns what the other sessions of the client of `tag` have reported.
    #[inline]
    pub(super) fn siblings(&self, tag: SessionTag) -> Siblings {
        let others = self.of_client(tag.client).filter(|session| session.tag != tag);
        Siblings::of(others.map(|session| session.last))
    }

    /// Appends all sessions but those of WebTorrent peers to `into`.
    pub(super) fn copy(&self, into: &mut Vec<SessionRecord>) {
        let plain = self.table.iter().filter(|session| !session.last.is_web);
        into.extend(plain.map(|session| self.record(*session)));
    }

    /// Checks whether a new session has room. `of_key` is how many its key has.
    ///
    /// # Errors
    ///
    /// `KeySessions` if its key or its client has too many sessions, `KeyTableFull` if all keys together have.
    pub(super) fn check_room(&self, tag: SessionTag, of_key: u32) -> Result<(), Refusal> {
        if of_key >= self.limits.of_key_max
            || self.of_client(tag.client).count() >= limits::KEY_SESSIONS_OF_CLIENT_MAX
        {
            return Err(Refusal::KeySessions);
        }
        if self.limits.count.load(Ordering::Relaxed) >= self.limits.all_max {
            return Err(Refusal::KeyTableFull);
        }
        Ok(())
    }

    /// Replaces the last report of a session, which begins if there is none.
    #[inline]
    pub(super) fn put(&mut self, tag: SessionTag, last: Reported) {
        if let Some(session) = self.table.find_mut(tag.client, |session| session.tag == tag) {
            session.last = last;
        } else {
            self.table.insert_unique(tag.client, Session { tag, last }, |it| it.tag.client);
            self.limits.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn set_place(&mut self, tag: SessionTag, place: QuotaPlace) {
        if let Some((_, old)) = self.places.find_mut(tag.client, |(other, _)| *other == tag) {
            *old = place;
        } else {
            self.places.insert_unique(tag.client, (tag, place), |(tag, _)| tag.client);
        }
    }

    pub(super) fn remove(&mut self, tag: SessionTag) -> Option<SessionRecord> {
        let found = self.table.find_entry(tag.client, |session| session.tag == tag).ok()?;
        let (session, _) = found.remove();
        self.limits.count.fetch_sub(1, Ordering::Relaxed);
        let place = remove_place(&mut self.places, tag);
        Some(SessionRecord { session, place, has_ended: true })
    }

    /// Removes sessions whose lifetime has passed. Calls `expired` with each.
    pub(super) fn expire(
        &mut self,
        now: Tick,
        lifetimes: Lifetimes,
        mut expired: impl FnMut(SessionRecord),
    ) {
        let over = self.table.extract_if(|session| {
            let last = session.last;
            now.since(last.at) > if last.is_web { lifetimes.web_s } else { lifetimes.plain_s }
        });
        for session in over {
            self.limits.count.fetch_sub(1, Ordering::Relaxed);
            let place = remove_place(&mut self.places, session.tag);
            expired(SessionRecord { session, place, has_ended: true });
        }
    }

    /// Returns memory to the allocator if few sessions are left.
    pub(super) fn shrink(&mut self) {
        shrink_if_sparse(&mut self.table, |session| session.tag.client);
        shrink_if_sparse(&mut self.places, |(tag, _)| tag.client);
    }
}

fn remove_place(
    places: &mut HashTable<(SessionTag, QuotaPlace)>,
    tag: SessionTag,
) -> Option<QuotaPlace> {
    let found = places.find_entry(tag.client, |(other, _)| *other == tag).ok()?;
    let ((_, place), _) = found.remove();
    Some(place)
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            count: AtomicUsize::default(),
            changes: AtomicUsize::default(),
            all_max: limits::KEY_SESSIONS_MAX,
            of_key_max: limits::KEY_SESSIONS_OF_ONE_MAX,
            changes_max: limits::KEY_SESSION_CHANGES_MAX,
        }
    }
}
