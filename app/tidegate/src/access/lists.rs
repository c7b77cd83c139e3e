//! Lists of torrents and networks, from files and from the copies of those at URLs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use lists::copy::{self, ListText};
use lists::{FileList, Place, ReadList};
use tracing::warn;
use tracker::Networks;
use tracker::access::{BadLine, HashList};

use config::{ConfiguredList, ListKind, ListSource, ListUrl};

#[derive(Default)]
pub(super) struct ListReader {
    /// By their files, which of those at URLs are the copies.
    torrents: BTreeMap<PathBuf, Arc<HashList>>,
    read: Vec<(ListSource, ReadList)>,
}

impl ListReader {
    pub(super) fn torrents(&mut self, list: &ConfiguredList<'_>) -> Result<Arc<HashList>> {
        if !list.is_used {
            self.note(list.key, list.source, 0, false);
            return Ok(Arc::default());
        }
        let file = match list.source {
            ListSource::File(path) => path,
            ListSource::Url(url) => &url.copy,
        };
        let read = match self.torrents.get(file) {
            Some(known) => Arc::clone(known),
            None => {
                Arc::new(read(list.source, HashList::parse)?.with_source(list.source.to_string()))
            }
        };
        self.note(list.key, list.source, read.len() as u64, true);
        self.torrents.insert(file.clone(), Arc::clone(&read));
        Ok(read)
    }

    pub(super) fn networks(&mut self, key: &'static str, source: &ListSource) -> Result<Networks> {
        let read = read(source, Networks::parse_list)?;
        self.note(key, source, read.len() as u64, true);
        Ok(read)
    }

    /// Notes a folder of torrents, and the number of files in it that are left out.
    pub(super) fn note_folder(&mut self, path: &Path, entries: usize, omitted: usize) {
        let source = ListSource::File(path.to_owned());
        let read = self.note("access.allow_torrents", &source, entries as u64, true);
        if let Place::File(folder) = &mut read.place {
            folder.omitted = omitted as u64;
        }
    }

    fn note(
        &mut self,
        key: &'static str,
        source: &ListSource,
        entries: u64,
        is_used: bool,
    ) -> &mut ReadList {
        let is_same = |(other, read): &(ListSource, ReadList)| read.key == key && other == source;
        let place = match self.read.iter().position(is_same) {
            Some(place) => place,
            None => {
                let read = self.describe(key, source);
                self.read.push((source.clone(), read));
                self.read.len() - 1
            }
        };
        let (_, read) = &mut self.read[place];
        read.is_used |= is_used;
        read.entries = read.entries.max(entries);
        read
    }

    /// Returns a list of which only the source is known.
    fn describe(&self, key: &'static str, source: &ListSource) -> ReadList {
        let place = match source {
            ListSource::File(path) => {
                Place::File(FileList { modified: modified(path), ..FileList::default() })
            }
            ListSource::Url(url) => Place::Url(url.url.clone()),
        };
        let shown = source.to_string();
        let is_alike =
            |(other, read): &&(ListSource, ReadList)| read.key == key && other.to_string() == shown;
        // URLs may differ only in what is not shown.
        let source = match self.read.iter().filter(is_alike).count() {
            0 => shown,
            count => format!("{shown} ({})", count + 1),
        };
        ReadList { key, source, entries: 0, is_used: false, place }
    }

    pub(super) fn into_read(self) -> Vec<ReadList> {
        self.read.into_iter().map(|(_, read)| read).collect()
    }
}

/// Returns the number of entries of a list, if all of its lines are valid.
pub(crate) fn check(kind: ListKind, text: ListText) -> Result<usize, BadLine> {
    match kind {
        ListKind::Torrents => HashList::parse(text).map(|list| list.len()),
        ListKind::Networks => Networks::parse_list(text).map(|networks| networks.len()),
    }
}

/// Reads a list. One at a URL without a usable copy is empty.
fn read<T: Default>(source: &ListSource, parse: fn(ListText) -> Result<T, BadLine>) -> Result<T> {
    match source {
        ListSource::File(path) => {
            let text = copy::open(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            parse(text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        }
        ListSource::Url(url) => Ok(read_copy(url, parse).unwrap_or_else(|error| {
            warn!("the copy of {source} is not usable: {error}");
            T::default()
        })),
    }
}

fn read_copy<T: Default>(
    url: &ListUrl,
    parse: fn(ListText) -> Result<T, BadLine>,
) -> io::Result<T> {
    if copy::record(&url.copy, &url.url, url.sha256.as_ref()).is_none() {
        return Ok(T::default());
    }
    parse(copy::open_copy(&url.copy)?).map_err(io::Error::other)
}

fn modified(path: &Path) -> Option<u64> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    modified.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ListSource {
        let copy = format!("/none/{}", text.len());
        let url = ListUrl { url: text.into(), port: 443, sha256: None, copy: copy.into() };
        ListSource::Url(url)
    }

    #[test]
    fn lists_are_noted_once_for_each_key() {
        let mut reader = ListReader::default();
        let (one, two) = (url("https://a.example/list?a"), url("https://a.example/list?bb"));
        for source in [&one, &two, &one, &two] {
            let kind = ListKind::Torrents;
            let list = ConfiguredList { key: "access.deny", kind, source, is_used: true };
            assert!(reader.torrents(&list).unwrap().is_empty());
        }
        reader.note_folder(Path::new("/folder"), 3, 0);
        reader.note_folder(Path::new("/folder"), 3, 7);
        let read = reader.into_read();
        let sources: Vec<&str> = read.iter().map(|list| list.source.as_str()).collect();
        let shown = "https://a.example/list?…";
        assert_eq!(sources, [shown, &format!("{shown} (2)"), "/folder"]);
        assert_eq!(read[2].place, Place::File(FileList { modified: None, omitted: 7 }));
    }
}
