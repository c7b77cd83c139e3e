//! A site whose users announce, as the API, metrics and the dashboard show it.

use serde::Serialize;

use crate::schema::ToSchema;

/// A site whose users announce.
pub trait SiteSource: Send + Sync {
    /// Returns what the site's part of the tracker is doing.
    fn stats(&self) -> SiteStats;

    /// Returns up to `limit` batches of the feed after the one with this cursor, or the oldest ones that are kept. Reads
    /// from the disk.
    ///
    /// # Errors
    ///
    /// If there is no feed, the cursor is not one of it, or the disk cannot be read.
    fn read_feed(&self, after: Option<&str>, limit: usize) -> Result<Vec<FeedBatch>, FeedError>;

    /// Returns the oldest batch of the feed that is not confirmed, if there is one. Reads from the disk.
    ///
    /// # Errors
    ///
    /// As [`SiteSource::read_feed`].
    fn next_unconfirmed(&self) -> Result<Option<FeedBatch>, FeedError>;

    /// Confirms the batches of the feed up to the one with this cursor: they need not be kept any longer.
    ///
    /// # Errors
    ///
    /// As [`SiteSource::read_feed`].
    fn confirm_feed(&self, cursor: &str) -> Result<(), FeedError>;
}

/// A batch of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedBatch {
    /// Identifies it.
    pub cursor: String,
    /// Its number within the feed.
    pub sequence: u64,
    /// The batch as a JSON object, which has the cursor, too.
    pub json: String,
}

/// The reason why a request for the feed fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedError {
    /// The site has another kind: its own database gets what users transferred.
    NoFeed,
    /// The cursor is malformed, or of a feed that was here before.
    BadCursor(String),
    /// The disk cannot be read or written.
    Failed(String),
}

/// The part of the tracker for a site whose users announce. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct SiteStats {
    /// feed, unit3d or gazelle.
    pub kind: String,
    /// The site's users; 0 of the kind feed, which does not know them.
    pub users: u64,
    /// The site's torrents, or those that users announced.
    pub torrents: u64,
    /// Clients of users in torrents that are remembered.
    pub sessions: u64,
    /// Announces of users that were counted.
    pub announces: u64,
    /// Rows written per second, over the last minute.
    pub rows_per_s: f64,
    /// Rows written.
    pub rows: u64,
    /// Age of the oldest batch that the site does not have, seconds.
    pub lag_s: f64,
    /// Batches on the disk that the site does not have.
    pub spool_batches: u64,
    /// Size of the spool, which has sessions, too.
    pub spool_bytes: u64,
    /// Maximum size of the spool.
    pub spool_bytes_max: u64,
    /// Announces that report more bytes than a line can carry, which were not counted.
    pub implausible: u64,
    /// Announces that were not counted because there were too many sessions.
    pub uncounted: u64,
    /// Rows that the database did not take, because their user or torrent was deleted.
    pub rows_skipped: u64,
    /// Users who cannot announce, because their passkey has another form than one can have.
    pub bad_passkeys: u64,
    /// Torrents that share their info hash with another one, which is served instead.
    pub duplicate_hashes: u64,
    /// The errors that keep accounts from the site, each with its remedy; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Since when, Unix time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_since: Option<i64>,
}
