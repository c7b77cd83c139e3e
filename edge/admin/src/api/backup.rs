//! `/backup`: an archive of the state directory, streamed while it is made.

use std::io::{self, Write};
use std::path::PathBuf;
use std::pin::Pin;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use futures_util::stream::unfold;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::{info, warn};

use super::handler::*;
use crate::records::{ArchiveParts, write_archive};

/// Bytes of a part of the archive.
const CHUNK: usize = 64 << 10;
/// Parts that wait for the client.
const WAITING_MAX: usize = 4;
const HEADERS: [(axum::http::HeaderName, &str); 2] = [
    (CONTENT_TYPE, "application/x-tar"),
    (CONTENT_DISPOSITION, "attachment; filename=\"tidegate-backup.tar\""),
];

pub(super) fn routes() -> Vec<Route> {
    vec![route("GET /backup", Scope::All, "Download an archive of the state directory", backup)]
}

/// The parts of an archive.
#[derive(Deserialize, IntoParams)]
struct BackupQuery {
    /// With the secret of sessions, the first token and the certificates' keys; absent: true.
    #[param(nullable = false)]
    secrets: Option<bool>,
    /// With the journal of swarms, which has addresses of clients; absent: false.
    #[param(nullable = false)]
    swarms: Option<bool>,
}

/// A tar file.
pub(super) enum ArchiveFile {}

async fn backup(
    State(api): State<Shared>,
    caller: Caller,
    Query(query): Query<BackupQuery>,
) -> Result<Raw<ArchiveFile>, Problem> {
    let folder = api.records().directory().ok_or_else(|| {
        Problem::not_found(
            "nothing to back up: the tracker keeps its state in memory (state.dir is empty)",
        )
    })?;
    let parts = ArchiveParts {
        secrets: query.secrets.unwrap_or(true),
        swarms: query.swarms.unwrap_or(false),
    };
    let permit = api.backup_streams.open(caller.token)?;
    let (to_client, chunks) = channel(WAITING_MAX);
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || write(folder, parts, to_client));
    let ended = Box::pin(permit.ended(api, caller));
    let state = Download { chunks, ended, has_failed: false };
    let stream = unfold(state, |mut state| async move {
        let chunk = state.next().await?;
        Some((chunk, state))
    });
    Ok(Raw::new((HEADERS, Body::from_stream(stream))))
}

/// A response that is being sent.
struct Download {
    chunks: Receiver<io::Result<Bytes>>,
    /// Completes when the client loses its access.
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_failed: bool,
}

impl Download {
    /// Waits for the next part. Returns `None` after the last one, or after an error.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.has_failed {
            return None;
        }
        let chunk = tokio::select! {
            chunk = self.chunks.recv() => chunk?,
            () = &mut self.ended => Err(io::Error::other("the client's access has ended")),
        };
        self.has_failed = chunk.is_err();
        Some(chunk)
    }
}

/// Writes the archive. A failure ends the response before its end, so that no client takes it for a whole one.
fn write(folder: PathBuf, parts: ArchiveParts, to_client: Sender<io::Result<Bytes>>) {
    let mut chunks = Chunks { waiting: Vec::with_capacity(CHUNK), to_client };
    match write_archive(&folder, parts, &folder, &mut chunks) {
        Ok(summary) => info!(%summary.counts, "a backup was downloaded"),
        Err(error) => {
            warn!(%error, "a download of a backup failed");
            let _ = chunks.to_client.blocking_send(Err(io::Error::other(error)));
        }
    }
}

/// Sends what is written to a client in parts, as fast as it reads.
struct Chunks {
    waiting: Vec<u8>,
    to_client: Sender<io::Result<Bytes>>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.waiting);
        let sent = self.to_client.blocking_send(Ok(chunk.into()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has disconnected"))
    }
}
