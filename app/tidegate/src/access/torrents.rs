//! Folders of torrent files: their torrents are on the allow list, and their names are shown.
//!
//! Plain form: read all files each time. Departure: a file is read again only if its size, time or inode has
//! changed, so that looking at a folder costs one system call for each file in it.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admin::{TorrentLabel, TorrentNames};
use anyhow::{Context, Result, bail};
use client::Torrent;
use tracing::{info, warn};
use tracker::access::HashList;
use types::InfoHash;
use types::limits::{TORRENT_FILE_MAX, TORRENT_FILES_MAX, TORRENT_FOLDER_DEPTH_MAX};

use super::{FileState, read_up_to};

/// All folders that the configuration names, as they were when they were last looked at.
#[derive(Clone, Default)]
pub(crate) struct TorrentFolders(Arc<Shared>);

struct Shared {
    folders: Mutex<Folders>,
    names: Arc<TorrentNames>,
    /// As of the last change. A look at the folders, which may take long, does not lock it.
    hybrids: Mutex<Arc<[Hybrid]>>,
}

/// A torrent of version 1 and 2: its two hashes.
#[derive(Clone, Copy)]
pub(crate) struct Hybrid {
    pub(crate) v1: InfoHash,
    pub(crate) v2: InfoHash,
}

/// Bytes for the names of torrents. Torrents beyond that have none.
const NAMES_BYTES_MAX: usize = 64 << 20;

impl Default for Shared {
    fn default() -> Self {
        let names = TorrentNames::default();
        names.reset(NAMES_BYTES_MAX);
        Self { folders: Mutex::default(), names: Arc::new(names), hybrids: Mutex::default() }
    }
}

type Folders = BTreeMap<PathBuf, Folder>;

#[derive(Default)]
struct Folder {
    files: BTreeMap<PathBuf, TorrentFile>,
    list: Arc<HashList>,
    is_broken: bool,
    omitted: usize,
}

struct TorrentFile {
    state: FileState,
    hashes: Vec<InfoHash>,
    /// Times that it was read in vain since it changed, up to [`ATTEMPTS`].
    failures: u32,
}

/// A file that is written slowly may look the same while it is: how often it is read again.
const ATTEMPTS: u32 = 10;

impl TorrentFolders {
    pub(crate) fn names(&self) -> &Arc<TorrentNames> {
        &self.0.names
    }

    pub(crate) fn retain<'a>(&self, paths: impl Iterator<Item = &'a Path>) {
        let kept: Vec<&Path> = paths.collect();
        let mut folders = self.lock();
        let before = folders.len();
        folders.retain(|path, folder| {
            let is_kept = kept.contains(&path.as_path());
            if !is_kept {
                folder.files.values().for_each(|file| self.forget(&file.hashes));
            }
            is_kept
        });
        if folders.len() < before {
            self.publish_hybrids(&folders);
        }
    }

    pub(crate) fn read(&self, path: &Path) -> Result<Arc<HashList>> {
        let mut folders = self.lock();
        let folder = folders.entry(path.to_owned()).or_default();
        let is_changed = self.look(path, folder)?;
        let list = Arc::clone(&folder.list);
        if is_changed {
            self.publish_hybrids(&folders);
        }
        Ok(list)
    }

    /// Returns the hybrid torrents of all folders: the same list until one has changed.
    pub(crate) fn hybrids(&self) -> Arc<[Hybrid]> {
        Arc::clone(&self.0.hybrids.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn omitted(&self, path: &Path) -> usize {
        self.lock().get(path).map_or(0, |folder| folder.omitted)
    }

    pub(crate) fn list(&self, path: &Path) -> Option<Arc<HashList>> {
        self.lock().get(path).map(|folder| Arc::clone(&folder.list))
    }

    /// Looks at all folders again. Returns whether any has other torrents than before. What is wrong with a
    /// folder is logged once.
    pub(crate) fn refresh(&self) -> bool {
        let mut folders = self.lock();
        let mut is_changed = false;
        for (path, folder) in &mut *folders {
            let was_broken = folder.is_broken;
            match self.look(path, folder) {
                Ok(has_changed) => is_changed |= has_changed,
                Err(error) if !was_broken => {
                    warn!("torrents not read again; the previous ones stay allowed: {error:#}");
                }
                Err(_) => {}
            }
        }
        if is_changed {
            self.publish_hybrids(&folders);
        }
        is_changed
    }

    fn publish_hybrids(&self, folders: &Folders) {
        let files = folders.values().flat_map(|folder| folder.files.values());
        let hybrids = files.filter_map(|file| match *file.hashes {
            [v1, v2] => Some(Hybrid { v1, v2 }),
            _ => None,
        });
        *self.0.hybrids.lock().unwrap_or_else(PoisonError::into_inner) = hybrids.collect();
    }

    fn look(&self, root: &Path, folder: &mut Folder) -> Result<bool> {
        let found =
            find(root).with_context(|| format!("access.allow_torrents: {}", root.display()));
        folder.is_broken = found.is_err();
        let (files, omitted) = found?;
        // Once each time that the folder becomes too full.
        if std::mem::replace(&mut folder.omitted, omitted) == 0 && omitted > 0 {
            warn!(
                omitted,
                "more than {TORRENT_FILES_MAX} torrent files in {}: the others are not allowed",
                root.display()
            );
        }
        let mut before = std::mem::take(&mut folder.files);
        let mut is_changed = false;
        for (path, state) in files {
            let old = before.remove(&path);
            let (file, has_changed) = self.read_file(&path, state, old);
            is_changed |= has_changed;
            folder.files.insert(path, file);
        }
        for file in before.values() {
            self.forget(&file.hashes);
            is_changed |= !file.hashes.is_empty();
        }
        if is_changed {
            let hashes = folder.files.values().flat_map(|file| &file.hashes);
            let list: HashList = hashes.copied().collect();
            folder.list = Arc::new(list.with_source(root.display().to_string()));
            info!(torrents = folder.list.len(), folder = %root.display(), "read torrent files");
        }
        Ok(is_changed)
    }

    /// Reads a file if it has changed since `old`. Returns it, and whether it describes another torrent now.
    fn read_file(
        &self,
        path: &Path,
        state: FileState,
        old: Option<TorrentFile>,
    ) -> (TorrentFile, bool) {
        let (hashes, failures) = match old {
            Some(file) if file.state == state && matches!(file.failures, 0 | ATTEMPTS) => {
                return (file, false);
            }
            Some(file) if file.state == state => (file.hashes, file.failures),
            Some(file) => (file.hashes, 0),
            None => (Vec::new(), 0),
        };
        match read_torrent(path) {
            Ok(torrent) => {
                self.forget(&hashes);
                let label =
                    TorrentLabel::new(torrent.name.as_deref().unwrap_or(""), torrent.length);
                torrent.hashes.iter().for_each(|hash| _ = self.0.names.add(hash, &label));
                let is_other = torrent.hashes != hashes;
                (TorrentFile { state, hashes: torrent.hashes, failures: 0 }, is_other)
            }
            // It may be half written: what it was stays allowed.
            Err(error) => {
                let failures = failures + 1;
                if failures == ATTEMPTS {
                    warn!("ignored a file in access.allow_torrents: {error:#}");
                }
                (TorrentFile { state, hashes, failures }, false)
            }
        }
    }

    fn forget(&self, hashes: &[InfoHash]) {
        hashes.iter().for_each(|hash| self.0.names.remove(hash));
    }

    fn lock(&self) -> MutexGuard<'_, Folders> {
        // A panic in a parser leaves no file half read: it is read again.
        self.0.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the torrent files in a folder, and the number beyond the maximum. Only links within it are followed.
fn find(root: &Path) -> Result<(Vec<(PathBuf, FileState)>, usize)> {
    let root = root.canonicalize().context("cannot read the folder")?;
    let (mut files, mut omitted) = (Vec::new(), 0);
    let mut folders = vec![(root.clone(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if depth == 0 => return Err(error).context("cannot read the folder"),
            Err(_) => continue,
        };
        for entry in entries {
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < TORRENT_FOLDER_DEPTH_MAX {
                folders.push((entry.path(), depth + 1));
            } else if is_torrent_name(&name)
                && let Some(state) = file_in(&root, &entry)
            {
                if files.len() == TORRENT_FILES_MAX {
                    omitted += 1;
                } else {
                    files.push((entry.path(), state));
                }
            }
        }
    }
    Ok((files, omitted))
}

fn is_torrent_name(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let end = name.len().checked_sub(b".torrent".len()).and_then(|at| name.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(b".torrent"))
}

fn file_in(root: &Path, entry: &DirEntry) -> Option<FileState> {
    let is_link = entry.file_type().ok()?.is_symlink();
    if is_link && !entry.path().canonicalize().ok()?.starts_with(root) {
        return None;
    }
    let meta = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file)?;
    Some(FileState::of(&meta))
}

fn read_torrent(path: &Path) -> Result<Torrent> {
    let bytes = read_up_to(path, TORRENT_FILE_MAX).with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > TORRENT_FILE_MAX {
        bail!("{}: larger than {TORRENT_FILE_MAX} bytes", path.display());
    }
    Torrent::from_bytes(&bytes).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use harness::Directory;

    use super::*;

    /// A torrent file of version 1, whose hash depends on the name.
    fn torrent(name: &str) -> String {
        format!(
            "d4:infod6:lengthi7e4:name{}:{name}12:piece lengthi16384e6:pieces20:{}ee",
            name.len(),
            "p".repeat(20)
        )
    }

    fn hash(name: &str) -> InfoHash {
        Torrent::from_bytes(torrent(name).as_bytes()).unwrap().hashes[0]
    }

    struct Scene {
        directory: Directory,
        folders: TorrentFolders,
    }

    impl Scene {
        fn new() -> Self {
            let directory = Directory::new().unwrap();
            fs::create_dir(directory.path("torrents")).unwrap();
            let folders = TorrentFolders::default();
            folders.read(&directory.path("torrents")).unwrap();
            Self { directory, folders }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path(&format!("torrents/{name}"))
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        /// Looks at the folder again, and returns true if exactly these torrents are allowed.
        fn has(&self, names: &[&str]) -> bool {
            let before = self.list();
            let is_changed = self.folders.refresh();
            assert_eq!(is_changed, !Arc::ptr_eq(&before, &self.list()));
            let list = self.list();
            list.len() == names.len() && names.iter().all(|name| list.contains(&hash(name)))
        }

        fn list(&self) -> Arc<HashList> {
            self.folders.list(&self.directory.path("torrents")).unwrap()
        }
    }

    #[test]
    fn half_written_files_are_read_again() {
        let scene = Scene::new();
        let whole = torrent("one");
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            scene.write("one.torrent", &whole[..len]);
            assert!(scene.has(&[]), "{len} bytes");
        }
        scene.write("one.torrent", &whole);
        assert!(scene.has(&["one"]));
        // While it is replaced in place, what it was stays allowed.
        scene.write("one.torrent", "d4:info");
        assert!(scene.has(&["one"]));
        scene.write("one.torrent", &torrent("two"));
        assert!(scene.has(&["two"]));
        // A file that never becomes one is given up, until it changes.
        scene.write("bad.torrent", "no torrent");
        (0..2 * ATTEMPTS).for_each(|_| assert!(scene.has(&["two"])));
        scene.write("bad.torrent", &torrent("good"));
        assert!(scene.has(&["good", "two"]));
    }

    #[test]
    fn links_do_not_leave_the_folder() {
        use std::os::unix::fs::symlink;
        let scene = Scene::new();
        fs::create_dir(scene.directory.path("secret")).unwrap();
        fs::write(scene.directory.path("secret/out.torrent"), torrent("out")).unwrap();
        symlink(scene.directory.path("secret/out.torrent"), scene.path("link.torrent")).unwrap();
        symlink(scene.directory.path("secret"), scene.path("folder")).unwrap();
        symlink(scene.path(""), scene.path("loop")).unwrap();
        assert!(scene.has(&[]));
        // As Kubernetes mounts files: a hidden folder that is replaced, and links into it.
        fs::create_dir(scene.path("..data")).unwrap();
        scene.write("..data/in.torrent", &torrent("in"));
        symlink("..data/in.torrent", scene.path("in.torrent")).unwrap();
        assert!(scene.has(&["in"]));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let scene = Scene::new();
        let mut path = String::new();
        for level in 0..=TORRENT_FOLDER_DEPTH_MAX {
            path += "d/";
            fs::create_dir(scene.path(&path)).unwrap();
            scene.write(&format!("{path}{level}.torrent"), &torrent(&level.to_string()));
        }
        let expected: Vec<String> =
            (0..TORRENT_FOLDER_DEPTH_MAX).map(|it| it.to_string()).collect();
        assert!(scene.has(&expected.iter().map(String::as_str).collect::<Vec<_>>()));
        fs::remove_dir_all(scene.path("d")).unwrap();
        let huge = fs::File::create(scene.path("huge.torrent")).unwrap();
        huge.set_len(TORRENT_FILE_MAX + 1).unwrap();
        assert!(scene.has(&[]));
        let missing = scene.folders.read(&scene.directory.path("none")).unwrap_err();
        assert!(format!("{missing:#}").contains("cannot read the folder"), "{missing:#}");
    }

    #[test]
    fn a_folder_that_is_gone_changes_nothing() {
        let scene = Scene::new();
        scene.write("one.torrent", &torrent("one"));
        assert!(scene.has(&["one"]));
        fs::rename(scene.path(""), scene.directory.path("away")).unwrap();
        assert!(scene.has(&["one"]) && scene.has(&["one"]));
        fs::rename(scene.directory.path("away"), scene.path("")).unwrap();
        fs::remove_file(scene.path("one.torrent")).unwrap();
        assert!(scene.has(&[]));
    }
}
