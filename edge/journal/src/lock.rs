//! The lock of a journal's directory, so that two processes never write one journal.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const NAME: &str = "lock";
/// Interval between attempts to take a lock. The system offers no wait for a lock with a time limit.
const INTERVAL: Duration = Duration::from_millis(20);

/// The right to write a journal: a lock of its directory, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    /// The system releases the lock when the file is closed, also if the process is killed.
    _file: File,
}

impl Lock {
    /// Waits for the lock, up to `wait`. Returns `None` if another process still holds it then. Creates the
    /// directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory or the lock file cannot be created or opened.
    pub fn acquire(directory: &Path, wait: Duration) -> io::Result<Option<Self>> {
        // Addresses of clients are not for other users.
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(directory.join(NAME))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if start.elapsed() >= wait => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(INTERVAL),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_at_a_time() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("state/swarms");
        let lock = Lock::acquire(&directory, Duration::ZERO).unwrap().unwrap();
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(Lock::acquire(&directory, Duration::ZERO).unwrap().is_none());
        assert!(Lock::acquire(&directory, Duration::from_millis(50)).unwrap().is_none());
        drop(lock);
        assert!(Lock::acquire(&directory, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn waits_for_a_writer_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(folder.path(), Duration::ZERO).unwrap().unwrap();
        std::thread::scope(|scope| {
            let wait = || Lock::acquire(folder.path(), Duration::from_secs(60)).unwrap();
            let second = scope.spawn(wait);
            drop(lock);
            assert!(second.join().unwrap().is_some());
        });
    }
}
