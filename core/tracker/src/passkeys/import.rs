//! Sessions of an earlier process: from its journal, or sent by it during an upgrade.
//!
//! They may come after this process has begun to serve, when their peers have announced here already. So
//! while sessions are imported, the first report of each client counts nothing. It is kept beside what is
//! imported for the client, and at the end counts as far as it exceeds that: as if the earlier process had
//! received it.
//!
//! Sessions of other nodes of a cluster come while this one serves, and go on to. Of two reports of a peer the
//! later one holds, to the second; of two in the same second that with more bytes. What differs between
//! them has been counted where the later one was made. So a client that reports at two nodes is counted
//! exactly if each report reaches the other node before the next one is made, a second or more later, and
//! seconds begin at the same time everywhere. Otherwise, what it transferred before the report that came too
//! late counts twice; and if it stops at one node, or forgets its counts, and starts at another in the same second,
//! its next report may count nothing. A session that has ended may be back, and hold its place in a quota,
//! for as long as the log lags behind what was heard live.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use types::{Event, Tick, limits};

use super::export::{self, BadSessions, SessionRecord};
use super::session::{Reported, Session, Siblings};
use super::sessions::Sessions;
use super::shard::{Shard, find_key};
use super::{KeyHash, KeyTotals, PasskeyStore, SessionTag};

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedSessions {
    /// Sessions stored.
    pub stored: u64,
    /// Sessions skipped: their lifetime has passed, their key does not exist any more, or a younger session
    /// of the peer does.
    pub skipped: u64,
}

/// When sessions are imported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImportTime {
    pub(crate) now: Tick,
    /// Seconds that count as passed since the body was written.
    pub(crate) cut_ago_s: u32,
    /// Older sessions are skipped, seconds.
    pub(crate) lifetime_s: u32,
}

/// The clients that have announced since an import began.
#[derive(Default)]
pub(super) struct FirstReports {
    is_on: AtomicBool,
    /// By the client of their tags.
    reports: Mutex<BTreeMap<u64, FirstReport>>,
}

/// The first report of a client since an import began.
struct FirstReport {
    /// The peer that made it.
    tag: SessionTag,
    key: KeyHash,
    first: Reported,
    /// True if the client's counts continue; false if they began anew.
    counts: bool,
    /// The sessions imported for the client.
    imported: Vec<(SessionTag, Reported)>,
    /// Endpoints whose sessions have ended here: an imported one must not bring them back.
    ended: Vec<u64>,
}

/// The origin of an imported session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It knows nothing of what happened here.
    EarlierProcess,
    /// It served beside this one.
    OtherNode,
}

/// The answer to: has a client announced since an import began?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    No,
    Yes,
    /// Yes, and the peer in question has stopped.
    Ended,
}

/// A body of sessions.
struct Body<'a> {
    /// True if this process has the secret of its tags.
    is_own: bool,
    flags: u32,
    sessions: &'a [u8],
}

impl PasskeyStore {
    /// Begins an import of sessions beside announces. [`Self::finish_import`] ends it. Not needed if there
    /// are no announces yet.
    pub fn begin_import(&self) {
        self.first_reports.is_on.store(true, Ordering::Release);
    }

    /// Imports what [`Self::export_sessions`] of a process with the same secret has exported. See
    /// [`crate::Tracker::import_sessions`].
    ///
    /// # Errors
    ///
    /// If `body` does not consist of whole sessions. Nothing is imported then.
    pub(crate) fn import_sessions(
        &self,
        time: ImportTime,
        is_exact: bool,
        body: &[u8],
    ) -> Result<ImportedSessions, BadSessions> {
        let body = self.open_body(body)?;
        let is_exact = is_exact && body.flags & export::IS_LAST != 0;
        self.import_body(time, &body, |at, record| {
            let record = if is_exact { record } else { record.without_report() };
            !record.has_ended && self.import_into(time.now, at, &record, Origin::EarlierProcess)
        })
    }

    /// Imports what [`Self::take_changed_sessions`] of another node has taken. See
    /// [`crate::Tracker::import_changed_sessions`].
    ///
    /// # Errors
    ///
    /// If `body` does not consist of whole sessions, or not of changes. Nothing is imported then.
    pub(crate) fn import_changed_sessions(
        &self,
        time: ImportTime,
        body: &[u8],
    ) -> Result<ImportedSessions, BadSessions> {
        let body = self.open_body(body)?;
        if body.flags & export::ARE_CHANGES == 0 {
            return Err(BadSessions);
        }
        self.import_body(time, &body, |at, record| match record.has_ended {
            true => self.import_end(time.now, at, &record),
            false => self.import_into(time.now, at, &record, Origin::OtherNode),
        })
    }

    /// Reads what a body begins with.
    fn open_body<'a>(&self, body: &'a [u8]) -> Result<Body<'a>, BadSessions> {
        let (name, body) = body.split_first_chunk().ok_or(BadSessions)?;
        let (flags, sessions) = body.split_first_chunk().ok_or(BadSessions)?;
        let is_own = *name == self.secret_name();
        Ok(Body { is_own, flags: u32::from_le_bytes(*flags), sessions })
    }

    /// Calls `import` with the sessions of a body whose lifetime has not passed, and the time of their last
    /// report. It returns false if it skips one.
    fn import_body(
        &self,
        time: ImportTime,
        body: &Body<'_>,
        import: impl Fn(Tick, SessionRecord) -> bool,
    ) -> Result<ImportedSessions, BadSessions> {
        let ImportTime { now, cut_ago_s, lifetime_s } = time;
        let mut imported = ImportedSessions::default();
        for record in export::records(body.sessions)? {
            let is_stored = body.is_own
                && record.is_some_and(|record| {
                    let age_s = record.age_s.saturating_add(cut_ago_s);
                    age_s <= lifetime_s && import(Tick(now.0.saturating_sub(age_s)), record)
                });
            if is_stored {
                imported.stored += 1;
            } else {
                imported.skipped += 1;
            }
        }
        if imported.stored > 0 {
            // Keys may have transferred something elsewhere, which their credit allows for.
            self.imported_at.store(now.0.saturating_add(1), Ordering::Relaxed);
        }
        Ok(imported)
    }

    /// Ends an import: counts what was reported meanwhile.
    pub fn finish_import(&self) {
        self.first_reports.is_on.store(false, Ordering::Release);
        // Announces that have seen the flag set may still add reports; those count nothing.
        let reports = std::mem::take(&mut *self.first_reports.reports.lock());
        for report in reports.into_values() {
            let Some((since, progress)) = report.progress() else { continue };
            let mut shard = self.lock(report.key.short());
            let Shard { keys, changed, .. } = &mut *shard;
            if let Some(key) = find_key(keys, report.key) {
                let credited = self.credit(report.first.at, since, &mut key.credit, &progress);
                key.add(&credited, changed);
            }
        }
    }

    /// Imports a session whose last report was made at `at`. Returns false if it is skipped.
    fn import_into(&self, now: Tick, at: Tick, record: &SessionRecord, origin: Origin) -> bool {
        let period_s = self.lifetime_max_s();
        let tag = record.tag;
        let reported = record.reported(at);
        let mut shard = self.lock(tag.client);
        let Shard { keys, sessions, .. } = &mut *shard;
        // 1. Find the key, if the peer counts against its quota. The key may have been removed.
        let mut key = None;
        if let Some(place) = record.place {
            let Some(found) = find_key(keys, place.key) else { return false };
            found.sessions.advance(now, period_s);
            key = Some((found, place));
        }
        // 2. If the peer is here under another peer id, one of both sessions has ended. An earlier process knows
        //    nothing of the peer's last announce here; of another node's and this one's, the older session has ended.
        if let Some((key, place)) = &mut key
            && let Some(quota) = key.peer_quota()
            && let Some(old) = quota.predecessor(place.torrent, tag)
        {
            let is_older = sessions.find(old).is_some_and(|session| session.last.at <= at);
            if origin == Origin::EarlierProcess || !is_older {
                return false;
            }
            key.end_session(now, period_s, old, sessions);
        }
        // 3. Skip it if it is no news.
        let known = self.first_reports.add_imported(tag, reported, origin);
        let here = sessions.find(tag);
        if !is_news(origin, known, here, reported) {
            return false;
        }
        // 4. Skip it if there is no room.
        let of_key = key.as_ref().map_or(0, |(key, _)| key.sessions.len());
        if here.is_none() && sessions.check_room(tag, of_key).is_err() {
            return false;
        }
        // 5. Store it, and count it for its key. If it exceeds the quota by now, it does not count there, and its
        //    peer is refused when it announces.
        sessions.put(tag, reported);
        if let Some((key, place)) = key {
            if let Some(here) = here {
                key.sessions.remove(now, period_s, here.last.at);
            }
            key.sessions.add_at(now, period_s, at);
            if sessions.place(tag).is_none() {
                let _ = key.enter_quota(tag, place, sessions);
            }
        }
        true
    }

    /// Ends a session that has ended at another node at `at`, unless its peer has reported here since.
    fn import_end(&self, now: Tick, at: Tick, record: &SessionRecord) -> bool {
        let tag = record.tag;
        let mut shard = self.lock(tag.client);
        let Shard { keys, sessions, .. } = &mut *shard;
        let Some(here) = sessions.find_placed(tag) else { return false };
        if here.session.last.is_later_than(&record.reported(at)) {
            return false;
        }
        // Only peers with a place in a quota name their key, and each node has quotas of its own.
        let Some(place) = here.place.or(record.place) else {
            sessions.remove(tag);
            return true;
        };
        let Some(key) = find_key(keys, place.key) else { return false };
        key.sessions.advance(now, self.lifetime_max_s());
        key.end_session(now, self.lifetime_max_s(), tag, sessions);
        true
    }
}

/// Returns whether a report that is imported is later than what is known of its peer: `here` is its session.
fn is_news(origin: Origin, known: Known, here: Option<Session>, reported: Reported) -> bool {
    match (origin, here) {
        // A peer that has announced here did so after its last announce to the earlier process. Of two imported
        // sessions the later one holds; rounding may make a copy a second older.
        (Origin::EarlierProcess, Some(here)) => {
            known == Known::No && reported.at.after(2) >= here.last.at
        }
        (Origin::EarlierProcess, None) => known != Known::Ended,
        (Origin::OtherNode, Some(here)) => !here.last.is_later_than(&reported),
        (Origin::OtherNode, None) => true,
    }
}

impl FirstReports {
    /// Returns whether sessions are being imported beside announces.
    pub(super) fn are_kept(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Keeps the report in `session` if it is the first of its client in an import. Returns whether it is; then it
    /// counts nothing yet. Call before `sessions`, those of the shard, have changed.
    #[inline]
    pub(super) fn add(
        &self,
        key: KeyHash,
        session: Session,
        event: Event,
        sessions: &Sessions,
    ) -> bool {
        // Acquire: what was imported before is seen, too.
        self.is_on.load(Ordering::Acquire) && self.add_first(key, session, event, sessions)
    }

    #[cold]
    fn add_first(&self, key: KeyHash, session: Session, event: Event, sessions: &Sessions) -> bool {
        let tag = session.tag;
        let mut reports = self.reports.lock();
        let is_full = reports.len() >= limits::KEY_FIRST_REPORTS_MAX;
        match reports.entry(tag.client) {
            Entry::Occupied(mut known) => {
                let ended = &mut known.get_mut().ended;
                let has_room = ended.len() < limits::KEY_SESSIONS_OF_CLIENT_MAX;
                if event == Event::Stopped && has_room && !ended.contains(&tag.endpoint) {
                    ended.push(tag.endpoint);
                }
                false
            }
            Entry::Vacant(_) if is_full => false,
            Entry::Vacant(vacant) => {
                let imported = sessions.of_client(tag.client);
                let ended = (event == Event::Stopped).then_some(tag.endpoint);
                vacant.insert(FirstReport {
                    tag,
                    key,
                    first: session.last,
                    counts: event != Event::Started,
                    imported: imported.map(|session| (session.tag, session.last)).collect(),
                    ended: ended.into_iter().collect(),
                });
                true
            }
        }
    }

    /// Forgets the first report of a client, which was refused.
    #[cold]
    pub(super) fn forget(&self, tag: SessionTag) {
        self.reports.lock().remove(&tag.client);
    }

    /// Keeps what a session of the earlier process has reported, if its client has announced here. Of another
    /// node's, only what came before the client's first report.
    fn add_imported(&self, tag: SessionTag, reported: Reported, origin: Origin) -> Known {
        if !self.is_on.load(Ordering::Acquire) {
            return Known::No;
        }
        let mut reports = self.reports.lock();
        let Some(report) = reports.get_mut(&tag.client) else { return Known::No };
        if origin == Origin::OtherNode && !report.first.is_later_than(&reported) {
            return Known::Yes;
        }
        if let Some((_, known)) = report.imported.iter_mut().find(|(other, _)| *other == tag) {
            // A journal has a session once a round, the latest one last.
            *known = reported;
        } else if report.imported.len() < limits::KEY_SESSIONS_OF_CLIENT_MAX {
            report.imported.push((tag, reported));
        }
        if report.ended.contains(&tag.endpoint) { Known::Ended } else { Known::Yes }
    }
}

impl FirstReport {
    /// Returns when the peer has reported to the earlier process, and how far this report exceeds what is imported
    /// for the client.
    fn progress(&self) -> Option<(Tick, KeyTotals)> {
        let (_, own) = self.imported.iter().find(|(tag, _)| *tag == self.tag)?;
        if !self.counts {
            return None;
        }
        let others = self.imported.iter().filter(|(tag, _)| *tag != self.tag);
        let siblings = Siblings::of(others.map(|(_, reported)| *reported));
        Some((own.at, own.progress_to(&self.first, &siblings)))
    }
}
