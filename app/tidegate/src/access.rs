//! Access lists and users' keys from files: read at startup, on SIGHUP, and when the files change.

mod user_keys;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use tracker::access::{AccessLists, HashList};
use tracker::{ListenerPolicy, Tracker};
use types::UserKey;

use crate::config::Config;

pub(crate) use user_keys::FileKeys;

/// The contents of the files.
pub(crate) struct AccessFiles {
    listener_policies: Vec<ListenerPolicy>,
    keys: Vec<UserKey>,
}

/// Reads the files of `config`.
pub(crate) fn read(config: &Config) -> Result<AccessFiles> {
    Ok(AccessFiles {
        listener_policies: read_policies(config)?,
        keys: user_keys::read(&config.keys)?,
    })
}

/// Reads the lists of every listener policy. Lists that a mode does not use are not read; a file used by
/// several policies is read once.
fn read_policies(config: &Config) -> Result<Vec<ListenerPolicy>> {
    let mut known: BTreeMap<&Path, Arc<HashList>> = BTreeMap::new();
    let mut listener_policies = Vec::new();
    for policy in &config.listener_policies {
        let mut lists = AccessLists { mode: policy.mode, ..AccessLists::default() };
        for (key, is_used, path, list) in [
            ("access.allow", policy.uses_allow(), policy.allow.as_path(), &mut lists.allow),
            ("access.deny", policy.uses_deny(), policy.deny.as_path(), &mut lists.deny),
        ] {
            if !is_used || path.as_os_str().is_empty() {
                continue;
            }
            if !known.contains_key(path) {
                known.insert(path, Arc::new(read_list(path).context(key)?));
            }
            list.clone_from(&known[path]);
        }
        listener_policies.push(ListenerPolicy {
            lists,
            private_addresses: policy.private_addresses,
            private: policy.private,
            clients: policy.clients.clone(),
            full_scrape: policy.full_scrape,
        });
    }
    Ok(listener_policies)
}

impl AccessFiles {
    /// Applies lists and keys.
    pub(crate) fn apply(self, tracker: &Tracker, users: &mut FileKeys) {
        // Keys first, so that no private listener refuses a key that is about to be added.
        users.replace(tracker.passkeys(), &self.keys);
        tracker.listener_policies().replace(self.listener_policies);
    }

    /// Returns the numbers of entries, counting each list once.
    pub(crate) fn summary(&self) -> String {
        let count = |list: fn(&ListenerPolicy) -> &Arc<HashList>| -> usize {
            let lists: BTreeMap<_, _> = self
                .listener_policies
                .iter()
                .map(list)
                .map(|list| (Arc::as_ptr(list), list.len()))
                .collect();
            lists.into_values().sum()
        };
        let (allow, deny) = (
            count(|listener_policy| &listener_policy.lists.allow),
            count(|listener_policy| &listener_policy.lists.deny),
        );
        format!("{allow} allowed, {deny} denied, {} keys", self.keys.len())
    }
}

fn read_list(path: &Path) -> Result<HashList> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let list = HashList::parse(BufReader::with_capacity(1 << 20, file));
    list.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Notices when files change.
#[derive(Default)]
pub(crate) struct FileWatcher {
    seen: Vec<(PathBuf, Option<FileState>)>,
}

/// Distinguishes versions of a file. Follows links, so that a changed link is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    modified: Option<SystemTime>,
    len: u64,
    inode: u64,
}

impl FileWatcher {
    /// Watches the files of `config` from their present state on.
    pub(crate) fn new(config: &Config) -> Self {
        Self::of(config.files())
    }

    /// Watches files from their present state on.
    pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        Self { seen: paths.map(|path| (path.to_owned(), file_state(path))).collect() }
    }

    /// Returns whether any file has changed since the last call. A missing file, which may be about to be
    /// replaced, has not.
    pub(crate) fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for (path, seen) in &mut self.seen {
            let now = file_state(path);
            if now.is_some() && now != *seen {
                *seen = now;
                changed = true;
            }
        }
        changed
    }
}

fn file_state(path: &Path) -> Option<FileState> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).ok()?;
    Some(FileState { modified: meta.modified().ok(), len: meta.len(), inode: meta.ino() })
}
