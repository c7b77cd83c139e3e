//! The journal of swarms: opened before the sandbox; restored and written by a thread of its own.

mod file_system;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use journal::{Failure, Journal, JournalStatus, Lock, Pace, State, Status, Writer};
use net::process::{cores, lower_priority};
use replication::Clocks;
use swarm::Feed;
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracker::{SessionOrigin, Tracker};

use super::module::{Findings, Loading, Module, Notice, Notify, Opening, Running};
use super::time::{clocks, unix_ms};
use super::transfer::{Reception, session_source};
use super::workers::ends_by;
use crate::permissions::{create_directory, future_owner};
use config::{Config, SwarmsConfig};

const KEY_NAME: &str = "state.dir";
/// Longest time that the start waits for another process, which may be ending, to release the journal.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Time that the thread waits for that release before it checks again whether to stop.
const LOCK_POLL: Duration = Duration::from_millis(200);
/// Period at which the thread tries again to create or open the directory.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
/// The longest that a tracker's clock continues over restarts: half of what the ages of torrents can express.
const CLOCK_MAX: Duration = Duration::from_secs(180 * 24 * 3600);
/// More threads than this would wait for the disk.
const RESTORE_THREADS_MAX: usize = 8;

#[derive(Default)]
pub(super) struct JournalModule {
    open: Option<OpenJournal>,
    swarms: Option<Swarms>,
}

impl Module for JournalModule {
    fn check(&self, config: &Config, _is_running: bool, findings: &mut Findings) {
        findings.problems.extend(file_system::check(config));
        findings.warnings.extend(file_system::warning(config));
    }

    /// Creates the directory while the process is still root. A failure is reported when the journal is opened: nothing
    /// about it keeps the tracker from serving.
    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        if let Some(swarms) = &opening.config.swarms {
            let _ = create_directory(KEY_NAME, &swarms.dir, future_owner(opening.config));
        }
        Ok(())
    }

    fn load(&mut self, loading: &mut Loading<'_>) -> Result<()> {
        let open = OpenJournal::open(loading.config, loading.is_upgrade);
        if let Some(OpenJournal { source: Source::Locked(_, Some(journal)), .. }) = &open {
            if let Some(elapsed) = elapsed(journal.epoch_ms(), unix_ms()) {
                loading.handoff.set_clock(elapsed);
            }
            loading.loaded.restored_ms = journal.newest_round_ms();
        }
        self.open = open;
        Ok(())
    }

    fn start(&mut self, running: &mut Running<'_>) -> Result<()> {
        let Some(journal) = self.open.take() else { return Ok(()) };
        let report = Arc::clone(&journal.report);
        let subsystems = &running.workers.metric_sources().subsystems;
        subsystems.add("journal", move || report.journal_status());
        self.swarms = Some(journal.start(running)?);
        Ok(())
    }

    fn configure(&mut self, config: &Config) {
        if let (Some(running), Some(swarms)) = (&self.swarms, &config.swarms) {
            running.pace.send_replace(pace(swarms));
        }
    }

    fn stop(&mut self, deadline: Instant) {
        let Some(swarms) = &self.swarms else { return };
        swarms.stop.store(true, Ordering::Relaxed);
        if !ends_by(&swarms.thread, deadline) {
            warn!(
                "stopping without the last changes of swarms: cannot write to the disk of state.dir"
            );
        }
    }
}

fn pace(config: &SwarmsConfig) -> Pace {
    let SwarmsConfig { round, sync, bytes_max, .. } = *config;
    Pace { round, sync, bytes_max }
}

#[derive(Debug)]
struct Report {
    status: Arc<Status>,
    since: Instant,
    is_restoring: AtomicBool,
    /// Number of peers restored, each counted once; 0 until restoring has ended.
    restored_peers: AtomicU64,
    locked: AtomicU64,
    unusable: AtomicU64,
    place: String,
}

impl Report {
    fn journal_status(&self) -> JournalStatus {
        let mut figures = self.status.figures();
        let now_ms = unix_ms();
        let age_ms = |ms: u64| now_ms.saturating_sub(ms);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        figures.failures[Failure::Io as usize] += load(&self.unusable);
        let since_start_s = self.since.elapsed().as_secs();
        JournalStatus {
            state: match figures.state {
                _ if self.is_restoring.load(Ordering::Relaxed) => State::Restoring,
                State::Off => State::Stopped,
                state => state,
            },
            round_age_s: Some(figures.round_began_ms.map_or(since_start_s, |ms| age_ms(ms) / 1000)),
            disk_bytes: figures.disk_bytes,
            restored: load(&self.restored_peers),
            lag_s: figures.written_ms.map_or(0.0, |ms| age_ms(ms) as f64 / 1000.0),
            locked: load(&self.locked),
            place: self.place.clone(),
            figures,
        }
    }
}

struct OpenJournal {
    config: SwarmsConfig,
    is_in_cluster: bool,
    source: Source,
    report: Arc<Report>,
}

enum Source {
    /// This process may write. It restores the journal if there is one.
    Locked(Lock, Option<Journal>),
    /// Another process may write: the old one, in an upgrade.
    Awaited,
}

impl OpenJournal {
    /// Opens the journal, unless it is off. If another process has it, its thread waits for it: in an
    /// upgrade, the old process has it until it ends.
    fn open(config: &Config, is_upgrade: bool) -> Option<Self> {
        if let Some(warning) = file_system::warning(config) {
            warn!("{warning}");
        }
        let is_in_cluster = config.cluster.is_some();
        let state_dir = config.state_dir.clone().unwrap_or_default();
        let config = config.swarms.clone()?;
        let report = Arc::new(Report {
            status: Arc::default(),
            since: Instant::now(),
            is_restoring: AtomicBool::new(true),
            restored_peers: AtomicU64::new(0),
            locked: AtomicU64::new(0),
            unusable: AtomicU64::new(0),
            place: format!("the disk of {}", state_dir.display()),
        });
        let source = if is_upgrade { None } else { acquire(&config.dir, LOCK_WAIT, &report) };
        let source = source.map_or(Source::Awaited, |lock| {
            let journal = open(&config.dir, is_in_cluster);
            Source::Locked(lock, journal)
        });
        if matches!(source, Source::Awaited) && !is_upgrade {
            error!(
                directory = %config.dir.display(),
                "serving without the journal of swarms until it can be used: they do not survive a restart"
            );
        }
        Some(Self { config, is_in_cluster, source, report })
    }

    /// Starts the thread that restores and writes. It reports [`Notice::SwarmsRestored`] once.
    fn start(self, running: &Running<'_>) -> Result<Swarms> {
        let Self { config, is_in_cluster, source, report } = self;
        let tracker = &running.shared.tracker;
        let feed = &running.shared.feed;
        // Changes made before the first round begins belong to the journal, too.
        feed.prime(tracker.store());
        let stop = Arc::new(AtomicBool::new(false));
        let (pace, pace_of_writer) = watch::channel(pace(&config));
        let task = Task {
            tracker: Arc::clone(tracker),
            dir: config.dir.into(),
            is_in_cluster,
            clocks: clocks(running.shared.clock),
            feed: Arc::clone(feed),
            reception: Arc::clone(&running.shared.reception),
            report,
            pace: pace_of_writer,
            stop: Arc::clone(&stop),
        };
        // Changes made while older blocks are restored are younger than these: peers that stop must not come back.
        tracker.store().remember_stopped(true);
        tracker.passkeys().begin_import();
        let notify = Arc::clone(running.notify);
        let thread = running.workers.spawn("journal", lower_priority, move || {
            task.run(source, &notify);
            Ok(())
        })?;
        Ok(Swarms { pace, stop, thread })
    }
}

/// A journal in use. [`Workers::stop`](super::workers::Workers::stop) does not stop its thread, because it writes what
/// the workers change last.
struct Swarms {
    pace: watch::Sender<Pace>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct Task {
    tracker: Arc<Tracker>,
    dir: Arc<Path>,
    is_in_cluster: bool,
    clocks: Clocks,
    feed: Arc<Feed>,
    /// In an upgrade, of the old process's swarms.
    reception: Arc<Reception>,
    report: Arc<Report>,
    pace: watch::Receiver<Pace>,
    stop: Arc<AtomicBool>,
}

impl Task {
    fn run(self, source: Source, notify: &Notify) {
        let store = self.tracker.store();
        let restored = || {
            self.report.is_restoring.store(false, Ordering::Relaxed);
            notify(Notice::SwarmsRestored);
        };
        let (lock, journal) = match source {
            Source::Locked(lock, journal) => {
                self.restore(journal);
                restored();
                (lock, None)
            }
            Source::Awaited => {
                restored();
                let Some(lock) = self.await_lock() else { return };
                // The old process has sent everything when it releases the lock.
                while self.reception.is_running.load(Ordering::Acquire)
                    && !self.stop.load(Ordering::Relaxed)
                {
                    thread::sleep(LOCK_POLL);
                }
                let journal = match self.reception.is_complete.load(Ordering::Acquire) {
                    true => None,
                    false => open(&self.dir, self.is_in_cluster).map(Journal::behind_announces),
                };
                (lock, journal)
            }
        };
        self.restore(journal);
        store.remember_stopped(false);
        self.tracker.passkeys().finish_import();
        let status = Arc::clone(&self.report.status);
        let writer = Writer::new(self.dir.to_path_buf(), lock, self.feed, self.clocks, status);
        let writer = writer.with_sessions(session_source(&self.tracker));
        writer.run(store, || *self.pace.borrow(), &self.stop);
    }

    fn restore(&self, journal: Option<Journal>) {
        let Some(journal) = journal else { return };
        let started = Instant::now();
        let threads = cores().len().clamp(1, RESTORE_THREADS_MAX);
        self.report.is_restoring.store(true, Ordering::Relaxed);
        let (store, status) = (self.tracker.store(), &self.report.status);
        let (tracker, clocks) = (Arc::clone(&self.tracker), Arc::clone(&self.clocks));
        let journal = journal.with_sessions(Box::new(move |ago_s, is_newest, body| {
            let origin = SessionOrigin::EarlierProcess { is_exact: is_newest };
            let _ = tracker.import_sessions(clocks().tick, ago_s, origin, body);
        }));
        let merged = journal.restore(store, &self.clocks, threads, status, &self.stop);
        self.report.is_restoring.store(false, Ordering::Relaxed);
        // A journal says some things twice.
        let totals = self.tracker.totals();
        let known = [totals.v4, totals.v6].map(|counts| counts.seeders + counts.leechers);
        let peers = merged.peers.min(known.iter().sum());
        self.report.restored_peers.store(peers, Ordering::Relaxed);
        info!(
            peers,
            torrents = merged.torrents,
            expired = merged.old,
            seconds = format!("{:.1}", started.elapsed().as_secs_f64()),
            "restored swarms from the journal"
        );
        if merged.full > 0 {
            warn!(
                peers = merged.full,
                "peers were not restored, because limits.memory_mib is used up"
            );
        }
    }

    fn await_lock(&self) -> Option<Lock> {
        let mut failed_at: Option<Instant> = None;
        while !self.stop.load(Ordering::Relaxed) {
            if failed_at.is_some_and(|at| at.elapsed() < RETRY_PERIOD) {
                thread::sleep(LOCK_POLL);
                continue;
            }
            match Lock::acquire(&self.dir, LOCK_POLL) {
                Ok(Some(lock)) => return Some(lock),
                Ok(None) => {}
                Err(error) => {
                    unusable(&self.dir, &error, &self.report);
                    failed_at = Some(Instant::now());
                }
            }
        }
        None
    }
}

fn acquire(dir: &Path, wait: Duration, report: &Report) -> Option<Lock> {
    match Lock::acquire(dir, wait) {
        Ok(Some(lock)) => return Some(lock),
        Ok(None) => {
            report.locked.fetch_add(1, Ordering::Relaxed);
            error!(
                directory = %dir.display(),
                "another process has the journal of swarms: give each tracker its own state.dir"
            );
        }
        Err(error) => unusable(dir, &error, report),
    }
    None
}

fn unusable(dir: &Path, error: &std::io::Error, report: &Report) {
    report.unusable.fetch_add(1, Ordering::Relaxed);
    error!(directory = %dir.display(), %error, "cannot open the journal of swarms");
}

fn open(dir: &Path, is_in_cluster: bool) -> Option<Journal> {
    let open = if is_in_cluster { Journal::open_of_node } else { Journal::open };
    open(dir, unix_ms()).unwrap_or_else(|error| {
        error!(
            directory = %dir.display(), %error,
            "cannot read the journal of swarms: starting without their peers"
        );
        None
    })
}

/// Returns how long a clock that was 0 at `epoch_ms` has been running, unless that is in the future or too
/// long ago.
fn elapsed(epoch_ms: u64, now_ms: u64) -> Option<Duration> {
    let elapsed = Duration::from_millis(now_ms.checked_sub(epoch_ms)?);
    (elapsed <= CLOCK_MAX).then_some(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continues_clocks_of_the_last_half_year() {
        let day_ms = 24 * 3600 * 1000;
        let now_ms = 1000 * day_ms;
        assert_eq!(elapsed(now_ms - 5, now_ms), Some(Duration::from_millis(5)));
        assert_eq!(elapsed(now_ms - 180 * day_ms, now_ms), Some(CLOCK_MAX));
        assert_eq!(elapsed(now_ms - 180 * day_ms - 1, now_ms), None);
        assert_eq!(elapsed(now_ms + 1, now_ms), None, "the wall clock was set back");
    }
}
