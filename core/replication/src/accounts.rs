//! The accounts of a site as the nodes of a cluster tell each other, and as readers receive them.

/// Accounts that are shared. They are opaque bytes here.
pub trait SharedAccounts: Send + Sync {
    /// Returns what changed here since the last call, at most what a block holds. `None` if there is no more.
    fn take(&self) -> Option<Vec<u8>>;

    /// Takes over what another node sent. A body that does not add up is of another version.
    fn learn(&self, body: &[u8]);

    /// Notes that this node was apart from the others, and knows peers as they do again: accounts were lost.
    fn lost(&self);

    /// Returns the oldest batch that no reader has confirmed, or `None` if there is none. May read the disk.
    fn next_batch(&self) -> Option<AccountBatch>;

    /// Notes that a reader has the batch with this cursor, and all before it. May write the disk.
    fn confirm(&self, cursor: &str);
}

/// A batch of accounts for readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountBatch {
    /// Names the batch, in each part and in the reader's answers.
    pub cursor: String,
    /// The messages that it is sent as: each is smaller than NATS allows.
    pub parts: Vec<Vec<u8>>,
}
