//! Sessions of an earlier process: from its journal, or sent by it during an upgrade.
//!
//! They may come after this process has begun to serve, when their peers have announced here already. So
//! while sessions are imported, the first report of each client counts nothing. It is kept beside what is
//! imported for the client, and at the end counts as far as it exceeds that: as if the earlier process had
//! received it.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use types::{Event, Tick, limits};

use super::export::{self, BadSessions, SessionRecord};
use super::record::KeyRecord;
use super::sessions::{LockedSessions, Reported, Session, SessionTag, Siblings};
use super::{KeyHash, KeyTotals, LockedKeys, PasskeyStore, Report, Sessions};

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedSessions {
    /// Sessions stored.
    pub stored: u64,
    /// Sessions skipped: their lifetime has passed, their key does not exist any more, or a younger session
    /// of the peer does.
    pub skipped: u64,
}

/// The clients that have announced since an import began.
#[derive(Default)]
pub(super) struct FirstReports {
    is_on: AtomicBool,
    reports: Mutex<HashTable<FirstReport>>,
}

/// The first report of a client since an import began.
struct FirstReport {
    client: u64,
    /// Of the peer that made it.
    endpoint: u64,
    key: KeyHash,
    at: Tick,
    /// Whether the client continues to count, rather than beginning anew.
    counts: bool,
    uploaded: u64,
    downloaded: u64,
    /// What has been imported for the client.
    imported: Vec<(SessionTag, Reported)>,
    /// Endpoints whose sessions have ended here: an imported one must not bring them back.
    ended: Vec<u64>,
}

/// Whether a client has announced since an import began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    No,
    Yes,
    /// Yes, and the peer in question has stopped.
    Ended,
}

impl PasskeyStore {
    /// Begins an import of sessions beside announces. [`Self::finish_import`] ends it. Not needed if there
    /// are no announces yet.
    pub fn begin_import(&self) {
        self.first_reports.is_on.store(true, Ordering::Release);
    }

    /// Imports what [`Self::export_sessions`] of a process with the same secret has exported. See
    /// [`crate::Tracker::import_sessions`].
    pub(crate) fn import_sessions(
        &self,
        now: Tick,
        (cut_ago_s, lifetime_s): (u32, u32),
        is_exact: bool,
        body: &[u8],
    ) -> Result<ImportedSessions, BadSessions> {
        let (name, body) = body.split_first_chunk().ok_or(BadSessions)?;
        let (flags, body) = body.split_first_chunk().ok_or(BadSessions)?;
        let is_own = *name == self.secret_name();
        let is_exact = is_exact && u32::from_le_bytes(*flags) & export::IS_LAST != 0;
        let mut imported = ImportedSessions::default();
        for record in export::records(body)? {
            let record = record.map(|it| if is_exact { it } else { it.without_report() });
            let is_stored = is_own
                && record.is_some_and(|record| {
                    let age_s = record.age_s.saturating_add(cut_ago_s);
                    age_s <= lifetime_s && self.import(now, age_s, &record)
                });
            *(if is_stored { &mut imported.stored } else { &mut imported.skipped }) += 1;
        }
        Ok(imported)
    }

    /// Ends an import: counts what was reported meanwhile.
    pub fn finish_import(&self) {
        self.first_reports.is_on.store(false, Ordering::Release);
        // Announces that have seen the flag set may still add reports; those count nothing.
        let reports = std::mem::take(&mut *self.first_reports.reports.lock());
        for report in reports {
            let progress = report.progress();
            if progress == KeyTotals::default() {
                continue;
            }
            let mut keys = self.keys.lock(report.key);
            if let Some((row, mut record)) = keys.find(report.key) {
                record.add(&progress);
                keys.set_changed(row, record);
            }
        }
    }

    /// Imports a session. Returns false if it is skipped.
    fn import(&self, now: Tick, age_s: u32, record: &SessionRecord) -> bool {
        let at = Tick(now.0.saturating_sub(age_s));
        let Some((hash, _)) = record.of_key else {
            return self.import_into(at, record, None);
        };
        // Everywhere: keys before sessions.
        let mut keys = self.keys.lock(hash);
        let Some((row, mut of_key)) = keys.find(hash) else { return false };
        of_key.sessions.advance(now, self.lifetime_max_s());
        let is_stored = self.import_into(at, record, Some((now, &mut of_key, &mut keys)));
        keys.set(row, of_key);
        is_stored
    }

    fn import_into(
        &self,
        at: Tick,
        record: &SessionRecord,
        mut key: Option<(Tick, &mut KeyRecord, &mut LockedKeys<'_>)>,
    ) -> bool {
        let (tag, reported) = (record.tag, record.reported(at));
        // 1. The session of a peer that is here under another peer id has ended.
        if let (Some((_, of_key, keys)), Some((_, (torrent, _)))) = (&mut key, record.of_key)
            && let Some(quota) = of_key.peer_quota(keys.aux_mut())
            && quota.predecessor(torrent, tag).is_some()
        {
            return false;
        }
        let mut sessions = self.sessions.lock(tag);
        let known = self.first_reports.add_imported(tag, reported);
        // 2. Of two imported ones the later one holds, but what happened here is later than both. Rounding
        //    may make a copy a second older.
        if let Some((row, mut session)) = sessions.find(tag) {
            let is_later = known == Known::No && at.after(2) >= session.at();
            if is_later {
                if let Some((now, of_key, _)) = key {
                    of_key.sessions.remove(now, self.lifetime_max_s(), session.at());
                    of_key.sessions.add_at(now, self.lifetime_max_s(), at);
                }
                session.set_reported(reported);
                sessions.set(row, session);
            }
            return is_later;
        }
        // 3. Insert it.
        let of_key = key.as_ref().map_or(0, |(_, of_key, _)| of_key.sessions.len());
        if known == Known::Ended || self.sessions.check_room(&sessions, tag, of_key).is_err() {
            return false;
        }
        let mut session = Session::imported(tag, reported);
        if let (Some((now, of_key, keys)), Some((hash, entry))) = (key, record.of_key) {
            // If it exceeds the quota by now, it does not count, and its peer is refused when it announces.
            if let Some(quota) = of_key.peer_quota(keys.aux_mut())
                && quota.add_peer(tag, entry).is_ok()
            {
                session.set_quota_entry(sessions.aux_mut(), hash, entry);
            }
            of_key.sessions.add_at(now, self.lifetime_max_s(), at);
        }
        Sessions::insert(&mut sessions, session);
        true
    }
}

impl FirstReports {
    /// Keeps a report if it is the first of its client in an import. Returns whether it is; then it counts
    /// nothing yet. Call before `sessions` has changed.
    #[inline]
    pub(super) fn add(
        &self,
        now: Tick,
        (key, tag): (KeyHash, SessionTag),
        sessions: &LockedSessions<'_>,
        report: &Report<'_>,
    ) -> bool {
        // Acquire: what was imported before is seen, too.
        self.is_on.load(Ordering::Acquire) && self.add_first(now, (key, tag), sessions, report)
    }

    #[cold]
    fn add_first(
        &self,
        now: Tick,
        (key, SessionTag { client, endpoint }): (KeyHash, SessionTag),
        sessions: &LockedSessions<'_>,
        report: &Report<'_>,
    ) -> bool {
        let mut reports = self.reports.lock();
        let is_full = reports.len() >= limits::KEY_FIRST_REPORTS_MAX;
        let of_client = |report: &FirstReport| report.client == client;
        match reports.entry(client, of_client, |report| report.client) {
            Entry::Occupied(mut known) => {
                let ended = &mut known.get_mut().ended;
                let has_room = ended.len() < limits::KEY_SESSIONS_OF_CLIENT_MAX;
                if report.event == Event::Stopped && has_room && !ended.contains(&endpoint) {
                    ended.push(endpoint);
                }
                false
            }
            Entry::Vacant(_) if is_full => false,
            Entry::Vacant(place) => {
                let imported = sessions.rows_of(client);
                let ended = (report.event == Event::Stopped).then_some(endpoint);
                place.insert(FirstReport {
                    client,
                    endpoint,
                    key,
                    at: now,
                    counts: report.event != Event::Started,
                    uploaded: report.uploaded,
                    downloaded: report.downloaded,
                    imported: imported.map(|(_, it)| (it.tag(), it.reported())).collect(),
                    ended: ended.into_iter().collect(),
                });
                true
            }
        }
    }

    /// Forgets the first report of a client, which was refused.
    #[cold]
    pub(super) fn forget(&self, tag: SessionTag) {
        let mut reports = self.reports.lock();
        let found = reports.find_entry(tag.client, |report| report.client == tag.client);
        found.into_iter().for_each(|found| _ = found.remove());
    }

    /// Keeps what a session of the earlier process has reported, if its client has announced here.
    fn add_imported(&self, tag: SessionTag, reported: Reported) -> Known {
        if !self.is_on.load(Ordering::Acquire) {
            return Known::No;
        }
        let mut reports = self.reports.lock();
        let found = reports.find_mut(tag.client, |report| report.client == tag.client);
        let Some(report) = found else { return Known::No };
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
    /// Returns how far the report exceeds what is imported for the client.
    fn progress(&self) -> KeyTotals {
        let own = SessionTag { client: self.client, endpoint: self.endpoint };
        let Some((_, reported)) = self.imported.iter().find(|(tag, _)| *tag == own) else {
            return KeyTotals::default();
        };
        if !self.counts {
            return KeyTotals::default();
        }
        let others = self.imported.iter().filter(|(tag, _)| *tag != own);
        let siblings = Siblings::of(others.map(|(_, reported)| *reported));
        let session = Session::imported(own, *reported);
        session.progress_to(self.at, &siblings, (self.uploaded, self.downloaded))
    }
}
