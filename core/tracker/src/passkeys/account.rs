//! An announce with a key: its session, its place in the key's quota, and what it adds to the key's totals.

use parking_lot::MutexGuard;
use primitives::siphash::{siphash, siphash_ip};
use types::{Event, Refusal, Tick};

use super::record::KeyRecord;
use super::session::{Reported, Session};
use super::sessions::{QuotaPlace, SessionRecord, Sessions};
use super::shard::{Shard, find_key};
use super::{KeyHash, KeyId, KeyTotals, PasskeyStore, Report, SessionTag};

/// A key that may make a request, with its shard locked.
pub(crate) struct LockedKey<'a> {
    pub(super) store: &'a PasskeyStore,
    pub(super) shard: MutexGuard<'a, Shard>,
    /// The place of the key's record in the shard's table.
    pub(super) bucket: usize,
}

/// A peer that announces, while the shard of its key is locked.
struct Announcing<'a> {
    store: &'a PasskeyStore,
    now: Tick,
    key: &'a mut KeyRecord,
    sessions: &'a mut Sessions,
    tag: SessionTag,
    event: Event,
    reported: Reported,
    /// The place that it needs in the key's quota, if that counts peers.
    place: Option<QuotaPlace>,
    /// The place that it has there before the announce.
    old_place: Option<QuotaPlace>,
}

impl LockedKey<'_> {
    #[inline]
    pub(crate) fn id(&self) -> KeyId {
        let key = self.shard.keys.get_bucket(self.bucket);
        debug_assert!(key.is_some(), "the shard is locked since the key was found");
        key.map_or(KeyId(0), |key| key.id)
    }

    /// Counts an announce for the key. Returns false if it is a stop for a peer that the key does not have.
    ///
    /// # Errors
    ///
    /// If the peer exceeds the key's quota, or the key may only seed, or there is no room for its session although the key has bounds. Nothing
    /// is counted then.
    #[inline]
    pub(crate) fn account(
        mut self,
        now: Tick,
        tag: SessionTag,
        report: &Report<'_>,
    ) -> Result<bool, Refusal> {
        let store = self.store;
        let Shard { keys, sessions, totals, .. } = &mut *self.shard;
        let key = keys.get_bucket_mut(self.bucket).ok_or(Refusal::KeyUnknown)?;
        key.check_role(report.event, report.role)?;
        key.sessions.advance(now, store.lifetime_max_s());
        let hash = key.hash;
        let place = key.peer_quota().map(|_| store.quota_place(hash, report));
        let old_place = place.and_then(|_| sessions.place(tag));
        let event = report.event;
        let reported = Reported::new(now, report);
        let mut peer =
            Announcing { store, now, key, sessions, tag, event, reported, place, old_place };
        // 1. A peer that comes back with another peer id ends its old session.
        let has_replaced = peer.end_predecessor();
        // 2. Move the session and the quota on.
        let found = peer.sessions.find(tag);
        let progress = match (found, event) {
            (None, Event::Stopped) => KeyTotals::default(),
            (None, _) => peer.begin()?,
            (Some(session), Event::Stopped) => peer.stop(session),
            (Some(session), _) => peer.renew(session)?,
        };
        if store.keeps_changes() && !report.is_web && event != Event::Stopped {
            peer.sessions.keep_renewed(tag);
        }
        // 3. While sessions are imported, the first report of a client counts nothing yet.
        let session = Session { tag, last: reported };
        let is_first = store.first_reports.add(hash, session, event, found, peer.sessions);
        let progress = if is_first { KeyTotals::default() } else { progress };
        // 4. Add the peer's progress to the key's totals.
        let since = found.map_or(now, |session| session.last.at);
        let credited = store.credit(now, since, &mut peer.key.credit, &progress);
        totals.add(peer.key.id, &KeyTotals { announces: 1, ..credited });
        Ok(found.is_some() || has_replaced || event != Event::Stopped)
    }
}

impl Announcing<'_> {
    /// Ends the session that the peer has under another peer id, if that counts against the key's quota. Returns
    /// whether there was one.
    #[inline]
    fn end_predecessor(&mut self) -> bool {
        let (Some(place), None) = (self.place, self.old_place) else { return false };
        let quota = self.key.peer_quota();
        let old = quota.and_then(|quota| quota.predecessor(place.torrent, self.tag));
        let Some(old) = old else { return false };
        if let Some(session) = self.sessions.find(old) {
            self.end(old, session.last);
        }
        true
    }

    /// Begins a session, if there is room for it. Without room, the peer of a key with bounds is refused, since it
    /// could not be counted; others are served without a session.
    fn begin(&mut self) -> Result<KeyTotals, Refusal> {
        // The first report counts nothing: the bytes were transferred elsewhere, or before.
        let none = KeyTotals::default();
        if let Err(refusal) = self.sessions.check_room(self.tag, self.key.sessions.len()) {
            return if self.place.is_some() { Err(refusal) } else { Ok(none) };
        }
        self.enter_quota()?;
        self.sessions.put(self.tag, self.reported);
        self.key.sessions.add();
        Ok(none)
    }

    /// Renews a session. Returns the progress of its peer.
    #[inline]
    fn renew(&mut self, session: Session) -> Result<KeyTotals, Refusal> {
        self.enter_quota()?;
        self.key.sessions.renew(self.now, self.store.lifetime_max_s(), session.last.at);
        let progress = self.progress(session);
        self.sessions.put(self.tag, self.reported);
        Ok(progress)
    }

    /// Ends the session of a peer that stops. Returns its progress.
    fn stop(&mut self, session: Session) -> KeyTotals {
        let progress = self.progress(session);
        self.end(self.tag, self.reported);
        progress
    }

    /// Returns the progress since the last report. Clients count from their start: an announce with `started` begins
    /// a new count and has no progress.
    #[inline]
    fn progress(&self, session: Session) -> KeyTotals {
        if self.event == Event::Started {
            return KeyTotals::default();
        }
        session.last.progress_to(&self.reported, &self.sessions.siblings(self.tag))
    }

    #[inline]
    fn enter_quota(&mut self) -> Result<(), Refusal> {
        match self.place {
            Some(place) if self.old_place != self.place => {
                self.key.enter_quota(self.tag, place, self.sessions)
            }
            _ => Ok(()),
        }
    }

    /// Ends a session, and keeps its end for the other nodes, with its last report as one of now.
    fn end(&mut self, tag: SessionTag, last: Reported) {
        let period_s = self.store.lifetime_max_s();
        let ended = self.key.end_session(self.now, period_s, tag, self.sessions);
        if self.store.keeps_changes()
            && let Some(ended) = ended
        {
            let session = Session { tag, last: Reported { at: self.now, ..last } };
            self.sessions.keep_ended(SessionRecord { session, ..ended });
        }
    }
}

impl PasskeyStore {
    /// Ends the session of a peer whose connection has ended. Does nothing if it has none.
    pub(crate) fn leave(&self, now: Tick, key: KeyHash, tag: SessionTag) {
        let mut shard = self.lock(key.short());
        let Shard { keys, sessions, totals, .. } = &mut *shard;
        let Some(key) = find_key(keys, key) else { return };
        key.sessions.advance(now, self.lifetime_max_s());
        let Some(session) = sessions.find(tag) else { return };
        let seeding_s = session.last.seeding_s(now, &sessions.siblings(tag));
        totals.add(key.id, &KeyTotals { seeding_s, ..KeyTotals::default() });
        key.end_session(now, self.lifetime_max_s(), tag, sessions);
    }

    fn quota_place(&self, key: KeyHash, report: &Report<'_>) -> QuotaPlace {
        QuotaPlace {
            key,
            torrent: siphash::<1, 3>(&self.secret, &report.info_hash.0) as u32,
            address: siphash_ip::<1, 3>(&self.secret, report.prefix) as u32,
        }
    }
}
