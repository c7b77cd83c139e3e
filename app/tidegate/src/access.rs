//! Access lists and users' keys from files: read at the start, on SIGHUP, and when they change.

mod users;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use tracker::access::{AccessLists, HashList};
use tracker::{Door, Tracker};
use types::UserKey;

use crate::config::Config;

pub(crate) use users::Users;

/// What the files say.
pub(crate) struct Access {
    doors: Vec<Door>,
    keys: Vec<UserKey>,
}

/// Reads the files of `config`.
pub(crate) fn read(config: &Config) -> Result<Access> {
    Ok(Access { doors: read_doors(config)?, keys: users::read(&config.keys)? })
}

/// The doors of `config`, with their lists. Those that a mode does not use are not read, and others
/// once, however many doors they are for.
fn read_doors(config: &Config) -> Result<Vec<Door>> {
    let mut known: BTreeMap<&Path, Arc<HashList>> = BTreeMap::new();
    let mut doors = Vec::new();
    for door in &config.doors {
        let mut lists = AccessLists { mode: door.mode, ..AccessLists::default() };
        for (wanted, path, list) in [
            (door.wants_allow(), door.allow.as_path(), &mut lists.allow),
            (door.wants_deny(), door.deny.as_path(), &mut lists.deny),
        ] {
            if !wanted || path.as_os_str().is_empty() {
                continue;
            }
            if !known.contains_key(path) {
                known.insert(path, Arc::new(read_list(path)?));
            }
            list.clone_from(&known[path]);
        }
        doors.push(Door {
            lists,
            private_addresses: door.private_addresses,
            private: door.private,
            clients: door.clients.clone(),
        });
    }
    Ok(doors)
}

impl Access {
    /// Puts it in force.
    pub(crate) fn apply(self, tracker: &Tracker, users: &mut Users) {
        // Keys first: no door asks for one that is not there yet.
        users.replace(tracker.keyring(), &self.keys);
        tracker.doors().replace(self.doors);
    }

    /// How many entries there are, each list counted once.
    pub(crate) fn summary(&self) -> String {
        let count = |list: fn(&Door) -> &Arc<HashList>| -> usize {
            let lists: BTreeMap<_, _> =
                self.doors.iter().map(list).map(|list| (Arc::as_ptr(list), list.len())).collect();
            lists.into_values().sum()
        };
        let (allow, deny) = (count(|door| &door.lists.allow), count(|door| &door.lists.deny));
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
pub(crate) struct Watch {
    seen: Vec<(PathBuf, Option<Mark>)>,
}

/// What tells one content of a file from another. Follows links, so that swapping one is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    modified: Option<SystemTime>,
    len: u64,
    inode: u64,
}

impl Watch {
    /// Watches the lists of `config` from now on, as they are now.
    pub(crate) fn new(config: &Config) -> Self {
        Self::of(config.files())
    }

    /// Watches files from now on, as they are now.
    pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        Self { seen: paths.map(|path| (path.to_owned(), mark(path))).collect() }
    }

    /// Whether any file has changed since the last look. One that is gone for the moment, because
    /// somebody is replacing it, has not.
    pub(crate) fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for (path, seen) in &mut self.seen {
            let now = mark(path);
            if now.is_some() && now != *seen {
                *seen = now;
                changed = true;
            }
        }
        changed
    }
}

fn mark(path: &Path) -> Option<Mark> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).ok()?;
    Some(Mark { modified: meta.modified().ok(), len: meta.len(), inode: meta.ino() })
}
