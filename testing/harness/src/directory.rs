//! Temporary directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory with a random name that is removed when dropped.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// Creates one in the system's folder for temporary files.
    ///
    /// # Errors
    ///
    /// If the system does not let it be created.
    pub fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// Creates one below `parent`.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn within(parent: &Path) -> io::Result<Self> {
        tempfile::Builder::new().prefix("tidegate-").tempdir_in(parent).map(Self)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// The path of `name` within it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file, replacing an old one as a whole, as careful operators do. Returns its path.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        fs::write(&new, content)?;
        fs::rename(&new, &path)?;
        Ok(path)
    }
}
