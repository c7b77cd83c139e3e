//! The last good copy of a list at a URL: a file, and beside it a record of where it is from.
//!
//! A record without validators is written before the file is replaced, so that the new file is never without one, and
//! the whole record after it. A crash between the two makes the next request fetch the list once more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use flate2::bufread::MultiGzDecoder;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use types::limits::LIST_TEXT_MAX;
use types::to_hex;

/// The text of a list, inflated if need be.
pub type ListText = Box<dyn BufRead + Send>;

/// The origin of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// The URL, without a digest.
    pub url: String,
    /// The server's tag of this version, if it sent one.
    pub etag: Option<String>,
    /// The server's date of this version, if it sent one.
    pub last_modified: Option<String>,
    /// The SHA-256 of the file, in hex.
    pub sha256: String,
    /// When the server last sent or confirmed it, unix seconds. 0 while the file is being replaced.
    pub checked: u64,
}

/// A list that is being received.
pub struct Incoming {
    path: PathBuf,
    file: File,
    digest: Context,
    bytes: u64,
    bytes_max: u64,
    /// The first bytes, by which pages are recognized.
    head: Vec<u8>,
}

/// Bytes of a record.
const RECORD_MAX: u64 = 64 << 10;
/// Bytes by which pages are recognized.
const HEAD_LEN: usize = 512;
/// The beginning of files made by gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Opens the file of a list.
///
/// # Errors
///
/// If it cannot be opened or read.
pub fn open(path: &Path) -> io::Result<ListText> {
    text_of(File::open(path)?)
}

/// Opens a copy. It is in a folder that the process may write while it is confined, and may be read with more rights
/// than that at the start: links and special files are refused.
///
/// # Errors
///
/// If there is none, it cannot be opened, or it is no regular file.
pub fn open_copy(path: &Path) -> io::Result<ListText> {
    text_of(open_regular(path)?)
}

/// Returns the record of a copy, or `None` if there is no copy of `url`, or not the one with the `pinned` digest.
pub fn record(path: &Path, url: &str, pinned: Option<&[u8; 32]>) -> Option<CopyRecord> {
    let mut text = String::new();
    let file = open_regular(&path.with_extension("json")).ok()?;
    file.take(RECORD_MAX).read_to_string(&mut text).ok()?;
    let record: CopyRecord = serde_json::from_str(&text).ok()?;
    let is_wanted = record.url == url && pinned.is_none_or(|it| to_hex(it) == record.sha256);
    (is_wanted && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())).then_some(record)
}

/// Replaces the record of a copy.
///
/// # Errors
///
/// If it cannot be written.
pub fn write_record(path: &Path, record: &CopyRecord) -> io::Result<()> {
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    let (target, new) = (path.with_extension("json"), path.with_extension("json-new"));
    let mut file = create(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(new, target)
}

/// Deletes all copies of a folder but these. Files that cannot be deleted stay.
pub fn retain(folder: &Path, copies: &[&Path]) {
    let is_kept = |path: &Path| {
        copies.iter().any(|copy| path == *copy || path == copy.with_extension("json"))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !is_kept(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Incoming {
    /// Begins to receive the list whose copy is at `path`, of at most `bytes_max` bytes. Creates the folder.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub fn new(path: &Path, bytes_max: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // In an upgrade, two processes fetch.
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let file = create(&new)?;
        let digest = Context::new(&SHA256);
        Ok(Self { path: new, file, digest, bytes: 0, bytes_max, head: Vec::new() })
    }

    /// Takes a part of the list.
    ///
    /// # Errors
    ///
    /// If the list becomes too long, or cannot be written.
    pub fn write(&mut self, part: &[u8]) -> Result<(), String> {
        self.bytes += part.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(format!("the list is larger than {} bytes", self.bytes_max));
        }
        let missing = HEAD_LEN.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(part.get(..missing).unwrap_or_default());
        self.digest.update(part);
        self.file.write_all(part).map_err(|error| format!("cannot write the copy: {error}"))
    }

    /// Returns the SHA-256 of all parts, in hex.
    pub fn sha256(&self) -> String {
        to_hex(self.digest.clone().finish().as_ref())
    }

    /// Returns what was received instead of a list, if that is known by its first bytes.
    pub fn mistake(&self) -> Option<&'static str> {
        let head = self.head.trim_ascii_start().to_ascii_lowercase();
        let is_page = [&b"<!doctype"[..], b"<html", b"<head", b"<?xml"];
        if self.bytes == 0 {
            return Some("an empty response");
        }
        is_page.iter().any(|start| head.starts_with(start)).then_some("a web page")
    }

    /// Opens what was received, to check it.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn open(&self) -> io::Result<ListText> {
        text_of(open_regular(&self.path)?)
    }

    /// Replaces the copy at `path`, on the disk and as a whole, and its record.
    ///
    /// # Errors
    ///
    /// If the files cannot be written.
    pub fn keep(self, path: &Path, record: &CopyRecord) -> io::Result<()> {
        self.file.sync_all()?;
        let replacing =
            CopyRecord { etag: None, last_modified: None, checked: 0, ..record.clone() };
        write_record(path, &replacing)?;
        fs::rename(&self.path, path)?;
        write_record(path, record)
    }
}

impl Drop for Incoming {
    /// Deletes what was not kept.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn create(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

fn text_of(file: File) -> io::Result<ListText> {
    let mut text = BufReader::with_capacity(1 << 18, file);
    if !text.fill_buf()?.starts_with(&GZIP) {
        return Ok(Box::new(text));
    }
    let inflated = MultiGzDecoder::new(text).take(LIST_TEXT_MAX);
    Ok(Box::new(BufReader::with_capacity(1 << 18, inflated)))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use harness::Directory;

    use super::*;

    fn text(mut list: ListText) -> String {
        let mut text = String::new();
        list.read_to_string(&mut text).unwrap();
        text
    }

    fn receive(path: &Path, bytes: &[u8]) -> CopyRecord {
        let mut incoming = Incoming::new(path, 100).unwrap();
        bytes.chunks(7).for_each(|part| incoming.write(part).unwrap());
        assert_eq!(text(incoming.open().unwrap()).len(), bytes.len());
        let record = CopyRecord {
            url: "https://example.org/a".into(),
            sha256: incoming.sha256(),
            checked: 7,
            ..CopyRecord::default()
        };
        incoming.keep(path, &record).unwrap();
        record
    }

    #[test]
    fn a_new_copy_is_never_without_its_record() {
        let directory = Directory::new().unwrap();
        for number in 0..20 {
            let path = directory.path(&number.to_string());
            let reader = std::thread::spawn({
                let path = path.clone();
                move || {
                    while !path.is_file() {
                        std::thread::yield_now();
                    }
                    record(&path, "https://example.org/a", None)
                }
            });
            receive(&path, b"text");
            assert!(reader.join().unwrap().is_some());
        }
    }

    #[test]
    fn copies_are_kept_with_their_records() {
        let directory = Directory::new().unwrap();
        let path = directory.path("lists/torrents-1");
        let url = "https://example.org/a";
        assert_eq!(record(&path, url, None), None);
        let written = receive(&path, b"one\ntwo\n");
        assert_eq!(record(&path, url, None), Some(written.clone()));
        assert_eq!(text(open_copy(&path).unwrap()), "one\ntwo\n");
        assert_eq!(record(&path, "https://example.org/b", None), None);
        assert_eq!(record(&path, url, Some(&[0; 32])), None, "another digest is pinned");
        let mut digest = Context::new(&SHA256);
        digest.update(b"one\ntwo\n");
        let pinned: [u8; 32] = digest.finish().as_ref().try_into().unwrap();
        assert_eq!(record(&path, url, Some(&pinned)), Some(written));
        // A file that is not kept leaves nothing behind.
        drop(Incoming::new(&path, 100).unwrap());
        assert_eq!(fs::read_dir(directory.path("lists")).unwrap().count(), 2);
        retain(&directory.path("lists"), &[&path]);
        assert_eq!(fs::read_dir(directory.path("lists")).unwrap().count(), 2);
        retain(&directory.path("lists"), &[]);
        assert_eq!(fs::read_dir(directory.path("lists")).unwrap().count(), 0);
    }

    #[test]
    fn copies_are_no_links() {
        let directory = Directory::new().unwrap();
        let path = directory.path("lists/torrents-1");
        receive(&path, b"one\n");
        fs::write(directory.path("secret"), "secret").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(directory.path("secret"), &path).unwrap();
        assert!(open_copy(&path).is_err());
        assert_eq!(record(&path, "https://example.org/a", None), None);
    }

    #[test]
    fn gzip_is_inflated_and_pages_are_recognized() {
        let directory = Directory::new().unwrap();
        let path = directory.path("list.gz");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"one\ntwo\n").unwrap();
        fs::write(&path, encoder.finish().unwrap()).unwrap();
        assert_eq!(text(open(&path).unwrap()), "one\ntwo\n");
        let mistake = |bytes: &[u8]| {
            let mut incoming = Incoming::new(&path, 100).unwrap();
            incoming.write(bytes).unwrap();
            incoming.mistake()
        };
        assert_eq!(mistake(b"\r\n<!DOCTYPE html>"), Some("a web page"));
        assert_eq!(mistake(b"<HTML>"), Some("a web page"));
        assert_eq!((mistake(b""), mistake(b"# list")), (Some("an empty response"), None));
        let mut incoming = Incoming::new(&path, 100).unwrap();
        incoming.write(&[b'#'; 100]).unwrap();
        assert_eq!(incoming.write(b"\n"), Err("the list is larger than 100 bytes".into()));
    }
}
