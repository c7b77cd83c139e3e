//! Fetches statistics as a stream, and status and torrents between its events.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::snapshot::{Snapshot, locked};
use crate::admin::{Api, ApiError};

/// Number of torrents fetched: more than a terminal has lines.
const TORRENTS: usize = 200;
/// Period of fetching torrents. The tracker sorts them every few seconds.
const TORRENTS_PERIOD: Duration = Duration::from_secs(3);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Starts a thread that keeps `snapshot` up to date until the process ends.
pub(super) fn start(api: Api, snapshot: Arc<Mutex<Snapshot>>) -> Result<(), ApiError> {
    let follow_again = move || {
        loop {
            if let Err(error) = follow(&api, &snapshot, false) {
                locked(&snapshot).stream_error = Some(error.to_string());
            }
            thread::sleep(RECONNECT_PAUSE);
        }
    };
    let started = thread::Builder::new().name("figures".into()).spawn(follow_again);
    let failed = |error| ApiError::Failed(format!("cannot start a thread: {error}"));
    started.map(drop).map_err(failed)
}

/// Keeps `snapshot` up to date until the stream of statistics ends, which is an error; or, if `is_once`, until all
/// statistics are there.
pub(super) fn follow(api: &Api, snapshot: &Mutex<Snapshot>, is_once: bool) -> Result<(), ApiError> {
    let stats = api.request("GET /stats", None)?;
    // An older tracker does not say what names mean.
    let names = api.request("GET /names", None).unwrap_or_default();
    {
        let mut snapshot = locked(snapshot);
        snapshot.version = stats["version"].as_str().unwrap_or("?").into();
        snapshot.names = names;
    }
    // The first request makes the tracker sort its torrents anew; it returns the previous list.
    fetch_pages(api, snapshot);
    let mut fetched_at = Instant::now();
    let mut stream = api.stream_events("GET /stats/stream")?;
    while let Some(message) = stream.next()? {
        locked(snapshot).apply(&message);
        let is_end = is_once && locked(snapshot).is_complete();
        if is_end || fetched_at.elapsed() >= TORRENTS_PERIOD {
            fetch_pages(api, snapshot);
            fetched_at = Instant::now();
        }
        if is_end {
            return Ok(());
        }
    }
    Err(ApiError::Failed("the tracker closed the stream of statistics".into()))
}

fn fetch_pages(api: &Api, snapshot: &Mutex<Snapshot>) {
    let status = api.request("GET /status", None).unwrap_or_default();
    let sort = locked(snapshot).sort.name();
    let torrents = api.request(&format!("GET /torrents?sort={sort}&limit={TORRENTS}"), None);
    let mut snapshot = locked(snapshot);
    snapshot.status = status;
    snapshot.set_torrents(torrents);
}
