//! Runs the workers of a load test, whatever the protocol: prepare, start together, warm up,
//! measure and stop. Workers add counters in slices of time, so that a run can show progress, and keep its results
//! when it is cut short.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Counters, LoopMode, Report, TrackerUrl, Usage, Workload};

/// The durations of a run, and the process to observe.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Load before measuring.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// The tracker's process on this machine, to measure its resource usage.
    pub pid: Option<u32>,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self { warm_up: Duration::from_secs(1), duration: Duration::from_secs(10), pid: None }
    }
}

/// Progress of a run: about a second of it.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// True if the run is past its warm-up.
    pub is_measuring: bool,
    /// Counters since the last progress.
    pub counters: Counters,
    /// Seconds that `counters` cover.
    pub seconds: f64,
}

/// Formats a progress line.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, is_measuring, counters, seconds } = self;
        let rate = counters.responses.all() as f64 / seconds.max(1e-9);
        let part = |part| counters.latencies.quantile(part).unwrap_or_default().as_secs_f64() * 1e3;
        let (half, most) = (part(0.5), part(0.99));
        let errors: u64 = counters.errors.values().sum();
        let stage = if *is_measuring { "" } else { " (warming up)" };
        write!(
            f,
            "{:4.0} s  {rate:9.0} responses/s  p50 {half:.3} ms  p99 {most:.3} ms  {} lost  {errors} errors{stage}",
            elapsed.as_secs_f64(),
            counters.lost
        )
    }
}

/// One thread of a load.
pub(crate) trait Worker {
    /// Prepares for the start, such as getting connection ids. Returns early if `stop` is set.
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()>;

    /// Sets the moment at which the load starts.
    fn start(&mut self, at: Instant);

    /// Does the pending work and waits for more until `until` at the latest. An error ends the run.
    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()>;

    /// Does periodic work, such as expiring requests; called once a slice.
    fn maintain(&mut self, counters: &mut Counters);
}

/// Options of a load.
pub trait Tester {
    /// Torrents and peers.
    fn workload(&self) -> &Workload;

    /// Runs the load and returns its report. Ends early and keeps its results when `interrupted` is set.
    ///
    /// # Errors
    ///
    /// Fails if the run cannot start or nothing was measured.
    fn run(&self, interrupted: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Report>;
}

/// A load to run.
pub(crate) struct Load<'a> {
    pub(crate) protocol: &'static str,
    pub(crate) url: &'a TrackerUrl,
    pub(crate) seed: u64,
    pub(crate) loop_mode: LoopMode,
    pub(crate) plan: &'a RunPlan,
    /// Threads.
    pub(crate) workers: u32,
}

/// The raw results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counters: Counters,
    /// Measured seconds.
    pub(crate) seconds: f64,
    pub(crate) generator: Option<Usage>,
    pub(crate) tracker: Option<Usage>,
    /// Why the run ended early, if it did.
    pub(crate) ended: Option<String>,
}

/// The longest that a tracker may be silent before the run ends.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The longest that it may be silent if its machine refuses connections or datagrams.
const REFUSED_SILENCE_MAX: Duration = Duration::from_secs(1);

/// Detects a silent tracker.
#[derive(Default)]
pub(crate) struct Silence {
    /// Since when requests are outstanding without any response.
    pub(crate) since: Option<Instant>,
    pub(crate) is_refused: bool,
}

impl Silence {
    /// Fails if the tracker has been silent for too long.
    pub(crate) fn check(&self) -> Result<()> {
        let timeout = if self.is_refused { REFUSED_SILENCE_MAX } else { SILENCE_MAX };
        match self.since {
            Some(since) if since.elapsed() > timeout => {
                let why = if self.is_refused { ": connection refused" } else { "" };
                bail!("the tracker has not answered for {timeout:?}{why}")
            }
            _ => Ok(()),
        }
    }
}

/// Length of a slice.
const SLICE: Duration = Duration::from_millis(250);
/// Maximum delay until an interrupt is noticed.
const TICK: Duration = Duration::from_millis(50);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Time for all workers to learn when the load starts.
const START_AFTER: Duration = Duration::from_millis(5);

/// Runs a load, whose workers `make` creates, each in its own thread.
///
/// # Errors
///
/// Fails if a worker cannot be created or prepared, or if nothing was measured.
pub(crate) fn run<W: Worker>(
    load: &Load<'_>,
    make: impl Fn(u32) -> Result<W> + Sync,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    let run = Run {
        load,
        stop: AtomicBool::new(false),
        times: OnceLock::new(),
        totals: Mutex::default(),
    };
    let (run, make) = (&run, &make);
    let led = thread::scope(|scope| {
        let (sender, prepared) = mpsc::channel();
        for number in 0..load.workers {
            let sender = sender.clone();
            scope.spawn(move || {
                let worker = make(number).and_then(|mut worker| {
                    worker.prepare(&run.stop)?;
                    Ok(worker)
                });
                let (is_prepared, worker) = match worker {
                    Ok(worker) => (Ok(()), Some(worker)),
                    Err(error) => (Err(error), None),
                };
                // The receiver is gone only when the run is over.
                let _ = sender.send(is_prepared);
                worker.into_iter().for_each(|worker| run.work(worker));
            });
        }
        drop(sender);
        let led = run.lead(&prepared, interrupted, progress);
        run.stop.store(true, Ordering::Relaxed);
        led
    });
    let (generator, tracker) = led.with_context(|| format!("cannot load {}", load.url))?;
    let totals = std::mem::take(&mut *run.totals());
    let seconds = totals.worker_seconds / f64::from(load.workers);
    if seconds <= 0.0 {
        bail!("{}: {} before anything was measured", load.url, totals.ended.unwrap_or_default());
    }
    let (counters, ended) = (totals.counters, totals.ended);
    Ok(Report::new(load, Outcome { counters, seconds, generator, tracker, ended }))
}

/// A run under way.
struct Run<'a> {
    load: &'a Load<'a>,
    stop: AtomicBool,
    times: OnceLock<Times>,
    totals: Mutex<Totals>,
}

/// The moments of a run.
#[derive(Clone, Copy)]
struct Times {
    start: Instant,
    /// The end of the warm-up.
    measured: Instant,
    end: Instant,
}

/// The sums over all workers.
#[derive(Default)]
struct Totals {
    counters: Counters,
    worker_seconds: f64,
    /// The same since the last progress, warm-up or not.
    recent: Counters,
    recent_worker_seconds: f64,
    ended: Option<String>,
}

impl Run<'_> {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn end(&self, why: String) {
        self.totals().ended.get_or_insert(why);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The body of a worker's thread.
    fn work(&self, mut worker: impl Worker) {
        let times = loop {
            match self.times.get() {
                Some(times) => break *times,
                None if self.is_stopped() => return,
                None => sleep(Duration::from_millis(1)),
            }
        };
        worker.start(times.start);
        let (mut from, mut counters) = (times.start, Counters::default());
        loop {
            let is_measured = from >= times.measured;
            let boundary = if is_measured { times.end } else { times.measured };
            let until = boundary.min(from + SLICE);
            let mut done = Ok(());
            while done.is_ok() && Instant::now() < until && !self.is_stopped() {
                done = worker.step(until, &mut counters);
            }
            let now = Instant::now();
            self.add(&counters, now.saturating_duration_since(from), is_measured);
            if let Err(error) = done {
                return self.end(format!("{error:#}"));
            }
            if now >= times.end || self.is_stopped() {
                return;
            }
            (from, counters) = (now, Counters::default());
            worker.maintain(&mut counters);
        }
    }

    /// Adds a slice.
    fn add(&self, counters: &Counters, time: Duration, is_measured: bool) {
        let mut totals = self.totals();
        totals.recent.merge(counters);
        totals.recent_worker_seconds += time.as_secs_f64();
        if is_measured {
            totals.counters.merge(counters);
            totals.worker_seconds += time.as_secs_f64();
        }
    }

    /// Controls the run. Returns what the generator and the tracker have used while it was measured.
    fn lead(
        &self,
        prepared: &Receiver<Result<()>>,
        interrupted: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Option<Usage>, Option<Usage>)> {
        let plan = self.load.plan;
        self.wait_until_prepared(prepared, interrupted)?;
        let start = Instant::now() + START_AFTER;
        let measured = start + plan.warm_up;
        let end = measured + plan.duration;
        let _ = self.times.set(Times { start, measured, end });
        let generator = || Usage::of_one(std::process::id()).ok();
        let tracker = || plan.pid.map(Usage::of).transpose();
        let (mut before, mut latest, mut shown) = (None, None, start);
        while !self.is_stopped() {
            let now = Instant::now();
            if now >= measured && before.is_none() {
                before = Some((generator(), tracker()?));
            }
            if now >= end {
                break;
            }
            if interrupted.load(Ordering::Relaxed) {
                self.end("interrupted".into());
            }
            if now.saturating_duration_since(shown) >= PROGRESS_EVERY {
                shown = now;
                latest = plan.pid.and_then(|pid| Usage::times(pid).ok()).or(latest);
                self.show(now - start, now >= measured, progress);
            }
            let boundary = if now < measured { measured } else { end };
            sleep(TICK.min(boundary - now));
        }
        let (generator_before, tracker_before) = before.unwrap_or_default();
        let since = |before: Option<Usage>, now: Option<Usage>| Some(now?.since(&before?));
        let tracker = tracker().ok().flatten().or(latest);
        Ok((since(generator_before, generator()), since(tracker_before, tracker)))
    }

    fn wait_until_prepared(
        &self,
        prepared: &Receiver<Result<()>>,
        interrupted: &AtomicBool,
    ) -> Result<()> {
        let mut left = self.load.workers;
        while left > 0 {
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted before anything was measured");
            }
            match prepared.recv_timeout(TICK) {
                Ok(is_prepared) => {
                    is_prepared?;
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("a worker thread panicked"),
            }
        }
        Ok(())
    }

    fn show(&self, elapsed: Duration, is_measuring: bool, progress: &mut dyn FnMut(&Progress)) {
        let mut totals = self.totals();
        let counters = std::mem::take(&mut totals.recent);
        let seconds = std::mem::take(&mut totals.recent_worker_seconds);
        drop(totals);
        let seconds = seconds / f64::from(self.load.workers);
        progress(&Progress { elapsed, is_measuring, counters, seconds });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a response in each millisecond.
    struct Counter;

    impl Worker for Counter {
        fn prepare(&mut self, _: &AtomicBool) -> Result<()> {
            Ok(())
        }

        fn start(&mut self, _: Instant) {}

        fn step(&mut self, _: Instant, counters: &mut Counters) -> Result<()> {
            counters.responses.announce += 1;
            sleep(Duration::from_millis(1));
            Ok(())
        }

        fn maintain(&mut self, _: &mut Counters) {}
    }

    #[test]
    fn warm_up_is_not_counted() {
        let (warm_up, duration) = (Duration::from_millis(300), Duration::from_millis(500));
        let load = Load {
            protocol: "udp",
            url: &TrackerUrl::udp("udp://127.0.0.1:1").unwrap(),
            seed: 1,
            loop_mode: LoopMode::Closed { outstanding: 1 },
            plan: &RunPlan { warm_up, duration, pid: None },
            workers: 2,
        };
        let flag = AtomicBool::new(false);
        let report = run(&load, |_| Ok(Counter), &flag, &mut |_| {}).unwrap();
        assert!(report.seconds >= 0.4, "{report}");
        // At most 2 a millisecond; a busy machine may do less.
        assert!(report.responses_per_s > 0.0 && report.responses_per_s <= 2100.0, "{report}");
    }
}
