//! Decides who is served: access lists, folders of torrents, users' keys, the keys of tokens, and networks. Read from
//! files at startup, on SIGHUP, and when the files change.

pub(crate) mod lists;
mod networks;
#[cfg_attr(not(feature = "jwt"), path = "without/token_keys.rs")]
pub(crate) mod token_keys;
mod torrents;
mod user_keys;

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ::lists::{ReadList, Registry};
use anyhow::{Context, Result};
use net::process::own_addresses;
use tracker::access::AccessLists;
use tracker::{ExternalAddress, ListenerPolicy, NetworkTable, Tracker};
use types::UserKey;

use config::{Config, ListenerGroup, ListenerPolicyConfig, TokenConfig};
use lists::ListReader;
use token_keys::TokenKeys;
use user_keys::FileKeys;

#[cfg(feature = "site")]
pub(crate) use torrents::Hybrid;
pub(crate) use torrents::TorrentFolders;

/// State of the access files in use. The next reading compares the files with it to find what has changed.
#[derive(Default)]
pub(crate) struct AccessState {
    users: FileKeys,
    pub(crate) token_keys: TokenKeys,
    pub(crate) folders: TorrentFolders,
    pub(crate) lists: Arc<Registry>,
    /// The address that others get instead of one that only this machine reaches, at listeners without a configured
    /// one.
    own_address: Option<Arc<ExternalAddress>>,
}

impl AccessState {
    /// Asks for the addresses of the machine, which the sandbox does not permit later.
    pub(crate) fn new(config: &Config) -> Self {
        let own_address =
            serves_others(config).then(|| ExternalAddress::of_machine(&own_addresses()));
        Self { own_address: own_address.flatten().map(Arc::new), ..Self::default() }
    }
}

fn serves_others(config: &Config) -> bool {
    let is_open = |group: &ListenerGroup| {
        let is_loopback = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        group.has_trusted_proxies() || !group.addresses.iter().all(is_loopback)
    };
    config.groups.iter().any(is_open)
}

pub(crate) struct AccessFiles {
    listener_policies: Vec<ListenerPolicy>,
    keys: Vec<UserKey>,
    networks: NetworkTable,
    lists: Vec<ReadList>,
    tokens: Option<TokenConfig>,
    token_keys: Option<Vec<u8>>,
}

/// Reads the files of `config`, and what has changed of its folders.
pub(crate) fn read(config: &Config, folders: &TorrentFolders) -> Result<AccessFiles> {
    folders.retain(config.folders());
    let mut reader = ListReader::default();
    Ok(AccessFiles {
        listener_policies: read_policies(config, folders, &mut reader)?,
        keys: user_keys::read(&config.keys)?,
        networks: networks::table(config, &mut reader)?,
        lists: reader.into_read(),
        tokens: config.tokens.clone(),
        token_keys: token_keys::read(config)?,
    })
}

pub(crate) fn apply_folders(config: &Config, state: &AccessState, tracker: &Tracker) {
    let folders = &state.folders;
    let mut policies = tracker.settings().listeners.clone();
    for (policy, config) in policies.iter_mut().zip(&config.listener_policies) {
        if let Some((path, list)) =
            folder_of(config).and_then(|path| Some((path, folders.list(path)?)))
        {
            state.lists.set_folder(path, list.len(), folders.omitted(path));
            policy.lists.torrents = list;
        }
    }
    tracker.replace_listeners(&policies);
}

fn folder_of(policy: &ListenerPolicyConfig) -> Option<&Path> {
    let path = policy.torrents.as_path();
    Some(path).filter(|path| policy.uses_allow() && !path.as_os_str().is_empty())
}

fn read_policies(
    config: &Config,
    folders: &TorrentFolders,
    reader: &mut ListReader,
) -> Result<Vec<ListenerPolicy>> {
    let mut listener_policies = Vec::new();
    for policy in &config.listener_policies {
        let mut lists = AccessLists { mode: policy.mode, ..AccessLists::default() };
        for list in policy.lists() {
            let read = reader.torrents(&list).context(list.key)?;
            match list.key {
                "access.allow" => lists.allow = read,
                _ => lists.deny = read,
            }
        }
        if let Some(path) = folder_of(policy) {
            lists.torrents = folders.read(path)?;
            reader.note_folder(path, lists.torrents.len(), folders.omitted(path));
        }
        listener_policies.push(ListenerPolicy {
            lists,
            private_addresses: policy.private_addresses,
            access: policy.access,
            clients: policy.clients.clone(),
            full_scrape: policy.full_scrape,
            external: policy.external.clone(),
        });
    }
    Ok(listener_policies)
}

impl AccessFiles {
    pub(crate) fn apply(mut self, tracker: &Tracker, state: &mut AccessState) {
        for policy in &mut self.listener_policies {
            policy.external = policy.external.take().or_else(|| state.own_address.clone());
        }
        // Keys first, so that no private listener refuses a key that is about to be added.
        state.users.replace(tracker.passkeys(), &self.keys);
        state.token_keys.configure(tracker, self.tokens.as_ref(), self.token_keys);
        tracker.bans().set_networks(self.networks);
        tracker.replace_listeners(&self.listener_policies);
        state.lists.set_lists(self.lists);
    }

    pub(crate) fn summary(&self) -> String {
        let count = |begin: &str| -> u64 {
            self.lists.iter().filter(|list| list.key.starts_with(begin)).map(|it| it.entries).sum()
        };
        let (allow, deny) = (count("access.allow"), count("access.deny"));
        format!("{allow} allowed, {deny} denied, {} keys", self.keys.len())
    }
}

#[derive(Default)]
pub(crate) struct FileWatcher {
    seen: Vec<(PathBuf, Option<FileState>)>,
}

/// Distinguishes versions of a file. Follows links, so that a changed link is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    modified: Option<SystemTime>,
    len: u64,
    inode: u64,
}

impl FileWatcher {
    /// Watches the files of `config`, and the copies of its lists at URLs, from their present state on.
    pub(crate) fn new(config: &Config) -> Self {
        Self::of(config.files().chain(config.list_urls().map(|(_, url)| url.copy.as_path())))
    }

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

impl FileState {
    fn of(meta: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { modified: meta.modified().ok(), len: meta.len(), inode: meta.ino() }
    }
}

/// Reads a file, up to a byte more than `max`, by which a longer one is recognized.
pub(crate) fn read_up_to(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn file_state(path: &Path) -> Option<FileState> {
    fs::metadata(path).ok().as_ref().map(FileState::of)
}
