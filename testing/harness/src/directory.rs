//! Temporary directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory that is removed when dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates one below `parent`, which no other test has.
    ///
    /// # Errors
    ///
    /// If the system does not let it be created.
    pub fn within(parent: &Path) -> io::Result<Self> {
        static CREATED: AtomicUsize = AtomicUsize::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The path of `name` within it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, replacing an old one as a whole, as careful operators do. Returns its path.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        fs::write(&new, text)?;
        fs::rename(&new, &path)?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
