//! Copies of the records: made while a tracker runs, and put back while none does.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::failure::{OpenError, Reason};
use super::{FILE, schema};

/// A summary of a copy of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Users' keys.
    pub keys: u32,
    /// Banned networks.
    pub bans: u32,
    /// Tokens of the API.
    pub tokens: u32,
    /// Torrents with a count of downloads.
    pub downloads: u32,
}

/// Records that a restore has put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Where the records are that were there before.
    pub file: PathBuf,
    /// Their summary; `None` if they are damaged.
    pub counts: Option<CopyCounts>,
}

impl fmt::Display for CopyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, bans, tokens, downloads } = self;
        write!(
            f,
            "keys: {keys}, bans: {bans}, tokens: {tokens}, torrents with downloads: {downloads}"
        )
    }
}

/// Writes a copy of the records in `folder` to the new file `to`, which only its owner can read. It is as of one moment,
/// also while a tracker changes them.
///
/// # Errors
///
/// If the records cannot be read, or the copy not be written. There is no copy then.
pub(super) fn backup(folder: &Path, to: &Path) -> Result<CopyCounts, OpenError> {
    let file = folder.join(FILE);
    let fail = |reason| OpenError { file: Some(file.clone()), reason };
    let db = schema::open_existing(&file).map_err(fail)?;
    let of_copy = |reason| OpenError { file: Some(to.to_owned()), reason };
    // SQLite writes to a file that is there and empty.
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    new.map_err(|error| of_copy(error.into()))?;
    let copied = copy(&db, to);
    if copied.is_err() {
        // An incomplete copy is none.
        let _ = fs::remove_file(to);
    }
    copied.map_err(of_copy)
}

fn copy(db: &Connection, to: &Path) -> Result<CopyCounts, Reason> {
    let name = to.to_str().ok_or_else(|| Reason::Other("its name is no UTF-8".into()))?;
    db.execute("VACUUM INTO ?1", [name])?;
    File::open(to)?.sync_all()?;
    Ok(counts(&schema::open_existing(to)?)?)
}

/// Moves a copy, which is on the same file system, in place of the records in `folder`, which are put aside. No tracker
/// may use them.
///
/// Returns what the copy has, and what was there before.
///
/// # Errors
///
/// If `from` is no sound copy, or of a later version, or a tracker runs. Nothing has changed then.
pub(super) fn restore(
    from: &Path,
    folder: &Path,
) -> Result<(CopyCounts, Option<Replaced>), OpenError> {
    let of_copy = |reason| OpenError { file: Some(from.to_owned()), reason };
    let copied = check_copy(from).map_err(of_copy)?;
    let file = folder.join(FILE);
    let fail = |reason| OpenError { file: Some(file.clone()), reason };
    let other = |error: io::Error| fail(error.into());
    // It stays locked until it is put aside.
    let mut locked = None;
    let mut before = None;
    if file.exists() {
        before = match schema::open_existing(&file).and_then(lock) {
            Ok((db, counts)) => {
                locked = Some(db);
                Some(counts)
            }
            // The reason for restoring it, perhaps.
            Err(Reason::Corrupt(_) | Reason::Foreign) => None,
            Err(reason) => return Err(fail(reason)),
        };
    }
    let aside = folder.join(format!("{FILE}.replaced"));
    let mut replaced = None;
    if file.exists() {
        fs::rename(&file, &aside).map_err(other)?;
        replaced = Some(Replaced { file: aside, counts: before });
    }
    drop(locked);
    for end in ["-wal", "-shm"] {
        // They belong to the file that was there, whose changes are in it.
        let _ = fs::remove_file(folder.join(format!("{FILE}{end}")));
    }
    fs::rename(from, &file).map_err(other)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(other)?;
    Ok((copied, replaced))
}

fn check_copy(from: &Path) -> Result<CopyCounts, Reason> {
    fs::metadata(from)?;
    let db = schema::open_existing(from)?;
    let sound: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound == "ok" { Ok(counts(&db)?) } else { Err(Reason::Corrupt(sound)) }
}

/// Locks records for other processes, with all changes in the file itself.
fn lock(db: Connection) -> Result<(Connection, CopyCounts), Reason> {
    // A tracker holds a shared lock as long as it has the file open.
    db.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    db.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let counts = counts(&db)?;
    Ok((db, counts))
}

fn counts(db: &Connection) -> Result<CopyCounts, rusqlite::Error> {
    let count = |sql: &str| db.query_row(sql, [], |row| row.get(0));
    Ok(CopyCounts {
        keys: count("SELECT count(*) FROM keys")?,
        bans: count("SELECT count(*) FROM bans")?,
        tokens: count("SELECT count(*) FROM tokens")?,
        downloads: count("SELECT count(DISTINCT hash) FROM downloads")?,
    })
}
