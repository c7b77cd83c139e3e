//! Fetches statistics as a stream, and status and pages of torrents on another thread.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::snapshot::{Snapshot, Update};
use crate::admin::{Api, ApiError, Endpoint, Sort};

/// Number of torrents fetched: more than a terminal has lines.
const TORRENTS: usize = 200;
/// Period of fetching torrents. The tracker sorts them every few seconds.
const TORRENTS_PERIOD: Duration = Duration::from_secs(3);
/// The pause before a stream that has ended is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Sends updates until the receiver is dropped. Returns what changes the order of torrents.
pub(super) fn start(
    endpoint: Endpoint,
    sort: Sort,
    updates: Sender<Update>,
) -> Result<Sender<Sort>, ApiError> {
    let (sorts, sort_changes) = mpsc::channel();
    let (stream_api, torrents_api) = (Api::new(endpoint.clone())?, Api::new(endpoint)?);
    let stream_updates = updates.clone();
    let failed = |error| ApiError::Failed(format!("cannot start a thread: {error}"));
    let stream = move || {
        loop {
            let ended = send_statistics(&stream_api, &stream_updates);
            let update = Update::Disconnected(reason(ended));
            if stream_updates.send(update).is_err() {
                break;
            }
            thread::sleep(RECONNECT_PAUSE);
        }
    };
    thread::Builder::new().name("figures".into()).spawn(stream).map_err(failed)?;
    let pages = move || {
        let mut sort = sort;
        while updates.send(status(&torrents_api)).is_ok()
            && updates.send(page(&torrents_api, sort)).is_ok()
        {
            sort = match sort_changes.recv_timeout(TORRENTS_PERIOD) {
                Ok(sort) => sort,
                Err(RecvTimeoutError::Timeout) => sort,
                Err(RecvTimeoutError::Disconnected) => break,
            };
        }
    };
    thread::Builder::new().name("torrents".into()).spawn(pages).map_err(failed)?;
    Ok(sorts)
}

/// Fetches a complete snapshot.
pub(super) fn once(endpoint: Endpoint, sort: Sort) -> Result<Snapshot, ApiError> {
    let api = Api::new(endpoint)?;
    let mut snapshot = Snapshot::default();
    snapshot.apply(version(&api)?);
    snapshot.apply(names(&api));
    snapshot.apply(status(&api));
    // The first request makes the tracker sort its torrents anew; it returns the previous list.
    page(&api, sort);
    let mut stream = api.stream_events("GET /stats/stream")?;
    while !snapshot.is_complete() {
        let Some(message) = stream.next()? else {
            return Err(ApiError::Failed(reason(Ok(()))));
        };
        snapshot.apply(Update::Snapshot(message));
    }
    snapshot.apply(page(&api, sort));
    Ok(snapshot)
}

/// Sends statistics until the stream ends or the receiver is dropped.
fn send_statistics(api: &Api, updates: &Sender<Update>) -> Result<(), ApiError> {
    let send = |update| updates.send(update).map_err(|_| ApiError::OutputClosed);
    send(version(api)?)?;
    send(names(api))?;
    let mut stream = api.stream_events("GET /stats/stream")?;
    while let Some(message) = stream.next()? {
        send(Update::Snapshot(message))?;
    }
    Ok(())
}

/// Returns why a stream has ended.
fn reason(ended: Result<(), ApiError>) -> String {
    match ended {
        Err(ApiError::Usage(why) | ApiError::Failed(why)) => why,
        Ok(()) | Err(ApiError::OutputClosed) => {
            "the tracker closed the stream of statistics".into()
        }
    }
}

fn version(api: &Api) -> Result<Update, ApiError> {
    let stats = api.request("GET /stats", None)?;
    Ok(Update::Version(stats["version"].as_str().unwrap_or("?").into()))
}

/// Fetches what names mean. An older tracker does not say.
fn names(api: &Api) -> Update {
    Update::Names(api.request("GET /names", None).unwrap_or_default())
}

/// Fetches whether the tracker is well. An older one does not say.
fn status(api: &Api) -> Update {
    Update::Status(api.request("GET /status", None).unwrap_or_default())
}

fn page(api: &Api, sort: Sort) -> Update {
    let page = api.request(&format!("GET /torrents?sort={}&limit={TORRENTS}", sort.name()), None);
    Update::Torrents(page.map_err(|error| reason(Err(error))))
}
