//! Names and sizes of torrents, from the torrent files of `access.allow_torrents`.

use std::collections::HashMap;

use parking_lot::RwLock;
use types::InfoHash;

/// Labels of torrents by info hash. Bounded: torrents beyond the bound have no names.
#[derive(Debug, Default)]
pub struct TorrentNames(RwLock<Names>);

#[derive(Debug, Default)]
struct Names {
    by_hash: HashMap<InfoHash, Entry>,
    /// Approximate memory of the entries, bytes.
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry {
    label: TorrentLabel,
    /// Files that describe the torrent.
    files: u32,
}

/// A torrent's name and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrentLabel {
    /// The name, as the torrent file has it, at most [`TorrentLabel::NAME_MAX`] characters.
    pub name: Box<str>,
    /// Total length of the files, bytes.
    pub size: Option<u64>,
}

/// Memory of an entry besides the name: its share of the table, and the allocator's overhead.
const ENTRY_BYTES: usize = 96;

impl TorrentLabel {
    /// Characters of a name.
    pub const NAME_MAX: usize = 255;

    /// Returns the label with as much of the name as is kept, without control characters.
    pub fn new(name: &str, size: Option<u64>) -> Self {
        let plain = name.chars().filter(|it| !it.is_control()).take(Self::NAME_MAX);
        Self { name: plain.collect::<String>().into(), size }
    }

    fn bytes(&self) -> usize {
        self.name.len() + ENTRY_BYTES
    }
}

impl TorrentNames {
    /// Forgets all names, and bounds those to come to about `bytes_max` bytes.
    pub fn reset(&self, bytes_max: usize) {
        *self.0.write() = Names { bytes_max, ..Names::default() };
    }

    /// Adds the label that a file gives a torrent. Returns false if there is no room for it.
    pub fn add(&self, info_hash: &InfoHash, label: &TorrentLabel) -> bool {
        let mut names = self.0.write();
        if let Some(entry) = names.by_hash.get_mut(info_hash) {
            entry.files += 1;
            return true;
        }
        let bytes = names.bytes + label.bytes();
        if bytes > names.bytes_max {
            return false;
        }
        names.bytes = bytes;
        names.by_hash.insert(*info_hash, Entry { label: label.clone(), files: 1 });
        true
    }

    /// Removes the label that a file gave, if [`TorrentNames::add`] has added it.
    pub fn remove(&self, info_hash: &InfoHash) {
        let mut names = self.0.write();
        let Some(entry) = names.by_hash.get_mut(info_hash) else { return };
        entry.files -= 1;
        if entry.files == 0
            && let Some(entry) = names.by_hash.remove(info_hash)
        {
            names.bytes -= entry.label.bytes();
        }
    }

    /// Returns the number of torrents with a name.
    pub fn len(&self) -> usize {
        self.0.read().by_hash.len()
    }

    /// Returns whether no torrent has a name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a torrent's label.
    pub fn find(&self, info_hash: &InfoHash) -> Option<TorrentLabel> {
        self.0.read().by_hash.get(info_hash).map(|entry| entry.label.clone())
    }

    /// Returns the torrents whose names contain `text` in any case, sorted. Compares all names: some
    /// milliseconds for each ten thousand.
    pub fn search(&self, text: &str) -> Vec<InfoHash> {
        let wanted = text.to_lowercase();
        let names = self.0.read();
        let found = names.by_hash.iter().filter(|(_, entry)| {
            // Most names and texts are ASCII, which need no copy.
            entry.label.name.to_lowercase().contains(&wanted)
        });
        let mut found: Vec<InfoHash> = found.map(|(hash, _)| *hash).collect();
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(byte: u8) -> InfoHash {
        InfoHash([byte; 20])
    }

    #[test]
    fn names_are_found_by_hash_and_by_any_part() {
        let names = TorrentNames::default();
        names.reset(1 << 20);
        for (byte, name) in [(3, "Debian 13 ÄÖ"), (1, "ubuntu.iso"), (2, "debian\u{7}-live")] {
            assert!(names.add(&hash(byte), &TorrentLabel::new(name, Some(byte.into()))));
        }
        assert_eq!(names.search("DEBIAN"), [hash(2), hash(3)]);
        assert_eq!(names.search("äö"), [hash(3)]);
        assert_eq!(names.search("fedora"), []);
        let label = names.find(&hash(2)).unwrap();
        assert_eq!((&*label.name, label.size), ("debian-live", Some(2)));
        assert_eq!((names.find(&hash(9)), names.len()), (None, 3));
        assert_eq!(TorrentLabel::new(&"x".repeat(999), None).name.len(), TorrentLabel::NAME_MAX);
    }

    #[test]
    fn a_name_goes_with_its_last_file() {
        let names = TorrentNames::default();
        names.reset(1 << 20);
        let label = TorrentLabel::new("one", None);
        assert!(names.add(&hash(1), &label) && names.add(&hash(1), &label));
        names.remove(&hash(1));
        assert_eq!(names.len(), 1);
        names.remove(&hash(1));
        names.remove(&hash(1));
        assert!(names.is_empty() && names.0.write().bytes == 0);
    }

    #[test]
    fn memory_is_bounded() {
        let names = TorrentNames::default();
        assert!(!names.add(&hash(1), &TorrentLabel::new("off", None)));
        names.reset(2 * ENTRY_BYTES + 10);
        let label = TorrentLabel::new("12345", None);
        assert!(names.add(&hash(1), &label) && names.add(&hash(2), &label));
        assert!(!names.add(&hash(3), &label));
        names.remove(&hash(1));
        assert!(names.add(&hash(3), &label));
    }
}
