//! The thread that writes a journal, and its handling of failures.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use replication::Clocks;
use swarm::{Feed, Store};
use tracing::{info, warn};

use crate::disk::{Directory, Disk};
use crate::lock::Lock;
use crate::log::SegmentLog;
use crate::plan::open_header;
use crate::rounds::{Rounds, Turn, has_room_for_two};
use crate::status::BoundReached;
use crate::{Failure, Pace, SessionSource, State, Status};

/// The time between two turns: what a killed process loses.
const INTERVAL: Duration = Duration::from_millis(200);
/// The time between two attempts after a failure.
const RETRY: Duration = Duration::from_secs(60);

/// Writes a journal.
pub struct Writer {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    feed: Arc<Feed>,
    clocks: Clocks,
    status: Arc<Status>,
    sessions: Option<Box<SessionSource>>,
    interval: Duration,
    retry: Duration,
    /// Dropped last, so after the last write.
    _lock: Lock,
}

impl Writer {
    /// Returns a writer for `directory`, which `lock` protects. It writes nothing yet. All users of the
    /// store's changes share `feed`.
    pub fn new(
        directory: PathBuf,
        lock: Lock,
        feed: Arc<Feed>,
        clocks: Clocks,
        status: Arc<Status>,
    ) -> Self {
        let disk = Arc::new(Directory::new(&directory));
        let (interval, retry) = (INTERVAL, RETRY);
        let sessions = None;
        Self { directory, disk, feed, clocks, status, sessions, interval, retry, _lock: lock }
    }

    /// Makes each round include the sessions of `source`, too.
    #[must_use]
    pub fn with_sessions(mut self, source: Box<SessionSource>) -> Self {
        self.sessions = Some(source);
        self
    }

    #[cfg(test)]
    pub(crate) fn on_disk(self, disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..self }
    }

    /// Sets the time between turns, and that between attempts after a failure.
    #[cfg(test)]
    pub(crate) fn with_times(self, interval: Duration, retry: Duration) -> Self {
        Self { interval, retry, ..self }
    }

    /// Writes until `stop` is set; then writes the last changes, waits until the disk has them, releases the
    /// lock and returns. Reads `pace` a few times a second.
    pub fn run(mut self, store: &Store, pace: impl Fn() -> Pace, stop: &AtomicBool) {
        let started = Instant::now();
        let mut sessions = self.sessions.take();
        let turn = || Turn { now: (self.clocks)(), elapsed: started.elapsed(), pace: pace() };
        // Later starts are larger. The lower bits tell starts of the same millisecond apart.
        let boot = (turn().now.unix_ms << 8) | (RandomState::new().hash_one(0) & 0xff);
        while let Err(error) = self.write(store, (boot, &turn), sessions.as_deref_mut(), stop) {
            self.status.update(|figures| {
                figures.state = State::Stopped;
                figures.failures[Failure::of(&error) as usize] += 1;
            });
            warn!(
                %error,
                directory = %self.directory.display(),
                "cannot write the journal of swarms: a restart loses the peers that come now"
            );
            if !self.wait(self.retry, stop) {
                break;
            }
        }
        self.status.update(|figures| figures.state = State::Off);
    }

    /// Writes a new segment and a new round, and so on until `stop` is set.
    fn write(
        &self,
        store: &Store,
        (boot, turn): (u64, &dyn Fn() -> Turn),
        sessions: Option<&mut SessionSource>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let first = turn();
        // A stop may have interrupted restoring: then the store lacks what the segments hold.
        let is_urgent = !stop.load(Ordering::Relaxed) && self.make_room(store, first.pace)?;
        let (disk, status) = (Arc::clone(&self.disk), Arc::clone(&self.status));
        let log = SegmentLog::begin(disk, Arc::clone(&status), boot, first.now)?;
        let mut rounds = Rounds::begin(&self.feed, store, log, status, (boot, first))?;
        rounds.set_sessions(sessions);
        if is_urgent {
            rounds.hurry();
        }
        if self.status.figures().state == State::Stopped {
            info!(directory = %self.directory.display(), "the journal of swarms is written again");
        }
        self.status.update(|figures| figures.state = State::Writing);
        let mut interval = self.interval;
        while self.wait(interval, stop) {
            rounds.turn(turn())?;
            interval = if rounds.is_pressed() { self.interval / 10 } else { self.interval };
        }
        rounds.finish(turn().now)
    }

    /// Makes room for a whole round within the journal's bound, or fails. Deletes what was written behind the
    /// last complete round, because the round that was to replace that one did not fit. If that one takes too
    /// much by itself, it goes, too: otherwise no round would ever be written again. Returns whether it went.
    fn make_room(&self, store: &Store, pace: Pace) -> io::Result<bool> {
        let mut segments = self.disk.list()?;
        segments.sort_unstable();
        let is_full = |segments: &[(u64, u64)]| {
            let bytes: u64 = segments.iter().map(|(_, bytes)| bytes).sum();
            pace.bytes_max > 0 && bytes + store.walk_bytes() > pace.bytes_max
        };
        if !is_full(&segments) {
            return Ok(false);
        }
        let round_of = |number| open_header(&*self.disk, number).ok().map(|it| it.round_segment);
        let newest = segments.last().and_then(|(number, _)| round_of(*number));
        // From the end, so that an interruption leaves no gap. Segments of the complete round name the one
        // before it.
        while let Some((number, _)) =
            segments.pop_if(|(number, _)| newest.is_some() && round_of(*number) == newest)
        {
            self.disk.remove(number)?;
        }
        if !is_full(&segments) {
            return Ok(false);
        }
        if !has_room_for_two(store.walk_bytes(), pace) {
            return Err(io::Error::other(BoundReached));
        }
        while let Some((number, _)) = segments.pop() {
            self.disk.remove(number)?;
        }
        Ok(true)
    }

    /// Waits for `time`. Returns false if `stop` was set.
    fn wait(&self, time: Duration, stop: &AtomicBool) -> bool {
        let started = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let left = time.saturating_sub(started.elapsed());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(self.interval));
        }
        false
    }
}
