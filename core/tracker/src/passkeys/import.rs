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

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use types::{Event, Tick, limits};

use super::export::{self, BadSessions, SessionRecord};
use super::record::KeyRecord;
use super::sessions::{LockedSessions, Reported, Session, SessionTag, Siblings};
use super::{KeyHash, KeyTotals, LockedKeys, PasskeyStore, Report, Sessions, TableAux};

/// The result of an import.
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
    /// True if the client's counts continue; false if they began anew.
    counts: bool,
    uploaded: u64,
    downloaded: u64,
    /// The sessions imported for the client.
    imported: Vec<(SessionTag, Reported)>,
    /// Endpoints whose sessions have ended here: an imported one must not bring them back.
    ended: Vec<u64>,
}

/// The origin of an imported session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// An earlier process. It knows nothing of what happened here.
    Import,
    /// Another node, which served beside this one.
    Change,
}

/// The answer to: has a client announced since an import began?
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
        let (is_own, flags, body) = self.read_head(body)?;
        let is_exact = is_exact && flags & export::IS_LAST != 0;
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
        self.note_imported(now, &imported);
        Ok(imported)
    }

    /// Imports what [`Self::take_changed_sessions`] of another node has taken. See
    /// [`crate::Tracker::import_changed_sessions`].
    pub(crate) fn import_changed_sessions(
        &self,
        now: Tick,
        (cut_ago_s, lifetime_s): (u32, u32),
        body: &[u8],
    ) -> Result<ImportedSessions, BadSessions> {
        let (is_own, flags, body) = self.read_head(body)?;
        if flags & export::ARE_CHANGES == 0 {
            return Err(BadSessions);
        }
        let mut imported = ImportedSessions::default();
        for record in export::records(body)? {
            let is_stored = is_own
                && record.is_some_and(|record| {
                    let age_s = record.age_s.saturating_add(cut_ago_s);
                    age_s <= lifetime_s && self.import_change(now, age_s, &record)
                });
            *(if is_stored { &mut imported.stored } else { &mut imported.skipped }) += 1;
        }
        self.note_imported(now, &imported);
        Ok(imported)
    }

    /// Remembers when sessions were imported last: keys may have transferred something elsewhere.
    fn note_imported(&self, now: Tick, imported: &ImportedSessions) {
        if imported.stored > 0 {
            self.imported_at.store(now.0.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Returns whether a body's secret is the own one, its flags, and what follows.
    fn read_head<'a>(&self, body: &'a [u8]) -> Result<(bool, u32, &'a [u8]), BadSessions> {
        let (name, body) = body.split_first_chunk().ok_or(BadSessions)?;
        let (flags, body) = body.split_first_chunk().ok_or(BadSessions)?;
        Ok((*name == self.secret_name(), u32::from_le_bytes(*flags), body))
    }

    /// Ends an import: counts what was reported meanwhile.
    pub fn finish_import(&self) {
        self.first_reports.is_on.store(false, Ordering::Release);
        // Announces that have seen the flag set may still add reports; those count nothing.
        let reports = std::mem::take(&mut *self.first_reports.reports.lock());
        for report in reports {
            let Some((since, progress)) = report.progress() else { continue };
            let mut keys = self.keys.lock(report.key);
            if let Some((row, mut record)) = keys.find(report.key) {
                let credited = self.credit(report.at, since, &mut record, &progress);
                record.add(&credited);
                keys.set_changed(row, record);
            }
        }
    }

    /// Imports a session. Returns false if it is skipped.
    fn import(&self, now: Tick, age_s: u32, record: &SessionRecord) -> bool {
        let at = Tick(now.0.saturating_sub(age_s));
        !record.has_ended && self.import_at(now, at, record, Rule::Import)
    }

    /// Imports a session that has changed at another node. Returns false if it is skipped.
    fn import_change(&self, now: Tick, age_s: u32, record: &SessionRecord) -> bool {
        let at = Tick(now.0.saturating_sub(age_s));
        match record.has_ended {
            true => self.import_end(now, at, record),
            false => self.import_at(now, at, record, Rule::Change),
        }
    }

    fn import_at(&self, now: Tick, at: Tick, record: &SessionRecord, rule: Rule) -> bool {
        let Some((hash, _)) = record.of_key else {
            return self.import_into(at, record, None, rule);
        };
        // Everywhere: keys before sessions.
        let mut keys = self.keys.lock(hash);
        let Some((row, mut of_key)) = keys.find(hash) else { return false };
        of_key.sessions.advance(now, self.lifetime_max_s());
        let key = Some((now, &mut of_key, &mut keys));
        let is_stored = self.import_into(at, record, key, rule);
        keys.set(row, of_key);
        is_stored
    }

    fn import_into(
        &self,
        at: Tick,
        record: &SessionRecord,
        mut key: Option<(Tick, &mut KeyRecord, &mut LockedKeys<'_>)>,
        rule: Rule,
    ) -> bool {
        let (tag, reported) = (record.tag, record.reported(at));
        // 1. The session of a peer that is here under another peer id has ended.
        if let (Some((now, of_key, keys)), Some((_, (torrent, _)))) = (&mut key, record.of_key)
            && let Some(quota) = of_key.peer_quota(keys.aux_mut())
            && let Some(old) = quota.predecessor(torrent, tag)
            && !(rule == Rule::Change && self.end_older(*now, at, (of_key, keys.aux_mut()), old))
        {
            return false;
        }
        let mut sessions = self.sessions.lock(tag);
        let known = self.first_reports.add_imported(tag, reported, rule);
        let found = sessions.find(tag);
        // 2. Skip it if it is not news.
        let is_news = match (found, rule) {
            // Of two imported ones the later one holds, but what happened here is later than both. Rounding
            // may make a copy a second older.
            (Some((_, session)), Rule::Import) => known == Known::No && at.after(2) >= session.at(),
            (None, Rule::Import) => known != Known::Ended,
            (Some((_, session)), Rule::Change) => !session.reported().is_later_than(&reported),
            (None, Rule::Change) => true,
        };
        let of_key = key.as_ref().map_or(0, |(_, of_key, _)| of_key.sessions.len());
        let has_room = found.is_some() || self.sessions.check_room(&sessions, tag, of_key).is_ok();
        if !is_news || !has_room {
            return false;
        }
        // 3. Count it for its key.
        let mut session = match found {
            Some((_, session)) => session,
            None => Session::imported(tag, reported),
        };
        if let (Some((now, of_key, keys)), Some((hash, entry))) = (key, record.of_key) {
            if found.is_some() {
                of_key.sessions.remove(now, self.lifetime_max_s(), session.at());
            }
            of_key.sessions.add_at(now, self.lifetime_max_s(), at);
            // If it exceeds the quota by now, it does not count, and its peer is refused when it announces.
            if !session.has_quota_entry()
                && let Some(quota) = of_key.peer_quota(keys.aux_mut())
                && quota.add_peer(tag, entry).is_ok()
            {
                session.set_quota_entry(sessions.aux_mut(), hash, entry);
            }
        }
        // 4. Store it.
        session.set_reported(reported);
        match found {
            Some((row, _)) => sessions.set(row, session),
            None => Sessions::insert(&mut sessions, session),
        }
        true
    }

    /// Ends a session that has ended at another node at `at`, unless its peer has reported here since.
    fn import_end(&self, now: Tick, at: Tick, record: &SessionRecord) -> bool {
        let find_key = || {
            let mut sessions = self.sessions.lock(record.tag);
            let (_, session) = sessions.find(record.tag)?;
            session.of_key(sessions.aux_mut())
        };
        let reported = record.reported(at);
        let Some((hash, _)) = record.of_key.or_else(find_key) else {
            let mut sessions = self.sessions.lock(record.tag);
            let Some((row, session)) = sessions.find(record.tag) else { return false };
            let is_over =
                !session.has_quota_entry() && !session.reported().is_later_than(&reported);
            if is_over {
                sessions.remove_at(row);
            }
            return is_over;
        };
        let mut keys = self.keys.lock(hash);
        let Some((row, mut of_key)) = keys.find(hash) else { return false };
        of_key.sessions.advance(now, self.lifetime_max_s());
        let mut sessions = self.sessions.lock(record.tag);
        let Some((at, session)) = sessions.find(record.tag) else { return false };
        if session.reported().is_later_than(&reported) {
            return false;
        }
        self.end(now, (&mut of_key, keys.aux_mut()), (&mut sessions, at, session));
        drop(sessions);
        keys.set(row, of_key);
        true
    }

    /// Ends the session `old` of a key, which is locked, unless its peer has reported after `at`. Returns
    /// whether it did.
    fn end_older(
        &self,
        now: Tick,
        at: Tick,
        (record, aux): (&mut KeyRecord, &mut TableAux),
        old: SessionTag,
    ) -> bool {
        let mut sessions = self.sessions.lock(old);
        let Some((row, session)) = sessions.find(old) else { return false };
        let is_older = session.at() <= at;
        if is_older {
            self.end(now, (record, aux), (&mut sessions, row, session));
        }
        is_older
    }
}

impl Reported {
    /// Returns whether this was reported after `other`, by the same peer. In the same second, more bytes are
    /// later.
    fn is_later_than(&self, other: &Self) -> bool {
        self.at > other.at
            || self.at == other.at
                && (self.uploaded > other.uploaded || self.downloaded > other.downloaded)
    }
}

impl FirstReports {
    /// Returns whether sessions are being imported beside announces.
    pub(super) fn are_kept(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

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

    /// Keeps what a session of the earlier process has reported, if its client has announced here. Of another
    /// node's, only what came before the client's first report.
    fn add_imported(&self, tag: SessionTag, reported: Reported, rule: Rule) -> Known {
        if !self.is_on.load(Ordering::Acquire) {
            return Known::No;
        }
        let mut reports = self.reports.lock();
        let found = reports.find_mut(tag.client, |report| report.client == tag.client);
        let Some(report) = found else { return Known::No };
        let first = Reported { at: report.at, uploaded: report.uploaded, ..reported };
        let first = Reported { downloaded: report.downloaded, ..first };
        if rule == Rule::Change && !first.is_later_than(&reported) {
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
        let own = SessionTag { client: self.client, endpoint: self.endpoint };
        let (_, reported) = self.imported.iter().find(|(tag, _)| *tag == own)?;
        if !self.counts {
            return None;
        }
        let others = self.imported.iter().filter(|(tag, _)| *tag != own);
        let siblings = Siblings::of(others.map(|(_, reported)| *reported));
        let session = Session::imported(own, *reported);
        let progress = session.progress_to(self.at, &siblings, (self.uploaded, self.downloaded));
        Some((reported.at, progress))
    }
}
