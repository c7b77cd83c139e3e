//! Access lists from files: read at the start, on SIGHUP, and when they change.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use tracker::access::{AccessLists, HashList, Mode};

use crate::config::Config;

/// Reads the lists that `config` names. Those that its mode does not use are not read.
pub(crate) fn read(config: &Config) -> Result<AccessLists> {
    let mode = config.access_mode;
    let read = |wanted: bool, path: &Path| {
        if wanted { read_list(path).map(Arc::new) } else { Ok(Arc::default()) }
    };
    Ok(AccessLists {
        mode,
        allow: read(matches!(mode, Mode::Allow | Mode::Both), &config.allow)?,
        deny: read(matches!(mode, Mode::Deny | Mode::Both), &config.deny)?,
    })
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
