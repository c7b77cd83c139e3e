//! Sessions of an earlier process, from its journal or sent by it during an upgrade, and of other nodes.
//!
//! Those of an earlier process may arrive when this one serves and their peers have announced here already. So
//! while sessions are imported, the first report of each client counts nothing. It is kept beside what is
//! imported for the client. At the end, it counts as far as it exceeds that, as if the earlier process had
//! received it.
//!
//! Those of other nodes arrive all the time. Of two reports of a peer the later one holds, to the second; of two in
//! the same second that with more bytes. What differs between them has been counted where the later one was made. So
//! a client that reports at two nodes is counted exactly if each report reaches the other node before the next one
//! is made, a second or more later, and seconds begin at the same time everywhere. Otherwise, what it transferred
//! before the report that came too late counts twice; and if it stops at one node, or forgets its counts, and starts
//! at another in the same second, its next report may count nothing. A session that has ended may be back, and hold
//! its place in a quota, for as long as the log lags behind the live messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use types::{Event, Tick, limits};

use super::export::{ARE_CHANGES, BadSessions, IS_LAST};
use super::session::{Session, Siblings};
use super::sessions::{SessionRecord, Sessions};
use super::shard::{Shard, find_key};
use super::{KeyHash, KeyTotals, PasskeyStore, SessionTag};

/// The process that has exported sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOrigin {
    /// A process that has ended. It knows nothing of what happened here.
    EarlierProcess {
        /// True if nothing is missing that it did later. Otherwise, the next report of each peer counts nothing.
        is_exact: bool,
    },
    /// A node that serves beside this one, and sends [changes](super::SessionWalk::of_changes).
    OtherNode,
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
    key: KeyHash,
    first: Session,
    /// True if the client's counts continue; false if they began anew.
    counts: bool,
    /// The sessions imported for the client.
    imported: Vec<Session>,
    /// The peers of the client that have announced here. An imported session must not replace theirs, nor bring it
    /// back if they have stopped.
    announced: Vec<SessionTag>,
}

impl PasskeyStore {
    /// Begins an import of sessions beside announces. [`Self::finish_import`] ends it. Not needed if there
    /// are no announces yet.
    pub fn begin_import(&self) {
        self.first_reports.is_on.store(true, Ordering::Release);
    }

    /// Imports what [`Self::export_sessions`] of a process with the same secret has exported. Returns how many
    /// sessions were news. See [`crate::Tracker::import_sessions`].
    ///
    /// # Errors
    ///
    /// If `body` does not consist of whole sessions, or another node's not of changes. Nothing is imported then.
    pub(crate) fn import_sessions(
        &self,
        time: ImportTime,
        origin: SessionOrigin,
        body: &[u8],
    ) -> Result<u64, BadSessions> {
        let (flags, sessions) = self.read_sessions(time, body)?;
        let is_exact = match origin {
            SessionOrigin::EarlierProcess { is_exact } => is_exact && flags & IS_LAST != 0,
            SessionOrigin::OtherNode if flags & ARE_CHANGES == 0 => return Err(BadSessions),
            SessionOrigin::OtherNode => true,
        };
        let mut imported = 0;
        for mut record in sessions {
            if !is_exact {
                record.session.last = record.session.last.without_counts();
            }
            let is_news = match record.has_ended {
                true => self.import_end(time.now, &record),
                false => self.import_into(time.now, &record, origin),
            };
            imported += u64::from(is_news);
        }
        if imported > 0 {
            // Keys may have transferred something elsewhere, which their credit allows for.
            self.imported_at.store(time.now.0.saturating_add(1), Ordering::Relaxed);
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
            let Shard { keys, totals, .. } = &mut *shard;
            if let Some(key) = find_key(keys, report.key) {
                let credited = self.credit(report.first.last.at, since, &mut key.credit, &progress);
                totals.add(key.id, &credited);
            }
        }
    }

    /// Imports a session. Returns false if it is skipped.
    fn import_into(&self, now: Tick, record: &SessionRecord, origin: SessionOrigin) -> bool {
        let period_s = self.lifetime_max_s();
        let SessionRecord { session, place, .. } = *record;
        let Session { tag, last } = session;
        let mut shard = self.lock(tag.client);
        let Shard { keys, sessions, .. } = &mut *shard;
        // 1. Find the key, if the peer counts against its quota. The key may have been removed.
        let mut key = None;
        if let Some(place) = place {
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
            let is_older = sessions.find(old).is_some_and(|here| here.last.at <= last.at);
            if origin != SessionOrigin::OtherNode || !is_older {
                return false;
            }
            key.end_session(now, period_s, old, sessions);
        }
        // 3. Skip it if it is no news.
        let has_announced = self.first_reports.add_imported(session, origin);
        let here = sessions.find(tag);
        let is_news = match (origin, here) {
            // A peer that has announced here did so after its last announce to the earlier process.
            (SessionOrigin::EarlierProcess { .. }, _) if has_announced => false,
            // Of two imported sessions the later one holds; rounding may make a copy a second older.
            (SessionOrigin::EarlierProcess { .. }, Some(here)) => last.at.after(2) >= here.last.at,
            (SessionOrigin::OtherNode, Some(here)) => !here.last.is_later_than(&last),
            (_, None) => true,
        };
        if !is_news {
            return false;
        }
        // 4. Skip it if there is no room.
        let of_key = key.as_ref().map_or(0, |(key, _)| key.sessions.len());
        if here.is_none() && sessions.check_room(tag, of_key).is_err() {
            return false;
        }
        // 5. Store it, and count it for its key. If it exceeds the quota by now, it does not count there, and its
        //    peer is refused when it announces.
        sessions.put(tag, last);
        if let Some((key, place)) = key {
            if let Some(here) = here {
                key.sessions.remove(now, period_s, here.last.at);
            }
            key.sessions.add_at(now, period_s, last.at);
            if sessions.place(tag).is_none() {
                let _ = key.enter_quota(tag, place, sessions);
            }
        }
        true
    }

    /// Ends a session that has ended at another node, unless its peer has reported here since.
    fn import_end(&self, now: Tick, ended: &SessionRecord) -> bool {
        let Session { tag, last } = ended.session;
        let mut shard = self.lock(tag.client);
        let Shard { keys, sessions, .. } = &mut *shard;
        let Some(here) = sessions.find_record(tag) else { return false };
        if here.session.last.is_later_than(&last) {
            return false;
        }
        // Only peers with a place in a quota name their key, and each node has quotas of its own.
        let Some(place) = here.place.or(ended.place) else {
            sessions.remove(tag);
            return true;
        };
        let Some(key) = find_key(keys, place.key) else { return false };
        key.sessions.advance(now, self.lifetime_max_s());
        key.end_session(now, self.lifetime_max_s(), tag, sessions);
        true
    }
}

impl FirstReports {
    /// Returns whether sessions are being imported beside announces.
    pub(super) fn are_kept(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Keeps the report in `session`, which was accepted, if it is the first of its client in an import. Returns
    /// whether it is; then it counts nothing yet. `earlier` is the peer's session before the report, `sessions` are
    /// those of the shard.
    #[inline]
    pub(super) fn add(
        &self,
        key: KeyHash,
        session: Session,
        event: Event,
        earlier: Option<Session>,
        sessions: &Sessions,
    ) -> bool {
        // Acquire: what was imported before is seen, too.
        self.is_on.load(Ordering::Acquire) && self.add_first(key, session, event, earlier, sessions)
    }

    #[cold]
    fn add_first(
        &self,
        key: KeyHash,
        session: Session,
        event: Event,
        earlier: Option<Session>,
        sessions: &Sessions,
    ) -> bool {
        let tag = session.tag;
        let mut reports = self.reports.lock();
        if let Some(FirstReport { announced, .. }) = reports.get_mut(&tag.client) {
            let has_room = announced.len() < limits::KEY_SESSIONS_OF_CLIENT_MAX;
            if has_room && !announced.contains(&tag) {
                announced.push(tag);
            }
            return false;
        }
        if reports.len() >= limits::KEY_FIRST_REPORTS_MAX {
            return false;
        }
        let others = sessions.of_client(tag.client).filter(|other| other.tag != tag);
        let report = FirstReport {
            key,
            first: session,
            counts: event != Event::Started,
            imported: others.copied().chain(earlier).collect(),
            announced: vec![tag],
        };
        reports.insert(tag.client, report);
        true
    }

    /// Keeps an imported session if its client has announced here; of another node's, only what came before the
    /// client's first report. Returns whether the session's peer has announced here.
    fn add_imported(&self, session: Session, origin: SessionOrigin) -> bool {
        if !self.is_on.load(Ordering::Acquire) {
            return false;
        }
        let mut reports = self.reports.lock();
        let Some(report) = reports.get_mut(&session.tag.client) else { return false };
        let is_before = report.first.last.is_later_than(&session.last);
        if origin != SessionOrigin::OtherNode || is_before {
            let imported = &mut report.imported;
            if let Some(known) = imported.iter_mut().find(|known| known.tag == session.tag) {
                // A journal has a session once a round, the latest one last.
                *known = session;
            } else if imported.len() < limits::KEY_SESSIONS_OF_CLIENT_MAX {
                imported.push(session);
            }
        }
        report.announced.contains(&session.tag)
    }
}

impl FirstReport {
    /// Returns the time of the peer's last report to the earlier process, and the progress of this report beyond
    /// all that is imported for the client.
    fn progress(&self) -> Option<(Tick, KeyTotals)> {
        let Session { tag, last: first } = self.first;
        let own = self.imported.iter().find(|session| session.tag == tag)?;
        if !self.counts {
            return None;
        }
        let others = self.imported.iter().filter(|session| session.tag != tag);
        let siblings = Siblings::of(others.map(|session| session.last));
        Some((own.last.at, own.last.progress_to(&first, &siblings)))
    }
}
