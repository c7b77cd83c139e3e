//! The files that a reload has read.

use anyhow::Result;
use net::tls::Certificate;

use crate::access::{AccessFiles, FileWatcher};
use config::{Config, Settings};

/// Result of reading files: their contents, or the reasons why they could not be read.
pub(in crate::serve) enum ReadOutcome {
    /// Configuration, lists and certificates.
    Everything(Result<Box<NewConfig>, Vec<String>>),
    /// Lists and certificates.
    ReadFiles(Box<ReadFiles>),
}

/// Each is applied if it was read without a mistake.
pub(in crate::serve) struct ReadFiles {
    pub(super) access: Result<AccessFiles>,
    pub(super) certificates: Result<Vec<Certificate>>,
}

/// A configuration with its lists and certificates.
pub(in crate::serve) struct NewConfig {
    /// The settings as read.
    pub(super) settings: Settings,
    /// The settings in use after the reload: the old ones with the reloadable new ones.
    pub(super) running: Settings,
    /// Made from the settings as read, with the listener policies of those in use.
    pub(super) config: Config,
    pub(super) watcher: FileWatcher,
    pub(super) access: AccessFiles,
    pub(super) certificates: Vec<Certificate>,
}
