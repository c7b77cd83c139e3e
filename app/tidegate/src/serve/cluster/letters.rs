//! WebTorrent messages between browsers at different nodes, as the cluster sees them.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cluster::{BoxFuture, Letters};
use front::webtorrent::RemoteLetters;

pub(super) struct WorkerLetters {
    letters: Arc<OnceLock<RemoteLetters>>,
    since: Instant,
}

impl WorkerLetters {
    /// Returns the letters, if HTTP workers have started.
    pub(super) fn new(letters: Arc<OnceLock<RemoteLetters>>) -> Option<Self> {
        letters.get()?;
        Some(Self { letters, since: Instant::now() })
    }
}

impl Letters for WorkerLetters {
    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.letters.get() {
                Some(letters) => letters.wait().await,
                None => std::future::pending().await,
            }
        })
    }

    fn take(&self) -> Vec<(u8, Vec<u8>)> {
        self.letters.get().map(|letters| letters.take(self.since.elapsed())).unwrap_or_default()
    }

    fn deliver(&self, from: u8, body: &[u8]) -> bool {
        self.letters.get().is_some_and(|letters| letters.deliver(from, body).is_ok())
    }
}
