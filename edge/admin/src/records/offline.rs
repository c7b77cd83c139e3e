//! Adds records of another tracker while no tracker uses the file.
//!
//! All of an import is one transaction: a file that turns out to be damaged in its last line changes nothing. Repeating
//! it changes nothing either: keys are known by their text, and totals and counts are raised, never added.

use std::path::Path;

use rusqlite::Connection;
use tracker::{KeyTotals, UserKey};
use types::InfoHash;
use types::limits::{ACCESS_ENTRIES_MAX, USER_KEYS_MAX};

use super::changes::Consequences;
use super::failure::{OpenError, Reason, RecordsError};
use super::op::{Outcome, RecordOp};
use super::stamp::{Clock, Stamp};
use super::tables::counts;
use super::tables::key_totals;
use super::tables::keys::{self, KeyFilter, KeyRow, KeyUpdate};
use super::tables::lists::List;
use super::{FILE, schema, stamps};

/// Entries and counts that are written together.
const CHUNK: usize = 10_000;

/// A user's key of another tracker.
#[derive(Clone, Debug)]
pub struct OfflineKey {
    /// The key in announce URLs.
    pub key: UserKey,
    /// For administrators.
    pub name: String,
    /// Unix time in seconds.
    pub expires: Option<i64>,
    /// 0 = unlimited.
    pub peers_per_torrent: u16,
    /// True if the user may only seed.
    pub seed_only: bool,
    /// Bytes.
    pub uploaded: u64,
    /// Bytes.
    pub downloaded: u64,
}

/// Numbers of records that an import added; the others were there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfflineCounts {
    /// Keys.
    pub keys: usize,
    /// Entries of lists.
    pub entries: usize,
    /// Download counts that are higher now.
    pub downloads: usize,
}

/// The records of a tracker that does not run.
pub struct OfflineRecords {
    db: Connection,
    keys: usize,
    /// Unix time in seconds, for what is created.
    now: i64,
    entries: Vec<(List, InfoHash)>,
    downloads: Vec<(InfoHash, u32)>,
    counts: OfflineCounts,
    to: Consequences,
}

impl OfflineRecords {
    /// Opens the records in `folder`, which must exist, or creates them. No other process can open them until this is
    /// dropped, which undoes everything, or committed.
    ///
    /// # Errors
    ///
    /// Fails as [`super::Records::open`] does, and if another process has the file open.
    pub fn open(folder: &Path, now: i64) -> Result<Self, OpenError> {
        let file = folder.join(FILE);
        let db = schema::open(Some(&file))?;
        let fail = |reason| OpenError { file: Some(file.clone()), reason };
        let begin = || -> Result<_, Reason> {
            // A tracker holds a shared lock as long as it has the file open.
            db.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
            db.execute_batch("BEGIN IMMEDIATE")?;
            let keys = keys::count(&db, &KeyFilter::default())? as usize;
            Ok((keys, stamps::read_clock(&db)?.unwrap_or((0, Stamp::OLDEST))))
        };
        let (keys, (node, last)) = begin().map_err(fail)?;
        let now_ms = u64::try_from(now).unwrap_or_default() * 1000;
        let to = Consequences::new(Clock { node, last, now_ms });
        let (entries, downloads, counts) = Default::default();
        Ok(Self { db, keys, now, entries, downloads, counts, to })
    }

    /// Adds a key. One that is there gets name and expiry anew, and totals at least as high; its limits stay.
    ///
    /// # Errors
    ///
    /// Fails if there are too many keys, and if the disk fails.
    pub fn put_key(&mut self, new: &OfflineKey) -> Result<(), RecordsError> {
        let row = match self.known_key(new)? {
            Some(row) => {
                let update = KeyUpdate {
                    name: Some(new.name.clone()),
                    expires: Some(new.expires),
                    seed_only: Some(new.seed_only),
                    ..KeyUpdate::default()
                };
                self.apply(RecordOp::KeyChanged { id: row.id, update })?;
                row
            }
            None if self.keys == USER_KEYS_MAX => {
                let text = format!("expected at most {USER_KEYS_MAX} keys");
                return Err(RecordsError::Other(text));
            }
            None => {
                let row = self.new_row(new);
                self.keys += 1;
                self.counts.keys += 1;
                self.apply(RecordOp::KeyPut(row.clone()))?.key.unwrap_or(row)
            }
        };
        let missing = KeyTotals {
            uploaded: new.uploaded.saturating_sub(row.totals.uploaded),
            downloaded: new.downloaded.saturating_sub(row.totals.downloaded),
            ..KeyTotals::default()
        };
        if missing != KeyTotals::default() {
            key_totals::add(&self.db, &mut self.to, row.id, &missing, None)?;
        }
        Ok(())
    }

    /// Applies a change. No other node listens: those of a cluster find it by digests.
    fn apply(&mut self, op: RecordOp) -> Result<Outcome, RecordsError> {
        let outcome = op.apply(&self.db, &mut self.to)?;
        self.to.effects.clear();
        self.to.told.clear();
        Ok(outcome)
    }

    fn known_key(&self, new: &OfflineKey) -> Result<Option<KeyRow>, rusqlite::Error> {
        let id = keys::id_of(&self.db, new.key.as_str())?;
        id.map_or(Ok(None), |id| keys::get(&self.db, id))
    }

    fn new_row(&self, new: &OfflineKey) -> KeyRow {
        KeyRow {
            key: new.key.as_str().into(),
            name: new.name.clone(),
            created: self.now,
            expires: new.expires,
            peers_per_torrent: new.peers_per_torrent,
            seed_only: new.seed_only,
            ..KeyRow::default()
        }
    }

    /// Adds an entry to a list.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails, or at more entries than a list may have.
    pub fn put_entry(&mut self, list: List, hash: InfoHash) -> Result<(), RecordsError> {
        self.entries.push((list, hash));
        if self.entries.len() >= CHUNK { self.write_entries() } else { Ok(()) }
    }

    /// Raises a torrent's downloads to at least `count`.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub fn put_downloads(&mut self, hash: InfoHash, count: u32) -> Result<(), RecordsError> {
        self.downloads.push((hash, count));
        if self.downloads.len() >= CHUNK { self.write_downloads() } else { Ok(()) }
    }

    fn write_entries(&mut self) -> Result<(), RecordsError> {
        let mut entries = std::mem::take(&mut self.entries);
        // Sorted rows are inserted fastest.
        entries.sort_unstable_by_key(|(list, hash)| (*list == List::Deny, *hash));
        for list in [List::Allow, List::Deny, List::Frozen] {
            let of_list = entries.iter().filter(|(of, _)| *of == list);
            let hashes: Vec<InfoHash> = of_list.map(|(_, hash)| *hash).collect();
            for op in RecordOp::list(list, &hashes, true) {
                self.counts.entries += self.apply(op)?.changed;
            }
        }
        if self.counts.entries > ACCESS_ENTRIES_MAX {
            let text = format!("expected at most {ACCESS_ENTRIES_MAX} entries of lists");
            return Err(RecordsError::Other(text));
        }
        Ok(())
    }

    fn write_downloads(&mut self) -> Result<(), RecordsError> {
        let mut downloads = std::mem::take(&mut self.downloads);
        downloads.sort_unstable();
        for (torrent, count) in downloads {
            let is_raised = counts::raise(&self.db, &mut self.to, &torrent, count)?;
            self.counts.downloads += usize::from(is_raised);
        }
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails; nothing has changed then.
    pub fn commit(mut self) -> Result<OfflineCounts, RecordsError> {
        self.write_entries()?;
        self.write_downloads()?;
        self.to.write(&self.db)?;
        self.db.execute_batch("COMMIT")?;
        // Closing moves everything to the file itself, and removes those beside it.
        let closed = self.db.close();
        closed.map_err(|(_, error)| RecordsError::new(error))?;
        Ok(self.counts)
    }
}
