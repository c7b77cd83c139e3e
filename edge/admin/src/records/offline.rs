//! Adds records of another tracker while no tracker uses the file.
//!
//! All of an import is one transaction: a file that turns out to be damaged in its last line changes nothing. Repeating
//! it changes nothing either: keys are known by their text, and totals and counts are raised, never added.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use tracker::{KeyTotals, UserKey};
use types::InfoHash;
use types::limits::{ACCESS_ENTRIES_MAX, USER_KEYS_MAX};

use super::failure::{OpenError, Reason, RecordsError};
use super::tables::cluster;
use super::tables::counts;
use super::tables::keys::{self, KeyRow, Rules};
use super::tables::lists::{self, List};
use super::{FILE, schema};

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
    /// Bytes.
    pub uploaded: u64,
    /// Bytes.
    pub downloaded: u64,
}

/// How many records an import added; the others were there already.
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
}

impl OfflineRecords {
    /// Opens the records in `folder`, which must exist, or creates them. No other process can open them until this is
    /// dropped, which undoes everything, or committed.
    ///
    /// # Errors
    ///
    /// Fails as [`super::Records::open`] does, if another process has the file open, and if the records are those of
    /// a node of a cluster: the other nodes would not get what is added.
    pub fn open(folder: &Path, now: i64) -> Result<Self, OpenError> {
        let file = folder.join(FILE);
        let db = schema::open(Some(&file))?;
        let fail = |reason| OpenError { file: Some(file.clone()), reason };
        let begin = || {
            // A tracker holds a shared lock as long as it has the file open.
            db.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
            db.execute_batch("BEGIN IMMEDIATE")?;
            let keys = db.query_row("SELECT count(*) FROM keys", [], |row| row.get::<_, u32>(0))?;
            Ok((keys as usize, cluster::identity(&db)?))
        };
        let (keys, identity) = begin().map_err(|error| fail(Reason::new(&error)))?;
        if identity.is_some() {
            return Err(fail(Reason::Clustered));
        }
        let (entries, downloads, counts) = Default::default();
        Ok(Self { db, keys, now, entries, downloads, counts })
    }

    /// Adds a key. One that is there gets name and expiry anew, and totals at least as high; its limits stay.
    ///
    /// # Errors
    ///
    /// Fails if there are too many keys, and if the disk fails.
    pub fn put_key(&mut self, new: &OfflineKey) -> Result<(), RecordsError> {
        let known = self.known_key(new).map_err(RecordsError::new)?;
        let row = match known {
            Some(mut row) => {
                row.name.clone_from(&new.name);
                row.rules.expires = new.expires;
                keys::update(&self.db, &keys::KeyUpdate::to(&row)).map_err(RecordsError::new)?;
                row
            }
            None if self.keys == USER_KEYS_MAX => {
                let text = format!("expected at most {USER_KEYS_MAX} keys");
                return Err(RecordsError::Other(text));
            }
            None => {
                let mut row = self.new_row(new);
                keys::insert(&self.db, &mut row).map_err(RecordsError::new)?;
                self.keys += 1;
                self.counts.keys += 1;
                row
            }
        };
        let totals = KeyTotals {
            uploaded: row.totals.uploaded.max(new.uploaded),
            downloaded: row.totals.downloaded.max(new.downloaded),
            ..row.totals
        };
        if totals == row.totals {
            return Ok(());
        }
        keys::set_totals(&self.db, &KeyRow { totals, ..row }).map_err(RecordsError::new)
    }

    fn known_key(&self, new: &OfflineKey) -> Result<Option<KeyRow>, rusqlite::Error> {
        let sql = "SELECT id FROM keys WHERE key = ?1";
        let mut find = self.db.prepare(sql)?;
        let id =
            find.query_row(params![new.key.as_str()], |row| row.get::<_, u32>(0)).optional()?;
        id.map_or(Ok(None), |id| keys::get(&self.db, id))
    }

    fn new_row(&self, new: &OfflineKey) -> KeyRow {
        let rules = Rules {
            expires: new.expires,
            peers_per_torrent: new.peers_per_torrent,
            ..Rules::default()
        };
        KeyRow {
            id: 0,
            key: new.key.as_str().into(),
            name: new.name.clone(),
            created: self.now,
            rules,
            totals: KeyTotals::default(),
            first_used: None,
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
            self.counts.entries +=
                lists::insert(&self.db, list, &hashes).map_err(RecordsError::new)?;
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
        let raised = counts::raise_counted(&self.db, &downloads).map_err(RecordsError::new)?;
        self.counts.downloads += raised;
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
        self.db.execute_batch("COMMIT").map_err(RecordsError::new)?;
        // Closing moves everything to the file itself, and removes those beside it.
        let closed = self.db.close();
        closed.map_err(|(_, error)| RecordsError::new(error))?;
        Ok(self.counts)
    }
}
