//! Detects that the program on the disk is no longer the one that runs.

use std::env;
use std::path::PathBuf;

use crate::access::{FileState, file_state};

pub(super) struct ProgramFile {
    path: PathBuf,
    state: Option<FileState>,
}

impl ProgramFile {
    /// Returns the file of this process. Call at the start, before it may be replaced.
    pub(super) fn running() -> Self {
        Self::at(path())
    }

    fn at(path: PathBuf) -> Self {
        Self { state: file_state(&path), path }
    }

    pub(super) fn has_changed(&self) -> bool {
        let now = file_state(&self.path);
        self.state.is_some() && now.is_some() && now != self.state
    }
}

pub(super) fn path() -> PathBuf {
    let running = env::current_exe().unwrap_or_default();
    // As the launcher does: a link by which the program was called may point to a newer version later.
    let called = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let is_path = called.components().count() > 1 && file_state(&called) == file_state(&running);
    if is_path { std::path::absolute(called).unwrap_or(running) } else { running }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_replaced_file_is_noticed() {
        let folder = harness::Directory::new().unwrap();
        let path = folder.path("program");
        fs::write(&path, "1").unwrap();
        let program = ProgramFile::at(path.clone());
        assert!(!program.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!program.has_changed(), "there is nothing to upgrade to");
        fs::write(folder.path("new"), "22").unwrap();
        fs::rename(folder.path("new"), &path).unwrap();
        assert!(program.has_changed());
        assert!(!ProgramFile::running().has_changed());
    }
}
