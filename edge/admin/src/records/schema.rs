//! The database schema, and its migrations.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::failure::{OpenError, Reason};
use super::stamps;

/// The `application_id` that identifies our files, to `file` and to us: "TGAT".
const APPLICATION: i64 = 0x5447_4154;
/// Longest wait for another process's lock: it may be making a backup.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Migrations from an empty file to the present schema. Existing files depend on them: only append.
/// `user_version` is the number of migrations that a file has had.
const MIGRATIONS: &[&str] = &[
    // Info hashes are 20 bytes, times seconds since 1970.
    "CREATE TABLE allowed (hash BLOB PRIMARY KEY) WITHOUT ROWID, STRICT;
     CREATE TABLE denied (hash BLOB PRIMARY KEY) WITHOUT ROWID, STRICT;
     CREATE TABLE downloads (hash BLOB PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID, STRICT;
     CREATE TABLE keys (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         key TEXT NOT NULL UNIQUE,
         name TEXT NOT NULL,
         created INTEGER NOT NULL,
         expires INTEGER,
         peers_per_torrent INTEGER NOT NULL,
         torrents INTEGER NOT NULL,
         addresses INTEGER NOT NULL,
         announces_per_minute INTEGER NOT NULL,
         uploaded INTEGER NOT NULL DEFAULT 0,
         downloaded INTEGER NOT NULL DEFAULT 0,
         seeding_s INTEGER NOT NULL DEFAULT 0,
         announces INTEGER NOT NULL DEFAULT 0,
         first_used INTEGER
     ) STRICT;
     CREATE TABLE bans (
         network TEXT PRIMARY KEY,
         reason TEXT NOT NULL,
         automatic INTEGER NOT NULL,
         created INTEGER NOT NULL,
         expires INTEGER
     ) WITHOUT ROWID, STRICT;
     CREATE TABLE tokens (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         digest BLOB NOT NULL UNIQUE,
         name TEXT NOT NULL,
         scopes TEXT NOT NULL,
         created INTEGER NOT NULL,
         expires INTEGER
     ) STRICT;
     CREATE TABLE webhooks (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         url TEXT NOT NULL,
         events TEXT NOT NULL,
         secret TEXT NOT NULL,
         created INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE frozen (hash BLOB PRIMARY KEY) WITHOUT ROWID, STRICT;
     CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT;",
    "ALTER TABLE tokens ADD COLUMN is_first INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE ignored_nodes (node INTEGER PRIMARY KEY) STRICT;",
    // For clusters; all but `last_ids` are gone since.
    "CREATE TABLE replica (node INTEGER NOT NULL, epoch INTEGER NOT NULL, has_joined INTEGER NOT NULL) STRICT;
     CREATE TABLE outbox (
         number INTEGER PRIMARY KEY AUTOINCREMENT,
         at INTEGER NOT NULL,
         stored_at INTEGER,
         ops TEXT NOT NULL
     ) STRICT;
     CREATE INDEX outbox_unstored ON outbox (number) WHERE stored_at IS NULL;
     CREATE TABLE heard (
         node INTEGER PRIMARY KEY,
         epoch INTEGER NOT NULL,
         number INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE positions (
         name TEXT PRIMARY KEY,
         stream INTEGER NOT NULL,
         sequence INTEGER NOT NULL
     ) WITHOUT ROWID, STRICT;
     CREATE TABLE unsent_totals (
         id INTEGER PRIMARY KEY,
         uploaded INTEGER NOT NULL,
         downloaded INTEGER NOT NULL,
         seeding_s INTEGER NOT NULL,
         announces INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE last_ids (name TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID, STRICT;",
    // Statistics for charts: `data` is a JSON object.
    "CREATE TABLE history (
         step_s INTEGER NOT NULL,
         time INTEGER NOT NULL,
         data TEXT NOT NULL,
         PRIMARY KEY (step_s, time)
     ) WITHOUT ROWID, STRICT;
     CREATE TABLE annotations (
         number INTEGER PRIMARY KEY,
         time INTEGER NOT NULL,
         kind TEXT NOT NULL,
         text TEXT NOT NULL
     ) STRICT;",
    // The digest of the token that a webhook ends with.
    "ALTER TABLE webhooks ADD COLUMN token BLOB;",
    // A stamp for each row, and for each one that was removed in a cluster. `key` is an info hash, or two bytes of a
    // hash and the row's name. Entries of lists (kinds 4 to 6) are here only. Their stamp is the oldest.
    "CREATE TABLE stamps (
         kind INTEGER NOT NULL,
         key BLOB NOT NULL,
         stamp INTEGER NOT NULL,
         is_removed INTEGER NOT NULL,
         PRIMARY KEY (kind, key)
     ) WITHOUT ROWID, STRICT;
     CREATE INDEX tombstones ON stamps (stamp) WHERE is_removed;
     INSERT INTO stamps SELECT 4, hash, 256, 0 FROM frozen ORDER BY hash;
     INSERT INTO stamps SELECT 5, hash, 256, 0 FROM allowed ORDER BY hash;
     INSERT INTO stamps SELECT 6, hash, 256, 0 FROM denied ORDER BY hash;
     DROP TABLE frozen; DROP TABLE allowed; DROP TABLE denied;
     CREATE TABLE ranges (
         kind INTEGER NOT NULL,
         range INTEGER NOT NULL,
         digest INTEGER NOT NULL,
         PRIMARY KEY (kind, range)
     ) WITHOUT ROWID, STRICT;
     CREATE TABLE clock (node INTEGER NOT NULL, stamp INTEGER NOT NULL) STRICT;
     CREATE INDEX bans_expires ON bans (expires) WHERE expires IS NOT NULL;
     ALTER TABLE downloads RENAME TO old_downloads;
     CREATE TABLE downloads (
         hash BLOB NOT NULL,
         node INTEGER NOT NULL,
         count INTEGER NOT NULL,
         PRIMARY KEY (hash, node)
     ) WITHOUT ROWID, STRICT;
     INSERT INTO downloads SELECT hash, 0, count FROM old_downloads ORDER BY hash;
     DROP TABLE old_downloads;
     CREATE TABLE key_totals (
         id INTEGER NOT NULL,
         node INTEGER NOT NULL,
         uploaded INTEGER NOT NULL,
         downloaded INTEGER NOT NULL,
         seeding_s INTEGER NOT NULL,
         announces INTEGER NOT NULL,
         first_used INTEGER,
         PRIMARY KEY (id, node)
     ) WITHOUT ROWID, STRICT;
     INSERT INTO key_totals SELECT id, 0, min(uploaded, 36028797018963967), min(downloaded, 36028797018963967),
         min(seeding_s, 36028797018963967), min(announces, 36028797018963967), first_used FROM keys;
     ALTER TABLE keys DROP COLUMN uploaded;
     ALTER TABLE keys DROP COLUMN downloaded;
     ALTER TABLE keys DROP COLUMN seeding_s;
     ALTER TABLE keys DROP COLUMN announces;
     ALTER TABLE keys DROP COLUMN first_used;
     DROP TABLE replica; DROP TABLE outbox; DROP TABLE heard; DROP TABLE positions; DROP TABLE unsent_totals;",
    // Rules of keys for sites, and when totals have changed.
    "ALTER TABLE keys ADD COLUMN seed_only INTEGER NOT NULL DEFAULT 0;
     ALTER TABLE keys ADD COLUMN download_slots INTEGER NOT NULL DEFAULT 0;
     ALTER TABLE key_totals ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
     CREATE INDEX key_totals_changed ON key_totals (changed);",
    "CREATE TABLE torrent_reasons (hash BLOB PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID, STRICT;",
];

/// Opens the records for writing and migrates them.
pub(super) fn open(file: Option<&Path>) -> Result<Connection, OpenError> {
    open_and_migrate(file).map_err(|reason| OpenError { file: file.map(Path::to_owned), reason })
}

fn open_and_migrate(file: Option<&Path>) -> Result<Connection, Reason> {
    if let Some(path) = file {
        create(path)?;
    }
    let connection = file.map_or_else(Connection::open_in_memory, connect)?;
    check(&connection)?;
    prepare(&connection)?;
    migrate(&connection, MIGRATIONS)?;
    stamps::adopt(&connection)?;
    Ok(connection)
}

/// Opens existing records as they are: of this version or an earlier one.
pub(super) fn open_existing(file: &Path) -> Result<Connection, Reason> {
    let connection = connect(file)?;
    check(&connection)?;
    Ok(connection)
}

/// Opens existing records for reading.
pub(super) fn open_read_only(file: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = connect(file)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}

/// Creates an empty file that only its owner may read, if there is none. SQLite creates the files beside it
/// with the same mode. Fails if the file is a link: another user of the folder could have put it there,
/// to get any other file written.
fn create(file: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created.map(drop),
    }
    if file.symlink_metadata()?.is_symlink() {
        let text = "it is a symbolic link: put the file itself there, or link the whole folder";
        return Err(std::io::Error::other(text));
    }
    // For the reason, if it may not be written.
    OpenOptions::new().append(true).open(file).map(drop)
}

fn connect(file: &Path) -> Result<Connection, rusqlite::Error> {
    // SQLite refuses all links in the path then, and the folder may be reached by one.
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    let real = folder.zip(file.file_name()).map(|(folder, name)| folder.join(name));
    // No URI: folder names may contain any character.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(real.as_deref().unwrap_or(file), flags)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    Ok(connection)
}

/// Checks that the file is ours and not of a later version, before anything is written to it.
fn check(connection: &Connection) -> Result<(), Reason> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let objects = number("SELECT count(*) FROM sqlite_schema")?;
    // An empty file: the process may have ended right after creating it.
    if objects == 0 && version == 0 && (application == 0 || application == APPLICATION) {
        return Ok(());
    }
    if application != APPLICATION || version < 1 {
        return Err(Reason::Foreign);
    }
    if version > MIGRATIONS.len() as i64 {
        return Err(Reason::Newer(version));
    }
    Ok(())
}

/// Configures the writer's connection.
fn prepare(connection: &Connection) -> Result<(), rusqlite::Error> {
    // Returns a row with the resulting mode, which is another in memory.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // The writer makes its own checkpoints, when no change is queued. 64 MiB of pages hold a million counts.
    // Temporary files would be where the sandbox permits no writes, so they are in memory.
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -65536;
         PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF;",
    )
}

/// Runs those of `migrations` that the file has not had, in one transaction.
fn migrate(connection: &Connection, migrations: &[&str]) -> Result<(), rusqlite::Error> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let done = done as usize;
    let migrate = || {
        migrations.iter().skip(done).try_for_each(|sql| connection.execute_batch(sql))?;
        if done < migrations.len() {
            connection.pragma_update(None, "application_id", APPLICATION)?;
            connection.pragma_update(None, "user_version", migrations.len() as u32)?;
        }
        connection.execute_batch("COMMIT")
    };
    migrate().inspect_err(|_| {
        // Fails if SQLite has rolled back already.
        let _ = connection.execute_batch("ROLLBACK");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators decide by it whether they can go back to an older version.
    #[test]
    fn documents_name_the_present_schema() {
        let page = include_str!("../../../../docs/compatibility.md");
        assert!(page.contains(&format!("| records | schema {} |", MIGRATIONS.len())));
    }

    #[test]
    fn migrates_a_file_of_an_older_schema_once() {
        let steps =
            ["CREATE TABLE one (a INTEGER)", "ALTER TABLE one ADD COLUMN b TEXT DEFAULT 'x'"];
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection, &steps[..1]).unwrap();
        connection.execute_batch("INSERT INTO one VALUES (7)").unwrap();
        for _ in 0..2 {
            migrate(&connection, &steps).unwrap();
            let row = connection.query_row("SELECT a, b FROM one", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            });
            assert_eq!(row.unwrap(), (7, "x".into()));
        }
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE one (a INTEGER)", "CREATE TABLE two (a INTEGER); nonsense"];
        assert!(migrate(&connection, &steps).is_err());
        let count: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(count, 0);
        assert!(connection.is_autocommit());
    }
}
