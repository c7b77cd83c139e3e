//! The feed of what users of a site transferred.

/// A site whose users announce.
pub trait SiteSource: Send + Sync {
    /// Returns true if the site reads the feed: no database gets what users transferred.
    fn has_feed(&self) -> bool;

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
