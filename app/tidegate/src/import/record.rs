//! Where imported records go: to the records of a tracker that does not run, or nowhere.

use admin::records::{List, OfflineCounts, OfflineKey, OfflineRecords};
use import::{ImportedKey, ListKind, Sink};
use types::InfoHash;

/// Writes records.
pub(super) struct Recorder(pub(super) OfflineRecords);

impl Recorder {
    pub(super) fn commit(self) -> Result<OfflineCounts, String> {
        self.0.commit().map_err(|error| error.to_string())
    }
}

impl Sink for Recorder {
    fn put_key(&mut self, key: &ImportedKey) -> Result<(), String> {
        let key = OfflineKey {
            key: key.key,
            name: key.name.clone(),
            expires: key.expires,
            peers_per_torrent: key.peers_per_torrent,
            uploaded: key.uploaded,
            downloaded: key.downloaded,
        };
        self.0.put_key(&key).map_err(|error| error.to_string())
    }

    fn put_entry(&mut self, list: ListKind, hash: InfoHash) -> Result<(), String> {
        let list = match list {
            ListKind::Allow => List::Allow,
            ListKind::Deny => List::Deny,
        };
        self.0.put_entry(list, hash).map_err(|error| error.to_string())
    }

    fn put_downloads(&mut self, hash: InfoHash, count: u32) -> Result<(), String> {
        self.0.put_downloads(hash, count).map_err(|error| error.to_string())
    }
}

/// Takes records and forgets them.
pub(super) struct Discard;

impl Sink for Discard {
    fn put_key(&mut self, _: &ImportedKey) -> Result<(), String> {
        Ok(())
    }

    fn put_entry(&mut self, _: ListKind, _: InfoHash) -> Result<(), String> {
        Ok(())
    }

    fn put_downloads(&mut self, _: InfoHash, _: u32) -> Result<(), String> {
        Ok(())
    }
}
