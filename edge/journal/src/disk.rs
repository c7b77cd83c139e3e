//! Where segments are kept: a directory, or what a test puts in its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::segment::{file_name, number_of};

/// Suffix appended to the names of segments that are set aside because a later version wrote the journal.
const LATER: &str = ".later";

/// Segments by their numbers. Each method fails with the error of the file system.
pub trait Disk: Send + Sync {
    /// Returns the number and the bytes of each segment, in any order.
    fn list(&self) -> io::Result<Vec<(u64, u64)>>;

    /// Creates a segment. Fails if it exists.
    fn create(&self, number: u64) -> io::Result<Box<dyn SegmentFile>>;

    /// Opens a segment to read it.
    fn open(&self, number: u64) -> io::Result<Box<dyn Read + Send>>;

    /// Deletes a segment.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// Renames a segment, so that it no longer is one.
    fn set_aside(&self, number: u64) -> io::Result<()>;

    /// Returns when all segments created and deleted before are so on the disk.
    fn sync(&self) -> io::Result<()>;
}

/// A segment that is being written. Each method fails with the error of the file system.
pub trait SegmentFile: Send {
    /// Appends `bytes`. If this fails, the file ends where it did before, unless that fails, too.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was appended before is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// Segments in a directory.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Returns the segments in `path`, which need not exist.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.0.join(file_name(number))
    }
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut segments = Vec::new();
        for entry in entries {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(number_of) {
                segments.push((number, entry.metadata()?.len()));
            }
        }
        Ok(segments)
    }

    fn create(&self, number: u64) -> io::Result<Box<dyn SegmentFile>> {
        // Addresses of clients are not for other users.
        let mut options = OpenOptions::new();
        let file = options.append(true).create_new(true).mode(0o600).open(self.path(number))?;
        Ok(Box::new(AppendedFile { file, len: 0, synced: 0 }))
    }

    fn open(&self, number: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.path(number))?))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        fs::remove_file(self.path(number))
    }

    fn set_aside(&self, number: u64) -> io::Result<()> {
        let path = self.path(number);
        let mut later = path.clone().into_os_string();
        later.push(LATER);
        fs::rename(path, later)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

struct AppendedFile {
    file: File,
    len: u64,
    synced: u64,
}

impl SegmentFile for AppendedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let done = self.file.write_all(bytes);
        match done {
            Ok(()) => self.len += bytes.len() as u64,
            // Half a block in the middle of a journal would pass for damage.
            Err(_) => drop(self.file.set_len(self.len)),
        }
        done
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.synced == self.len {
            return Ok(());
        }
        self.file.sync_data()?;
        self.synced = self.len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_segments_of_its_own_in_private_files() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let disk = Directory::new(folder.path());
        fs::write(folder.path().join("lock"), "").unwrap();
        let mut file = disk.create(3).unwrap();
        assert!(disk.create(3).is_err());
        file.append(b"abc").unwrap();
        file.append(b"de").unwrap();
        file.sync().unwrap();
        disk.sync().unwrap();
        assert_eq!(disk.list().unwrap(), [(3, 5)]);
        let path = folder.path().join("0000000000000003.tgj");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut text = String::new();
        disk.open(3).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcde");
        disk.create(4).unwrap();
        disk.remove(4).unwrap();
        disk.set_aside(3).unwrap();
        assert_eq!(disk.list().unwrap(), []);
        assert!(folder.path().join("0000000000000003.tgj.later").exists());
        let missing = Directory::new(&folder.path().join("missing"));
        assert_eq!(missing.list().unwrap(), []);
    }
}
