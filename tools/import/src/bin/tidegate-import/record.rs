//! Where imported records go: to the records of a tracker that does not run, or nowhere.

use std::fmt::Display;
use std::path::Path;

use admin::records::{List, OfflineCounts, OfflineKey, OfflineRecords};
use net::process::{self, Identity};
use tidegate_import::{ImportedKey, ListKind, Sink};
use types::InfoHash;

/// Writes records, as the user to whom their folder belongs: the tracker runs as that user, and root would follow
/// links that the user put there.
pub(super) struct Recorder {
    records: OfflineRecords,
    owner: Option<Identity>,
}

impl Recorder {
    /// Opens the records in `folder`. `now` is unix time in seconds.
    pub(super) fn open(folder: &Path, now: i64) -> Result<Self, String> {
        let open = || OfflineRecords::open(folder, now).map_err(|error| error.to_string());
        if !process::is_root() {
            return Ok(Self { records: open()?, owner: None });
        }
        let owner = Identity::owner_of(folder)
            .map_err(|error| format!("--state: cannot read {}: {error}", folder.display()))?;
        let owner = Some(owner).filter(|owner| owner.user() != 0);
        Ok(Self { records: run_as(owner, open)?, owner })
    }

    pub(super) fn commit(self) -> Result<OfflineCounts, String> {
        let commit = || self.records.commit().map_err(|error| error.to_string());
        run_as(self.owner, commit)
    }

    fn write<E: Display>(
        &mut self,
        work: impl FnOnce(&mut OfflineRecords) -> Result<(), E>,
    ) -> Result<(), String> {
        run_as(self.owner, || work(&mut self.records).map_err(|error| error.to_string()))
    }
}

/// Runs `work` as `owner`, if there is one.
fn run_as<T>(
    owner: Option<Identity>,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let Some(owner) = owner else { return work() };
    let done = owner.run_as(work);
    done.map_err(|error| format!("--state: cannot work as the owner of the directory: {error}"))?
}

impl Sink for Recorder {
    fn put_key(&mut self, key: &ImportedKey) -> Result<(), String> {
        let key = OfflineKey {
            key: key.key,
            name: key.name.clone(),
            expires: key.expires,
            peers_per_torrent: key.peers_per_torrent,
            seed_only: key.seed_only,
            uploaded: key.uploaded,
            downloaded: key.downloaded,
        };
        self.write(|records| records.put_key(&key))
    }

    fn put_entry(&mut self, list: ListKind, hash: InfoHash) -> Result<(), String> {
        let list = match list {
            ListKind::Allow => List::Allow,
            ListKind::Deny => List::Deny,
        };
        self.write(|records| records.put_entry(list, hash))
    }

    fn put_downloads(&mut self, hash: InfoHash, count: u32) -> Result<(), String> {
        self.write(|records| records.put_downloads(hash, count))
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
