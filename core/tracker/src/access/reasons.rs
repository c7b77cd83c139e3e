//! Torrents that are refused with reasons of their own.

use std::collections::HashMap;
use std::slice;

use parking_lot::RwLock;
use types::{InfoHash, Notice, limits};

use super::HashList;

/// Torrents that are refused, each with the text that clients show. Changes are in force at once.
#[derive(Debug)]
pub struct TorrentReasons {
    /// The torrents. Announces of others read nothing else.
    torrents: HashList,
    texts: RwLock<HashMap<InfoHash, Notice>>,
}

impl TorrentReasons {
    /// Returns no reasons. `torrents` must be empty.
    pub(crate) fn new(torrents: HashList) -> Self {
        Self { torrents, texts: RwLock::default() }
    }

    /// Refuses a torrent with a text, which replaces the one that it had. Returns false, and does nothing, if that would
    /// be more than [`limits::TORRENT_REASONS_MAX`].
    pub fn put(&self, info_hash: InfoHash, text: &str) -> bool {
        let mut texts = self.texts.write();
        if texts.len() >= limits::TORRENT_REASONS_MAX && !texts.contains_key(&info_hash) {
            return false;
        }
        texts.insert(info_hash, Notice::new(text));
        self.torrents.insert(slice::from_ref(&info_hash));
        true
    }

    /// Serves torrents again.
    pub fn remove(&self, info_hashes: &[InfoHash]) {
        let mut texts = self.texts.write();
        self.torrents.remove(info_hashes);
        for info_hash in info_hashes {
            texts.remove(info_hash);
        }
    }

    /// Returns why a torrent is refused, if it is.
    #[inline]
    pub fn get(&self, info_hash: &InfoHash) -> Option<Notice> {
        if self.torrents.contains(info_hash) {
            self.texts.read().get(info_hash).copied()
        } else {
            None
        }
    }

    /// Returns the number of torrents.
    pub fn len(&self) -> usize {
        self.torrents.len()
    }

    /// Returns true if no torrent is refused.
    pub fn is_empty(&self) -> bool {
        self.torrents.is_empty()
    }
}
