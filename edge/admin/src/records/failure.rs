//! Why something could not be recorded, or the records not be opened.

use std::fmt;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Why a change was not made, or nothing could be looked up. What failed has left no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsError {
    /// The disk is full.
    DiskFull,
    /// Another process holds the file.
    Locked,
    /// Too many changes wait already.
    QueueFull,
    /// Something of that name is there already.
    Conflict,
    /// The writer has ended.
    Stopped,
    /// Another process is taking over, and has read the records already.
    Upgrading,
    /// What SQLite says.
    Other(String),
}

impl RecordsError {
    /// Names in metrics, by [`RecordsError::index`].
    pub const LABELS: [&str; 7] =
        ["full", "locked", "busy", "conflict", "stopped", "upgrading", "other"];

    /// Reads SQLite's error.
    pub(crate) fn new(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::ConstraintViolation) => Self::Conflict,
            _ => Self::Other(error.to_string()),
        }
    }

    /// The place in tables.
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

impl fmt::Display for RecordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskFull => "the disk of the records is full: make room and try again",
            Self::Locked => "another process holds the records' file: end it and try again",
            Self::QueueFull => "too many changes wait for the records: try again in a moment",
            Self::Conflict => "it is there already",
            Self::Stopped => "the tracker is stopping",
            Self::Upgrading => "another process is taking over: try again in a moment",
            Self::Other(text) => return write!(f, "the records cannot be used: {text}"),
        })
    }
}

/// Why records cannot be used. The file is as it was.
#[derive(Debug)]
pub struct OpenError {
    pub(super) file: Option<PathBuf>,
    pub(super) reason: Reason,
}

/// What is wrong with a file.
#[derive(Debug)]
pub(super) enum Reason {
    /// Not a SQLite database, or one of another program.
    Foreign,
    /// Of a later version of this program, whose form has this number.
    Newer(i64),
    /// Parts of it make no sense.
    Corrupt(String),
    /// Another process holds it.
    Locked,
    /// Something else.
    Other(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().map(|file| file.display().to_string());
        write!(f, "state.dir: {} ", file.as_deref().unwrap_or("the records in memory"))?;
        match &self.reason {
            Reason::Foreign => f.write_str(
                "is no file of tidegate's records: move it away, or name another folder",
            ),
            Reason::Newer(form) => write!(
                f,
                "was made by a later version of tidegate (form {form}): run that, or name another folder"
            ),
            Reason::Corrupt(text) => write!(
                f,
                "is damaged ({text}): put a copy in its place, or rescue it by sqlite3's .recover"
            ),
            Reason::Locked => {
                f.write_str("is held by another process: end that, or name another folder")
            }
            Reason::Other(text) => write!(f, "cannot be opened: {text}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Reason {
    /// Reads SQLite's error.
    pub(super) fn new(error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::Foreign,
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            _ => Self::Other(error.to_string()),
        }
    }
}
