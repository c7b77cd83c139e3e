//! The subsystem: its threads, and what the application asks of it.
//!
//! | thread | does |
//! |---|---|
//! | `site` | opens the spool, cuts batches, so that all are written within [`SiteConfig::flush_s`], writes snapshots |
//! | `site-database` | loads users and torrents, writes batches, one transaction each |
//! | `site-calls` | serves the calls of the site |
//! | `site-tokens` | tells Gazelle of used-up tokens |
//! | `site-probe` | connects to clients to see whether they accept it, if that is wanted |
//!
//! The spool of a process that is being replaced is locked: until it is free, announces wait in memory.

mod consumer;
mod flusher;
mod sharing;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, mpsc};
use tracker::{Site, Tracker};
use types::InfoHash;

use crate::answers::Answers;
use crate::batch::Batch;
use crate::config::{SiteConfig, SiteError, SiteKind};
use crate::probes;
use crate::rates::Rates;
use crate::server;
use crate::shared_call::SharedCall;
use crate::spool::{Spool, SpoolError};
use crate::status::{SiteProblem, SiteStatus};
use sharing::Sharing;

/// Time that the end of a process waits for the database.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Calls of other nodes that wait. With more, the database is read again.
const REPEATED_CALLS_MAX: usize = 10_000;

/// A site: its accounts, its spool, and its database.
pub struct SiteSubsystem {
    shared: Arc<Shared>,
    listener: Mutex<Option<TcpListener>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// State that the threads share.
pub(crate) struct Shared {
    pub(crate) config: SiteConfig,
    folder: PathBuf,
    pub(crate) answers: Arc<Answers>,
    spool: Mutex<Option<Spool>>,
    /// Notified when there is a batch, a reload or the end.
    changed: Condvar,
    stopping: AtomicBool,
    pub(crate) calls_stop: Notify,
    probes_stop: Notify,
    reload: AtomicBool,
    progress: Mutex<Progress>,
    pub(crate) sharing: Sharing,
    /// Calls that other nodes got, on their way to the thread of calls.
    pub(crate) repeated_calls:
        (mpsc::Sender<SharedCall>, Mutex<Option<mpsc::Receiver<SharedCall>>>),
    pub(crate) clock: Clock,
    /// Unix seconds.
    pub(crate) started_s: u32,
}

/// Unix seconds that do not jump.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    unix_s: u64,
    since: Instant,
}

/// Reports of the threads.
#[derive(Default)]
struct Progress {
    /// Rows, problems, and whether users and torrents are known. The rest of it is read when it is shown.
    status: SiteStatus,
    row_rates: Rates,
    /// The time that the last batch took to be written to the database.
    write_time: Duration,
    /// True until the sessions in the database are taken over: at the first start, and in a cluster at each.
    takes_over: bool,
}

/// Names one of the problems that threads report.
type Place = fn(&mut SiteStatus) -> &mut Option<SiteProblem>;

impl SiteSubsystem {
    /// Opens a site, with its files in `folder`. Its calls come to `listener`, which a process that is being replaced
    /// may have, too.
    ///
    /// # Errors
    ///
    /// If the configuration is not valid.
    pub fn with_listener(
        config: SiteConfig,
        folder: &Path,
        listener: Option<TcpListener>,
    ) -> Result<Self, SiteError> {
        config.check()?;
        if let Some(foreign) = probes::find_foreign(&config.probes.from) {
            let expected = "addresses of this machine";
            return Err(SiteError::invalid("connectable_from", expected, &foreign.to_string()));
        }
        let answers = Arc::new(Answers::new(&config));
        let (sender, receiver) = mpsc::channel(REPEATED_CALLS_MAX);
        let clock = Clock::now();
        let shared = Shared {
            config,
            folder: folder.to_owned(),
            answers,
            spool: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::default(),
            calls_stop: Notify::new(),
            probes_stop: Notify::new(),
            reload: AtomicBool::default(),
            progress: Mutex::default(),
            sharing: Sharing::default(),
            repeated_calls: (sender, Mutex::new(Some(receiver))),
            clock,
            started_s: clock.now_s(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            listener: Mutex::new(listener),
            threads: Mutex::default(),
        })
    }

    /// Returns the judge of announces, for the tracker.
    pub fn site(&self) -> Arc<dyn Site> {
        Arc::clone(&self.shared.answers) as Arc<dyn Site>
    }

    /// Starts the threads. Users' keys go to `tracker`, whose tick 0 is at `epoch_s`, unix seconds.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub fn start(&self, tracker: Arc<Tracker>, epoch_s: u32) -> Result<(), SiteError> {
        let Shared { answers, config, .. } = &*self.shared;
        answers.set_epoch(epoch_s);
        answers.keys.set(tracker);
        let shared = Arc::clone(&self.shared);
        self.spawn("site", move || flusher::run(&shared))?;
        if config.kind != SiteKind::Feed {
            let shared = Arc::clone(&self.shared);
            self.spawn("site-database", move || consumer::run(&shared))?;
        }
        if let Some(probes) = answers.probes.clone() {
            let shared = Arc::clone(&self.shared);
            self.spawn("site-probe", move || {
                if let Err(error) = probes.run(&shared.probes_stop) {
                    tracing::error!(target: "site", "peers are not probed: {error}");
                }
            })?;
        }
        if let Some(calls) = answers.token_calls.clone() {
            let shared = Arc::clone(&self.shared);
            self.spawn("site-tokens", move || {
                calls.run(shared.config.update_secret(), &shared.stopping);
            })?;
        }
        if let Some(listener) = self.listener.lock().take() {
            let shared = Arc::clone(&self.shared);
            self.spawn("site-calls", move || {
                if let Err(error) = server::serve(shared, listener) {
                    tracing::error!(target: "site", "the calls of the site are not served: {error}");
                }
            })?;
        }
        Ok(())
    }

    /// Writes everything to the spool, and to the database if it is there. Call after announces have ended.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.calls_stop.notify_one();
        self.shared.probes_stop.notify_one();
        self.shared.changed.notify_all();
        let deadline = Instant::now() + STOP_PATIENCE;
        for thread in self.threads.lock().drain(..) {
            // A statement can take longer: its batch is in the spool.
            while !thread.is_finished() && Instant::now() < deadline {
                self.shared.changed.notify_all();
                thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        // From now on the next process can have the spool.
        *self.shared.spool.lock() = None;
    }

    /// Returns the software of the site.
    pub fn kind(&self) -> SiteKind {
        self.shared.config.kind
    }

    /// Returns the state.
    pub fn status(&self) -> SiteStatus {
        let Shared { answers, config, progress, spool, clock, .. } = &*self.shared;
        // In the order in which an announce passes: what one part has not yet, the next has not either.
        let pending = answers.ledger.pending() as u64;
        let (mut spool_batches, mut spool_bytes, mut lag_s) = (0, 0, 0);
        if let Some(spool) = &*spool.lock() {
            spool_batches = spool.waiting();
            spool_bytes = spool.bytes();
            lag_s =
                spool.waiting_since_s().map_or(0, |since_s| clock.now_s().saturating_sub(since_s));
        }
        let progress = progress.lock();
        let model = answers.model.read();
        let ledger = &answers.ledger;
        let status = SiteStatus {
            kind: config.kind.label().to_owned(),
            ready: progress.status.ready || config.kind == SiteKind::Feed,
            counting: answers.is_counting(),
            users: model.users.len() as u64,
            torrents: (model.torrents.len() + answers.names.len()) as u64,
            bad_passkeys: model.bad_passkeys,
            duplicate_hashes: model.duplicate_hashes,
            sessions: ledger.sessions.load(Ordering::Relaxed) as u64,
            announces: answers.announces.load(Ordering::Relaxed),
            pending,
            implausible: ledger.implausible.load(Ordering::Relaxed),
            uncounted: ledger.uncounted.load(Ordering::Relaxed),
            lists_withheld: answers.lists_withheld.load(Ordering::Relaxed),
            probes: answers.probes.as_ref().map(|probes| probes.counts()),
            spool_batches,
            spool_bytes,
            spool_bytes_max: config.spool_mib << 20,
            lag_s: lag_s.into(),
            ..progress.status.clone()
        };
        status.judged()
    }

    /// Returns the feed.
    pub fn feed(&self) -> Feed {
        Feed(Arc::clone(&self.shared))
    }

    /// Has all tables read again.
    pub fn reload(&self) {
        self.shared.reload();
    }

    /// Replaces the hybrid torrents, each with its v1 and its v2 hash: clients announce both with the same counters, and the
    /// feed counts them once, for the first. Other sites have one hash of a torrent.
    pub fn set_hybrids(&self, hybrids: impl Iterator<Item = (InfoHash, InfoHash)>) {
        self.shared.answers.set_hybrids(hybrids.map(|(v1, v2)| (v2, v1)).collect());
    }

    fn spawn(
        &self,
        name: &'static str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), SiteError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|error| {
            SiteError(format!(
                "cannot start the thread {name}: {error}; raise the limit of threads"
            ))
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

/// The batches, for readers.
#[derive(Clone)]
pub struct Feed(Arc<Shared>);

impl Feed {
    /// Returns the batch after `cursor`, or `None` if there is none yet. Batches that were confirmed can be gone.
    ///
    /// # Errors
    ///
    /// If its file cannot be read.
    pub fn after(&self, cursor: u64) -> Result<Option<Arc<Batch>>, SpoolError> {
        match &*self.0.spool.lock() {
            Some(spool) => spool.after(cursor),
            None => Ok(None),
        }
    }

    /// Returns the number that tells this spool from another one in its place, or `None` while another process has it.
    pub fn id(&self) -> Option<u64> {
        self.0.spool.lock().as_ref().map(|spool| spool.id)
    }

    /// Returns the last batch that was confirmed.
    pub fn confirmed(&self) -> u64 {
        self.0.spool.lock().as_ref().map_or(0, |spool| spool.confirmed)
    }

    /// Confirms all batches up to `cursor`: they need not be kept. With another kind than `feed` it is the database that
    /// confirms, and this changes nothing.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn confirm(&self, cursor: u64) -> Result<(), SpoolError> {
        match &mut *self.0.spool.lock() {
            Some(spool) if self.0.config.kind == SiteKind::Feed => spool.confirm_feed(cursor),
            _ => Ok(()),
        }
    }

    /// Returns the torrent with a number of a record.
    pub fn info_hash(&self, torrent: u32) -> Option<InfoHash> {
        let answers = &self.0.answers;
        if self.0.config.kind == SiteKind::Feed {
            return answers.names.info_hash(torrent);
        }
        answers.model.read().torrents.get(torrent).map(|torrent| torrent.info_hash)
    }
}

impl Shared {
    /// Has all tables read again.
    pub(crate) fn reload(&self) {
        self.reload.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until something changes, or for `patience`.
    fn wait(&self, patience: Duration) {
        let mut spool = self.spool.lock();
        if !self.is_stopping() {
            self.changed.wait_for(&mut spool, patience);
        }
    }

    /// Reports a problem, and logs it when it is new.
    fn note(&self, place: Place, error: &str, remedy: &str) {
        let mut progress = self.progress.lock();
        let place = place(&mut progress.status);
        let since = match place {
            Some(old) if old.error == error => return,
            Some(old) => old.since,
            None => self.clock.now_s().into(),
        };
        tracing::error!(target: "site", "{error}; {remedy}");
        *place = Some(SiteProblem { error: error.to_owned(), remedy: remedy.to_owned(), since });
    }

    /// Reports that a problem has ended.
    fn clear(&self, place: Place, sentence: &str) {
        if place(&mut self.progress.lock().status).take().is_some() {
            tracing::info!(target: "site", "{sentence}");
        }
    }

    fn model_path(&self) -> PathBuf {
        self.folder.join("model")
    }
}

impl Progress {
    fn update_rate(&mut self, elapsed_s: f64) {
        self.row_rates.update(self.status.rows, elapsed_s);
        let [_, _, over_a_minute, ..] = self.row_rates.per_s();
        self.status.rows_per_s = (over_a_minute * 10.0).round() / 10.0;
    }
}

impl Clock {
    fn now() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { unix_s: unix.as_secs(), since: Instant::now() }
    }

    pub(crate) fn now_s(&self) -> u32 {
        let now_s = self.unix_s + self.since.elapsed().as_secs();
        u32::try_from(now_s).unwrap_or(u32::MAX)
    }
}
