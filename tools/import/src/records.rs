//! Where imported records go: to the records of a tracker that does not run, or nowhere.

use std::fmt::Display;
use std::path::Path;

use admin::records::{List, OfflineCounts, OfflineKey, OfflineRecords};
use net::process::{self, Identity};
use types::InfoHash;

use crate::options::ListKind;

/// Writes records, as the user to whom their folder belongs: the tracker runs as that user, and root would follow
/// links that the user put there. Errors are sentences, and end the import.
pub struct Records {
    /// `None` forgets all.
    records: Option<OfflineRecords>,
    owner: Option<Identity>,
}

impl Records {
    /// Returns one that forgets what it takes.
    pub fn discard() -> Self {
        Self { records: None, owner: None }
    }

    /// Opens the records in `folder`. `now` is unix time in seconds.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be opened, such as while a tracker uses them.
    pub fn open(folder: &Path, now: i64) -> Result<Self, String> {
        let open = || OfflineRecords::open(folder, now).map_err(|error| error.to_string());
        if !process::is_root() {
            return Ok(Self { records: Some(open()?), owner: None });
        }
        let owner = Identity::owner_of(folder)
            .map_err(|error| format!("--state: cannot read {}: {error}", folder.display()))?;
        let owner = Some(owner).filter(|owner| owner.user() != 0);
        Ok(Self { records: Some(run_as(owner, open)?), owner })
    }

    /// Commits what was taken. Returns how much of it is new, unless it is forgotten.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written. Nothing is recorded then.
    pub fn commit(self) -> Result<Option<OfflineCounts>, String> {
        let Some(records) = self.records else { return Ok(None) };
        run_as(self.owner, || records.commit().map(Some).map_err(|error| error.to_string()))
    }

    /// Takes a user's key.
    pub(crate) fn put_key(&mut self, key: &OfflineKey) -> Result<(), String> {
        self.write(|records| records.put_key(key))
    }

    /// Takes an entry of an access list.
    pub(crate) fn put_entry(&mut self, list: ListKind, hash: InfoHash) -> Result<(), String> {
        let list = match list {
            ListKind::Allow => List::Allow,
            ListKind::Deny => List::Deny,
        };
        self.write(|records| records.put_entry(list, hash))
    }

    /// Takes how often a torrent was downloaded, at least once.
    pub(crate) fn put_downloads(&mut self, hash: InfoHash, count: u32) -> Result<(), String> {
        self.write(|records| records.put_downloads(hash, count))
    }

    fn write<E: Display>(
        &mut self,
        work: impl FnOnce(&mut OfflineRecords) -> Result<(), E>,
    ) -> Result<(), String> {
        let Some(records) = &mut self.records else { return Ok(()) };
        run_as(self.owner, || work(records).map_err(|error| error.to_string()))
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
