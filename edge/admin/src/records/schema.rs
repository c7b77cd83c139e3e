//! The form of the file, and how older forms become the present one.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::failure::{OpenError, Reason};

/// What tells our files from those of others, to `file` and to us: "TGAT".
const APPLICATION: i64 = 0x5447_4154;
/// How long another process's lock is waited for: it may be a copy being made.
const PATIENCE: Duration = Duration::from_secs(1);

/// Every step from an empty file to the present form. What is here is in files out there: steps are
/// only added. `user_version` counts those that a file has behind it.
const STEPS: &[&str] = &[
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
];

/// Opens the records for writing, brought to the present form.
pub(super) fn open(file: Option<&Path>) -> Result<Connection, OpenError> {
    let fail = |reason| OpenError { file: file.map(Path::to_owned), reason };
    let opened = match file {
        Some(path) => make(path)
            .map_err(|error| fail(Reason::Other(error.to_string())))
            .and_then(|()| connect(path).map_err(|error| fail(Reason::new(&error)))),
        None => Connection::open_in_memory().map_err(|error| fail(Reason::new(&error))),
    };
    let connection = opened?;
    check(&connection).map_err(fail)?;
    prepare(&connection).map_err(|error| fail(Reason::new(&error)))?;
    migrate(&connection, STEPS).map_err(|error| fail(Reason::new(&error)))?;
    Ok(connection)
}

/// Opens records that are there to look at them.
pub(super) fn open_read_only(file: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = connect(file)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}

/// An empty file of its owner's alone, if there is none. What SQLite puts beside it is as this.
fn make(file: &Path) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(file).map(drop)
}

fn connect(file: &Path) -> Result<Connection, rusqlite::Error> {
    // No URI: a folder may be called what it likes.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// Sees whose file it is, before anything is written to it.
fn check(connection: &Connection) -> Result<(), Reason> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let numbers = || {
        Ok([
            number("PRAGMA application_id")?,
            number("PRAGMA user_version")?,
            number("SELECT count(*) FROM sqlite_schema")?,
        ])
    };
    let [application, form, objects] = numbers().map_err(|error| Reason::new(&error))?;
    // One that was never written to, as after an end in the first moment, is nobody's.
    if objects == 0 && form == 0 && (application == 0 || application == APPLICATION) {
        return Ok(());
    }
    if application != APPLICATION || form < 1 {
        return Err(Reason::Foreign);
    }
    if form > i64::try_from(STEPS.len()).unwrap_or(i64::MAX) {
        return Err(Reason::Newer(form));
    }
    Ok(())
}

/// What holds for the writer's connection.
fn prepare(connection: &Connection) -> Result<(), rusqlite::Error> {
    // Answers with the mode that came of it: in memory there is another.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // The writer makes its own checkpoints, when nobody waits. 64 MiB of pages hold a million counts.
    // Files in which a change could be taken back would be where the sandbox lets nobody write.
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -65536;
         PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF;",
    )
}

/// Takes those of `steps` that the file has not behind it: all of them, or none.
fn migrate(connection: &Connection, steps: &[&str]) -> Result<(), rusqlite::Error> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let done = done as usize;
    let take = || {
        steps.iter().skip(done).try_for_each(|step| connection.execute_batch(step))?;
        if done < steps.len() {
            connection.pragma_update(None, "application_id", APPLICATION)?;
            connection.pragma_update(None, "user_version", steps.len() as u32)?;
        }
        connection.execute_batch("COMMIT")
    };
    take().inspect_err(|_| {
        // Where there is nothing to take back, it has been.
        let _ = connection.execute_batch("ROLLBACK");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_older_form_goes_on_where_it_was() {
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
        let form: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(form, 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_form_that_was() {
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
