//! Archives of a state directory: one tar file with what is worth keeping of it, made while a tracker runs and put back
//! while none does.
//!
//! | name in the archive | what it is |
//! |---|---|
//! | `tidegate.db` | the records as of one moment; always the first |
//! | `secret`, `first-token`, `acme/…` | secrets of the installation, and certificates with their keys |
//! | `swarms/…` | the journal, as it was on the disk when each file was read |
//! | `backup.json` | the version that wrote it; always the last, so that a part of an archive is recognized |
//!
//! Sessions of a site (`site/`) are not in it: an older state of them would contradict the site's database.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Builder, EntryType, Header};

use super::FILE;
use super::copies::{self, CopyCounts, Replaced};
use super::failure::OpenError;

const SECRETS: [&str; 3] = ["secret", "first-token", "acme"];
const SWARMS: &str = "swarms";
/// The last file of an archive.
const END: &str = "backup.json";
/// Locks belong to the processes that hold them.
const LOCK: &str = "lock";
/// The folder below the state directory into which an archive is unpacked.
const UNPACKED: &str = "restore.new";
/// The end of the names of files that were put aside.
const REPLACED: &str = "replaced";
/// The first bytes of a SQLite file, which tell it from a tar file.
const SQLITE_HEAD: &[u8; 16] = b"SQLite format 3\0";
/// Folders in folders, as of `acme/SERVER/FILE`.
const DEPTH_MAX: usize = 3;

/// The parts of a state directory that an archive has besides the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveParts {
    /// The secret of users' sessions, the first token, and the certificates of ACME with their keys.
    pub secrets: bool,
    /// The journal of swarms.
    pub swarms: bool,
}

/// A summary of what was written to an archive, or put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// The records.
    pub counts: CopyCounts,
    /// Names of the other files and folders, in the order of the archive.
    pub others: Vec<String>,
    /// The records that were there before, put aside. Only of a restore.
    pub replaced: Option<Replaced>,
}

/// Why an archive could not be written or put back: a sentence.
#[derive(Debug)]
pub struct ArchiveError(String);

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ArchiveError {}

impl From<OpenError> for ArchiveError {
    fn from(error: OpenError) -> Self {
        Self(error.to_string())
    }
}

/// Returns the error of a file that could not be read or written.
fn at(path: &Path) -> impl Fn(io::Error) -> ArchiveError {
    move |error| ArchiveError(format!("{}: {error}", path.display()))
}

/// Returns the error of an archive that could not be read or written.
fn of_stream(error: io::Error) -> ArchiveError {
    ArchiveError(format!("cannot read or write the archive: {error}"))
}

/// Writes an archive of the state directory `folder` to `to`. A tracker may run there meanwhile.
///
/// The records are first copied into the folder `scratch`, which needs room for them.
///
/// # Errors
///
/// If the records or a file cannot be read, or the archive not be written. What was written until then is no archive.
pub fn write_archive(
    folder: &Path,
    parts: ArchiveParts,
    scratch: &Path,
    to: &mut dyn Write,
) -> Result<ArchiveSummary, ArchiveError> {
    let copy = TemporaryFile::beside(scratch);
    let counts = copies::backup(folder, &copy.0)?;
    let mut archive = Builder::new(to);
    append(&mut archive, &copy.0, FILE)?;
    drop(copy);
    let mut others = Vec::new();
    let secrets = SECRETS.iter().filter(|_| parts.secrets);
    let swarms = [SWARMS];
    for name in secrets.chain(swarms.iter().filter(|_| parts.swarms)) {
        if append_tree(&mut archive, &folder.join(name), name, DEPTH_MAX)? {
            others.push((*name).to_owned());
        }
    }
    let end = format!("{{\"tidegate\":\"{}\"}}\n", env!("CARGO_PKG_VERSION"));
    let mut header = header(end.len() as u64, &fs::metadata(folder).map_err(of_stream)?);
    archive.append_data(&mut header, END, end.as_bytes()).map_err(of_stream)?;
    archive.into_inner().and_then(Write::flush).map_err(of_stream)?;
    Ok(ArchiveSummary { counts, others, replaced: None })
}

/// Removes the file when it is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn beside(folder: &Path) -> Self {
        let path = folder.join(format!("{FILE}.{}.backup", std::process::id()));
        // A killed process with the same number may have left it.
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Appends a file, or the files in a folder. Returns false if it does not exist.
fn append_tree(
    archive: &mut Builder<&mut dyn Write>,
    path: &Path,
    name: &str,
    depth: usize,
) -> Result<bool, ArchiveError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(data) => data.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(at(path)(error)),
    };
    if kind.is_file() {
        return append(archive, path, name);
    }
    if !kind.is_dir() || depth == 0 {
        return Ok(false);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(at(path))? {
        names.push(entry.map_err(at(path))?.file_name());
    }
    // The journal's files are numbered: they are copied in the order in which they were written.
    names.sort();
    for inner in names.iter().filter_map(|name| name.to_str()).filter(|name| *name != LOCK) {
        append_tree(archive, &path.join(inner), &format!("{name}/{inner}"), depth - 1)?;
    }
    Ok(!names.is_empty())
}

/// Appends a file with the bytes that it has now: it may grow while it is read. Returns false if it was just deleted.
fn append(
    archive: &mut Builder<&mut dyn Write>,
    path: &Path,
    name: &str,
) -> Result<bool, ArchiveError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(at(path)(error)),
    };
    let data = file.metadata().map_err(at(path))?;
    let mut header = header(data.len(), &data);
    let mut bytes = CountedReader { file: file.take(data.len()), missing: data.len() };
    archive.append_data(&mut header, name, &mut bytes).map_err(of_stream)?;
    if bytes.missing > 0 {
        let text = format!("it became {} bytes shorter while it was read", bytes.missing);
        return Err(at(path)(io::Error::other(text)));
    }
    Ok(true)
}

/// Returns the header of a file of `len` bytes with the time of another one.
fn header(len: u64, time_of: &fs::Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(len);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(time_of.mtime()).unwrap_or(0));
    header
}

/// Counts the bytes that were announced and not read.
struct CountedReader {
    file: io::Take<File>,
    missing: u64,
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.missing -= read as u64;
        Ok(read)
    }
}

/// Puts an archive into the state directory `folder`, which must exist. No tracker may run there. Files of the same
/// names are put aside: `.replaced` is at the ends of their names. What the archive lacks stays as it is.
///
/// Everything belongs to the owner of `folder` afterwards. A plain copy of the records, as `tidegate cluster backup` of
/// 1.0 wrote, is an archive, too.
///
/// # Errors
///
/// If `from` is no sound archive, or of a later version, or a tracker runs. The records have not changed then.
pub fn restore_archive(from: &mut dyn Read, folder: &Path) -> Result<ArchiveSummary, ArchiveError> {
    let unpacked = folder.join(UNPACKED);
    remove_tree(&unpacked)?;
    DirBuilder::new().mode(0o700).create(&unpacked).map_err(at(&unpacked))?;
    let restored = unpack(from, &unpacked).and_then(|others| take(&unpacked, folder, others));
    let removed = remove_tree(&unpacked);
    let summary = restored?;
    removed?;
    Ok(summary)
}

/// Writes the files of an archive into a folder. Returns the names there, but that of the records.
fn unpack(from: &mut dyn Read, folder: &Path) -> Result<Vec<String>, ArchiveError> {
    let mut start = Vec::new();
    let head = (&mut *from).take(SQLITE_HEAD.len() as u64).read_to_end(&mut start);
    head.map_err(of_stream)?;
    let mut all = io::Cursor::new(&start).chain(from);
    if start == *SQLITE_HEAD {
        write_new(&folder.join(FILE), &mut all)?;
        return Ok(Vec::new());
    }
    let mut others: Vec<String> = Vec::new();
    let (mut has_records, mut has_end) = (false, false);
    let mut archive = Archive::new(&mut all);
    for entry in archive.entries().map_err(not_tar)? {
        let mut entry = entry.map_err(not_tar)?;
        let path = entry.path().map_err(not_tar)?.into_owned();
        let place = Place::of(&path).filter(|_| entry.header().entry_type() == EntryType::Regular);
        let place = place.ok_or_else(|| unexpected(&path))?;
        if has_end || has_records == (place.top == FILE) {
            return Err(unexpected(&path));
        }
        has_records = true;
        has_end = place.top == END;
        if place.top != FILE && !has_end && !others.contains(&place.top) {
            others.push(place.top.clone());
        }
        let to = folder.join(&place.path);
        if let Some(parent) = to.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(at(parent))?;
        }
        write_new(&to, &mut entry)?;
    }
    if has_end {
        return Ok(others);
    }
    let found = if has_records { "one that ends too early" } else { "nothing" };
    let text =
        format!("expected an archive of `tidegate backup`, found {found}; nothing was restored");
    Err(ArchiveError(text))
}

fn not_tar(error: io::Error) -> ArchiveError {
    ArchiveError(format!("expected an archive of `tidegate backup`: {error}"))
}

fn unexpected(path: &Path) -> ArchiveError {
    let path = path.display();
    ArchiveError(format!(
        "expected an archive of `tidegate backup`, found `{path}` where it does not belong; nothing was restored"
    ))
}

/// The place of a file in a state directory.
struct Place {
    /// The first part of its path.
    top: String,
    path: PathBuf,
}

impl Place {
    /// Returns the place that a path in an archive means; `None` if no archive of tidegate has that path.
    fn of(path: &Path) -> Option<Self> {
        let mut parts = Vec::new();
        for part in path.components() {
            let Component::Normal(name) = part else { return None };
            parts.push(name.to_str()?);
        }
        let (top, inner) = parts.split_first()?;
        let is_folder = matches!(*top, "acme" | SWARMS);
        let is_file = SECRETS.contains(top) || [FILE, END].contains(top);
        let fits = if is_folder { (1..DEPTH_MAX).contains(&inner.len()) } else { inner.is_empty() };
        (fits && (is_folder || is_file))
            .then(|| Self { top: (*top).to_owned(), path: parts.iter().collect() })
    }
}

fn write_new(path: &Path, from: &mut dyn Read) -> Result<(), ArchiveError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(at(path))?;
    io::copy(from, &mut file).map_err(at(path))?;
    file.sync_all().map_err(at(path))
}

/// Puts unpacked files in place of those in `folder`: the records first, since they show whether a tracker runs.
fn take(
    unpacked: &Path,
    folder: &Path,
    others: Vec<String>,
) -> Result<ArchiveSummary, ArchiveError> {
    let records = unpacked.join(FILE);
    give_to_owner_of(folder, &records)?;
    let (counts, replaced) = copies::restore(&records, folder)?;
    for name in &others {
        let (fresh, present) = (unpacked.join(name), folder.join(name));
        give_to_owner_of(folder, &fresh)?;
        let aside = folder.join(format!("{name}.{REPLACED}"));
        if present.exists() {
            remove_tree(&aside)?;
            fs::rename(&present, &aside).map_err(at(&present))?;
        }
        fs::rename(&fresh, &present).map_err(at(&fresh))?;
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))?;
    Ok(ArchiveSummary { counts, others, replaced })
}

/// Removes a file or folder, if it exists.
fn remove_tree(path: &Path) -> Result<(), ArchiveError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(at(path))
}

/// Changes the owner of a file, or of a folder with all that is in it.
fn give_to_owner_of(folder: &Path, path: &Path) -> Result<(), ArchiveError> {
    let owner = fs::metadata(folder).map_err(at(path))?;
    let present = fs::metadata(path).map_err(at(path))?;
    if (owner.uid(), owner.gid()) != (present.uid(), present.gid()) {
        chown(path, Some(owner.uid()), Some(owner.gid())).map_err(at(path))?;
    }
    if present.is_dir() {
        for entry in fs::read_dir(path).map_err(at(path))? {
            give_to_owner_of(folder, &entry.map_err(at(path))?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use harness::Directory;

    use super::super::Records;
    use super::*;

    const ALL: ArchiveParts = ArchiveParts { secrets: true, swarms: true };

    /// A state directory with records, secrets and a journal.
    fn state() -> Directory {
        let directory = Directory::new().unwrap();
        let (_records, writer) = Records::open(Some(directory.root())).unwrap();
        let insert = "INSERT INTO bans VALUES ('192.0.2.0/24', '', 0, 0, NULL)";
        writer.connection().execute_batch(insert).unwrap();
        fs::create_dir_all(directory.path("acme/server")).unwrap();
        fs::create_dir_all(directory.path("swarms")).unwrap();
        fs::create_dir_all(directory.path("site")).unwrap();
        for (file, text) in [
            ("secret", "s"),
            ("acme/server/account.json", "{}"),
            ("swarms/0000.tgj", "journal"),
            ("swarms/lock", ""),
            ("site/snapshot", "sessions"),
        ] {
            directory.write(file, text).unwrap();
        }
        directory
    }

    fn archive(directory: &Directory, parts: ArchiveParts) -> Vec<u8> {
        let mut bytes = Vec::new();
        let root = directory.root();
        assert_eq!(write_archive(root, parts, root, &mut bytes).unwrap().counts.bans, 1);
        bytes
    }

    fn names(archive: &[u8]) -> Vec<String> {
        let mut archive = Archive::new(archive);
        let path = |entry: io::Result<tar::Entry<'_, _>>| {
            entry.unwrap().path().unwrap().display().to_string()
        };
        archive.entries().unwrap().map(path).collect()
    }

    #[test]
    fn an_archive_has_the_parts_that_were_asked_for() {
        let directory = state();
        let all = archive(&directory, ALL);
        let expected = [FILE, "secret", "acme/server/account.json", "swarms/0000.tgj", END];
        assert_eq!(names(&all), expected);
        let least = archive(&directory, ArchiveParts { secrets: false, swarms: false });
        assert_eq!(names(&least), [FILE, END]);
        let left = fs::read_dir(directory.root()).unwrap().count();
        assert_eq!(left, 5, "the copy of the records is removed");
        let copy = directory.path("copy");
        copies::backup(directory.root(), &copy).unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o777, 0o600);
        assert!(copies::backup(directory.root(), &copy).is_err(), "nothing is overwritten");
    }

    #[test]
    fn an_archive_takes_the_place_of_a_state_directory() {
        let (from, to) = (state(), state());
        to.write("secret", "of the other machine").unwrap();
        to.write("swarms/0007.tgj", "older").unwrap();
        let bytes = archive(&from, ALL);
        let running = Records::open(Some(to.root())).unwrap();
        let refused = restore_archive(&mut &bytes[..], to.root()).unwrap_err().to_string();
        assert!(refused.contains("is locked by another process"), "{refused}");
        drop(running);
        let summary = restore_archive(&mut &bytes[..], to.root()).unwrap();
        assert_eq!((summary.counts.bans, summary.others.len()), (1, 3));
        assert_eq!(fs::read_to_string(to.path("secret")).unwrap(), "s");
        assert_eq!(fs::read_to_string(to.path("secret.replaced")).unwrap(), "of the other machine");
        assert!(!to.path("swarms/0007.tgj").exists() && to.path("swarms/0000.tgj").exists());
        assert!(to.path("swarms.replaced/0007.tgj").exists());
        assert_eq!(fs::read_to_string(to.path("site/snapshot")).unwrap(), "sessions");
        assert!(!to.path(UNPACKED).exists());
        // Once more, over what was put aside; and a plain copy of the records.
        restore_archive(&mut &bytes[..], to.root()).unwrap();
        let plain = from.path("plain");
        copies::backup(from.root(), &plain).unwrap();
        let summary = restore_archive(&mut File::open(plain).unwrap(), to.root()).unwrap();
        assert!(summary.others.is_empty() && summary.counts.bans == 1);
        // Over damaged records, which are put aside.
        fs::write(to.path(FILE), "damaged").unwrap();
        let replaced = restore_archive(&mut &bytes[..], to.root()).unwrap().replaced.unwrap();
        assert_eq!((replaced.counts, fs::read(replaced.file).unwrap()), (None, b"damaged".into()));
    }

    #[test]
    fn hostile_and_damaged_archives_change_nothing() {
        let to = state();
        let before = fs::read(to.path(FILE)).unwrap();
        let good = archive(&to, ALL);
        let with = |name: &str, kind: EntryType| {
            let mut builder = Builder::new(Vec::new());
            let regular = EntryType::Regular;
            let end = (END, regular, &b"{}"[..]);
            for (name, kind, bytes) in [(FILE, regular, &before[..]), (name, kind, b""), end] {
                let mut header = Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_entry_type(kind);
                // Builder refuses some of these names.
                header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
                header.set_cksum();
                builder.append(&header, bytes).unwrap();
            }
            builder.into_inner().unwrap()
        };
        let mut bad: Vec<Vec<u8>> =
            ["../x", "/etc/x", "site/x", "acme", "swarms/a/b/c", "secret/x", "tidegate.db/x"]
                .map(|name| with(name, EntryType::Regular))
                .into();
        bad.push(with("secret", EntryType::Symlink));
        bad.push(with("swarms/x", EntryType::Directory));
        bad.push(good[..good.len() / 2].to_vec());
        // Without its last file, and with files behind it.
        bad.push(good[..good.len() - 2048].to_vec());
        bad.push([&good[..good.len() - 1024], &good[good.len() - 2048..]].concat());
        bad.push(Vec::new());
        bad.push(b"no archive".repeat(100));
        // Records of a later version, and half of a plain copy.
        let newer = to.path("newer");
        copies::backup(to.root(), &newer).unwrap();
        let db = rusqlite::Connection::open(&newer).unwrap();
        db.pragma_update(None, "user_version", 1000).unwrap();
        drop(db);
        bad.push(fs::read(newer).unwrap());
        bad.push(before[..before.len() / 2].to_vec());
        for bytes in bad {
            let refused = restore_archive(&mut &bytes[..], to.root());
            assert!(refused.is_err(), "{refused:?}");
        }
        assert_eq!(fs::read(to.path(FILE)).unwrap(), before);
        assert!(!to.path("secret.replaced").exists() && !to.path(UNPACKED).exists());
    }
}
