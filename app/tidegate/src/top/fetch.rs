//! Where the figures come from: a stream of them, and pages of torrents, each on a thread of its own.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::snapshot::{Snapshot, Update};
use crate::admin::{Api, ApiError, Endpoint, Sort};

/// Torrents that are fetched: more than a terminal has lines.
const TORRENTS: usize = 200;
/// Between looks at the torrents. The tracker sorts them anew every few seconds.
const TORRENTS_PERIOD: Duration = Duration::from_secs(3);
/// Before a stream that has ended is asked for again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Asks until nobody takes its news.
pub(super) struct Fetcher {
    sorts: Sender<Sort>,
}

impl Fetcher {
    pub(super) fn start(
        endpoint: Endpoint,
        sort: Sort,
        updates: Sender<Update>,
    ) -> Result<Self, ApiError> {
        let (sorts, sort_changes) = mpsc::channel();
        let (snapshot, torrents) = (Api::new(endpoint.clone())?, Api::new(endpoint)?);
        let told = updates.clone();
        let failed = |error| ApiError::Failed(format!("cannot start a thread: {error}"));
        let stream = move || {
            while told.send(Update::Disconnected(ended(stream_events(&snapshot, &told)))).is_ok() {
                thread::sleep(RECONNECT_PAUSE);
            }
        };
        thread::Builder::new().name("figures".into()).spawn(stream).map_err(failed)?;
        let pages = move || {
            let mut sort = sort;
            while updates.send(page(&torrents, sort)).is_ok() {
                sort = match sort_changes.recv_timeout(TORRENTS_PERIOD) {
                    Ok(sort) => sort,
                    Err(RecvTimeoutError::Timeout) => sort,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
            }
        };
        thread::Builder::new().name("torrents".into()).spawn(pages).map_err(failed)?;
        Ok(Self { sorts })
    }

    /// Has torrents sorted by something else.
    pub(super) fn sort(&self, sort: Sort) {
        // A thread that has ended has told why.
        let _ = self.sorts.send(sort);
    }
}

/// All figures, as they are now.
pub(super) fn once(endpoint: Endpoint, sort: Sort) -> Result<Snapshot, ApiError> {
    let api = Api::new(endpoint)?;
    let mut snapshot = Snapshot::default();
    snapshot.apply(version(&api)?);
    // The tracker makes the list anew when somebody asks, and gives the one that it has meanwhile.
    page(&api, sort);
    let mut stream = api.stream_events("GET /figures")?;
    while !snapshot.is_complete() {
        let Some(message) = stream.next()? else {
            return Err(ApiError::Failed(ended(Ok(()))));
        };
        snapshot.apply(Update::Snapshot(message));
    }
    snapshot.apply(page(&api, sort));
    Ok(snapshot)
}

/// Tells figures until there are no more, or nobody listens.
fn stream_events(api: &Api, updates: &Sender<Update>) -> Result<(), ApiError> {
    let tell = |told| updates.send(told).map_err(|_| ApiError::OutputClosed);
    tell(version(api)?)?;
    let mut stream = api.stream_events("GET /figures")?;
    while let Some(message) = stream.next()? {
        tell(Update::Snapshot(message))?;
    }
    Ok(())
}

fn ended(followed: Result<(), ApiError>) -> String {
    match followed {
        Err(ApiError::Usage(why) | ApiError::Failed(why)) => why,
        Ok(()) | Err(ApiError::OutputClosed) => "the tracker has ended the stream".into(),
    }
}

fn version(api: &Api) -> Result<Update, ApiError> {
    let stats = api.request("GET /stats", None)?;
    Ok(Update::Version(stats["version"].as_str().unwrap_or_default().into()))
}

fn page(api: &Api, sort: Sort) -> Update {
    let page = api.request(&format!("GET /torrents?sort={}&limit={TORRENTS}", sort.name()), None);
    Update::Torrents(page.map_err(|stop| ended(Err(stop))))
}
