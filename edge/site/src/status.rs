//! The state of a site, as operators see it.

use serde::{Deserialize, Serialize};

/// An error, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProblem {
    /// The error: expected and found.
    pub error: String,
    /// The remedy.
    pub remedy: String,
    /// Since when, unix seconds.
    pub since: u64,
}

/// The state of a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// `feed`, `unit3d` or `gazelle`.
    pub kind: String,
    /// True if users and torrents are known: from the database, or from the last run.
    pub ready: bool,
    /// True if sessions are restored, so that announces are counted at once.
    pub counting: bool,
    /// Users that may announce.
    pub users: u64,
    /// Torrents.
    pub torrents: u64,
    /// Remembered clients of users in torrents.
    pub sessions: u64,
    /// Announces that were counted since the start.
    pub announces: u64,
    /// Rows written to the database in a second.
    pub rows_per_s: f64,
    /// Rows written to the database since the start.
    pub rows: u64,
    /// Records that the database refused, for example because their user was deleted.
    pub rows_skipped: u64,
    /// Seconds by which the consumer is behind.
    pub lag_s: u64,
    /// Records that no batch has yet.
    pub pending: u64,
    /// The last batch.
    pub sequence: u64,
    /// Batches that the consumer has not taken yet.
    pub spool_batches: u64,
    /// Bytes of the spool.
    pub spool_bytes: u64,
    /// Reports that no line can carry, which were kept out.
    pub implausible: u64,
    /// Announces that were not counted because a limit was reached.
    pub uncounted: u64,
    /// Users without a passkey that can be one.
    pub bad_passkeys: u64,
    /// Torrents that share their info hash with another one.
    pub duplicate_hashes: u64,
    /// Calls of the site since the start.
    pub calls: u64,
    /// An error of the database, if there is one.
    pub database: Option<SiteProblem>,
    /// An error of the clock, if there is one.
    pub clock: Option<SiteProblem>,
    /// An error of the spool, if there is one.
    pub spool: Option<SiteProblem>,
}
