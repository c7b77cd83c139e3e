//! Where imported records go.

use types::{InfoHash, UserKey};

/// An access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// Only these torrents are served.
    Allow,
    /// These torrents are not served.
    Deny,
}

impl ListKind {
    /// Returns the word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// A user's key with what the other tracker knew of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedKey {
    /// The key in announce URLs.
    pub key: UserKey,
    /// For administrators; at most 100 characters.
    pub name: String,
    /// Unix time in seconds; 0 for a user who is locked out, `None` = never.
    pub expires: Option<i64>,
    /// Peers in one torrent; 0 = unlimited.
    pub peers_per_torrent: u16,
    /// True if the user may only seed.
    pub seed_only: bool,
    /// Bytes.
    pub uploaded: u64,
    /// Bytes.
    pub downloaded: u64,
}

/// Takes records one by one. Errors are sentences, and end the import.
pub trait Sink {
    /// Takes a user's key.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be recorded.
    fn put_key(&mut self, key: &ImportedKey) -> Result<(), String>;

    /// Takes an entry of an access list.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be recorded.
    fn put_entry(&mut self, list: ListKind, hash: InfoHash) -> Result<(), String>;

    /// Takes how often a torrent was downloaded, at least once.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be recorded.
    fn put_downloads(&mut self, hash: InfoHash, count: u32) -> Result<(), String>;
}
