//! Where the figures come from: a stream of them, and pages of torrents, each on a thread of its own.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::figures::Figures;
use crate::admin::{Api, Message, Place, Sort, Stop};

/// Torrents that are fetched: more than a terminal has lines.
const TORRENTS: usize = 200;
/// Between looks at the torrents. The tracker sorts them anew every few seconds.
const TORRENTS_TIME: Duration = Duration::from_secs(3);
/// Before a stream that has ended is asked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// What is new.
pub(super) enum News {
    Version(String),
    Figures(Message),
    /// Torrents, or why there are none.
    Torrents(Result<Value, String>),
    /// The stream of figures has ended, and why.
    Lost(String),
}

/// Asks until nobody takes its news.
pub(super) struct Feed {
    sorts: Sender<Sort>,
}

impl Feed {
    pub(super) fn start(place: Place, sort: Sort, news: Sender<News>) -> Result<Self, Stop> {
        let (sorts, wishes) = mpsc::channel();
        let (figures, torrents) = (Api::new(place.clone())?, Api::new(place)?);
        let told = news.clone();
        let failed = |error| Stop::Failed(format!("cannot start a thread: {error}"));
        let stream = move || {
            while told.send(News::Lost(ended(follow(&figures, &told)))).is_ok() {
                thread::sleep(PAUSE);
            }
        };
        thread::Builder::new().name("figures".into()).spawn(stream).map_err(failed)?;
        let pages = move || {
            let mut sort = sort;
            while news.send(page(&torrents, sort)).is_ok() {
                sort = match wishes.recv_timeout(TORRENTS_TIME) {
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
pub(super) fn once(place: Place, sort: Sort) -> Result<Figures, Stop> {
    let api = Api::new(place)?;
    let mut figures = Figures::default();
    figures.take(version(&api)?);
    // The tracker makes the list anew when somebody asks, and gives the one that it has meanwhile.
    page(&api, sort);
    let mut stream = api.follow("GET /stats/stream")?;
    while !figures.is_whole() {
        let Some(message) = stream.next()? else {
            return Err(Stop::Failed(ended(Ok(()))));
        };
        figures.take(News::Figures(message));
    }
    figures.take(page(&api, sort));
    Ok(figures)
}

/// Tells figures until there are no more, or nobody listens.
fn follow(api: &Api, news: &Sender<News>) -> Result<(), Stop> {
    let tell = |told| news.send(told).map_err(|_| Stop::Unread);
    tell(version(api)?)?;
    let mut stream = api.follow("GET /stats/stream")?;
    while let Some(message) = stream.next()? {
        tell(News::Figures(message))?;
    }
    Ok(())
}

fn ended(followed: Result<(), Stop>) -> String {
    match followed {
        Err(Stop::Use(why) | Stop::Failed(why)) => why,
        Ok(()) | Err(Stop::Unread) => "the tracker has ended the stream".into(),
    }
}

fn version(api: &Api) -> Result<News, Stop> {
    let stats = api.ask("GET /stats", None)?;
    Ok(News::Version(stats["version"].as_str().unwrap_or_default().into()))
}

fn page(api: &Api, sort: Sort) -> News {
    let page = api.ask(&format!("GET /torrents?sort={}&limit={TORRENTS}", sort.name()), None);
    News::Torrents(page.map_err(|stop| ended(Err(stop))))
}
