//! Errors of the records.

use std::path::PathBuf;
use std::{fmt, io};

use rusqlite::ErrorCode;

/// Why a change or a read failed. A failed change leaves no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsError {
    /// The disk is full.
    DiskFull,
    /// Another process has locked the file.
    Locked,
    /// Too many requests are queued.
    QueueFull,
    /// The entry exists already.
    Conflict,
    /// The writer has ended.
    Stopped,
    /// Another process is taking over and has read the records already.
    Upgrading,
    /// Another error of SQLite.
    Other(String),
}

impl RecordsError {
    /// Labels in metrics, by [`RecordsError::index`].
    pub const LABELS: [&str; 7] =
        ["disk_full", "locked", "queue_full", "conflict", "stopped", "upgrading", "other"];

    /// Labels that 1.0.0 had besides. These failures do not exist any more, since changes of other nodes are merged one
    /// by one, beside the node's own, and their counts stay at 0.
    pub(super) const FORMER_LABELS: [&str; 2] = ["merging", "outbox_full"];

    /// Those that pass by themselves, or that the client of the API can avoid. All others need attention.
    pub(super) const HARMLESS: [Self; 3] = [Self::Conflict, Self::QueueFull, Self::Upgrading];

    /// Converts an error of SQLite.
    pub(crate) fn new(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::ConstraintViolation) => Self::Conflict,
            _ => Self::Other(error.to_string()),
        }
    }

    /// Returns the index in tables by error.
    pub fn index(&self) -> usize {
        match self {
            Self::DiskFull => 0,
            Self::Locked => 1,
            Self::QueueFull => 2,
            Self::Conflict => 3,
            Self::Stopped => 4,
            Self::Upgrading => 5,
            Self::Other(_) => 6,
        }
    }
}

impl From<rusqlite::Error> for RecordsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(error)
    }
}

impl fmt::Display for RecordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskFull => "the disk with the records is full: free some space and retry",
            Self::Locked => "another process has locked the file of the records: stop it and retry",
            Self::QueueFull => "too many changes are queued: retry in a moment",
            Self::Conflict => "the entry exists already",
            Self::Stopped => "the tracker is shutting down",
            Self::Upgrading => "an upgrade is in progress: retry in a moment",
            Self::Other(text) => return write!(f, "the records failed: {text}"),
        })
    }
}

impl std::error::Error for RecordsError {}

/// Why the records could not be opened. The file was not changed.
#[derive(Debug)]
pub struct OpenError {
    pub(super) file: Option<PathBuf>,
    pub(super) reason: Reason,
}

/// Reason why a file cannot be used.
#[derive(Debug)]
pub(super) enum Reason {
    /// Not a SQLite database, or one of another program.
    Foreign,
    /// Of a later version of tidegate, with this schema version.
    Newer(i64),
    Corrupt(String),
    Locked,
    Other(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().map(|file| file.display().to_string());
        write!(f, "state.dir: {} ", file.as_deref().unwrap_or("in-memory records"))?;
        match &self.reason {
            Reason::Foreign => {
                f.write_str("is not a tidegate database: move it away or use another folder")
            }
            Reason::Newer(schema) => write!(
                f,
                "was written by a later version of tidegate (schema {schema}): run that version or use another folder"
            ),
            Reason::Corrupt(text) => write!(
                f,
                "is damaged ({text}): restore a backup, or recover it with sqlite3's .recover"
            ),
            Reason::Locked => {
                f.write_str("is locked by another process: stop it or use another folder")
            }
            Reason::Other(text) => write!(f, "cannot be opened: {text}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<RecordsError> for Reason {
    fn from(error: RecordsError) -> Self {
        match error {
            RecordsError::Locked => Self::Locked,
            error => Self::Other(error.to_string()),
        }
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<rusqlite::Error> for Reason {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::Foreign,
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            _ => Self::Other(error.to_string()),
        }
    }
}
