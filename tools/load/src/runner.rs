//! Runs the workers of a load test, whatever the protocol: prepare, start together, warm up,
//! measure and stop. Workers report counters in slices of time, so that a run can show progress, and keep its results
//! when it is cut short.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{Counters, Usage};

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

/// The raw results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counters: Counters,
    /// Measured seconds.
    pub(crate) seconds: f64,
    pub(crate) workers: usize,
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

/// Maximum length of a slice.
const SLICE_MAX: Duration = Duration::from_millis(250);
/// Maximum delay until an interrupt is noticed.
const TICK: Duration = Duration::from_millis(50);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// An event from a worker's thread.
enum WorkerEvent {
    Ready(Result<()>),
    Slice(Box<Slice>),
    Ended(anyhow::Error),
}

struct Slice {
    number: u64,
    seconds: f64,
    counters: Counters,
}

/// Runs workers, each created by `make` in its own thread.
///
/// # Errors
///
/// Fails if a worker cannot be created or prepared, or if nothing was measured.
pub(crate) fn run_workers<W: Worker>(
    plan: &RunPlan,
    (workers, make): (u32, impl Fn(u32) -> Result<W> + Sync),
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome> {
    let (slices, length) = split_into_slices(plan.duration);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let mut starts = Vec::new();
        for number in 0..workers {
            let (start, wait) = mpsc::channel();
            starts.push(start);
            let (sender, stop, make) = (sender.clone(), &stop, &make);
            scope.spawn(move || match make(number) {
                Ok(worker) => run_worker(worker, length, &sender, &wait, stop),
                // The receiver is gone only when the run is over.
                Err(error) => drop(sender.send(WorkerEvent::Ready(Err(error)))),
            });
        }
        drop(sender);
        let runner = Runner::new(plan, (slices, length), workers as usize, events);
        let outcome = runner.run(&starts, interrupted, &stop, progress);
        stop.store(true, Ordering::Relaxed);
        // Workers that still wait for the start give up.
        drop(starts);
        outcome
    })
}

/// Splits a duration into slices. Returns their number and length.
fn split_into_slices(duration: Duration) -> (u64, Duration) {
    let slices = duration.as_nanos().div_ceil(SLICE_MAX.as_nanos()).clamp(4, 1 << 30) as u32;
    (slices.into(), (duration / slices).max(Duration::from_millis(1)))
}

/// The body of a worker's thread.
fn run_worker(
    mut worker: impl Worker,
    length: Duration,
    events: &Sender<WorkerEvent>,
    start: &Receiver<Instant>,
    stop: &AtomicBool,
) {
    let prepared = worker.prepare(stop);
    // The receiver is gone only when the run is over.
    let _ = events.send(WorkerEvent::Ready(prepared));
    let Ok(start) = start.recv() else { return };
    worker.start(start);
    let (mut number, mut from) = (0, start);
    let mut counters = Counters::default();
    loop {
        let until = start + length * (number + 1);
        let now = Instant::now();
        let is_over = stop.load(Ordering::Relaxed);
        let mut ended = None;
        if now < until && !is_over {
            match worker.step(until, &mut counters) {
                Ok(()) => continue,
                Err(error) => ended = Some(error),
            }
        }
        let seconds = now.saturating_duration_since(from).as_secs_f64();
        let slice =
            Slice { number: number.into(), seconds, counters: std::mem::take(&mut counters) };
        let _ = events.send(WorkerEvent::Slice(Box::new(slice)));
        if let Some(error) = ended {
            let _ = events.send(WorkerEvent::Ended(error));
            return;
        }
        if is_over {
            return;
        }
        from = now;
        number = (now.duration_since(start).as_nanos() / length.as_nanos()) as u32;
        worker.maintain(&mut counters);
    }
}

/// Collects the workers' events and controls the run.
struct Runner<'a> {
    plan: &'a RunPlan,
    slices: u64,
    length: Duration,
    workers: usize,
    events: Receiver<WorkerEvent>,
    /// The first measured slice.
    first: u64,
    counters: Counters,
    seconds: f64,
    ended: Option<String>,
    interval: Progress,
}

impl<'a> Runner<'a> {
    fn new(
        plan: &'a RunPlan,
        (slices, length): (u64, Duration),
        workers: usize,
        events: Receiver<WorkerEvent>,
    ) -> Self {
        let interval = Progress {
            elapsed: Duration::ZERO,
            is_measuring: false,
            counters: Counters::default(),
            seconds: 0.0,
        };
        let first = (plan.warm_up.as_nanos().div_ceil(length.as_nanos())) as u64;
        Self {
            plan,
            slices,
            length,
            workers,
            events,
            first,
            counters: Counters::default(),
            seconds: 0.0,
            ended: None,
            interval,
        }
    }

    fn run(
        mut self,
        starts: &[Sender<Instant>],
        interrupted: &AtomicBool,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome> {
        self.wait_until_ready(interrupted)?;
        let start = Instant::now() + Duration::from_millis(1);
        for worker in starts {
            let _ = worker.send(start);
        }
        let mut usages = None;
        let mut latest = None;
        let mut shown = start;
        while self.ended.is_none() {
            if interrupted.load(Ordering::Relaxed) {
                self.ended = Some("interrupted".into());
            }
            let now = Instant::now();
            let moment =
                |slice: u64| start + self.length * u32::try_from(slice).unwrap_or(u32::MAX);
            let (from, to) = (moment(self.first), moment(self.first + self.slices));
            if now >= from && usages.is_none() {
                usages = Some((self.generator(), self.tracker()?));
            }
            if now >= to {
                break;
            }
            self.receive_until((now + TICK).min(if now < from { from } else { to }));
            if now - shown >= PROGRESS_EVERY {
                shown = now;
                latest = self.plan.pid.and_then(|pid| Usage::times(pid).ok()).or(latest);
                self.show(now - start, progress);
            }
        }
        let generator = self.generator();
        let tracker = self.tracker().ok().flatten().or(latest);
        stop.store(true, Ordering::Relaxed);
        while let Ok(event) = self.events.recv() {
            self.handle(event);
        }
        let since = |before: Option<Usage>, now: Option<Usage>| Some(now?.since(&before?));
        let (generator_before, tracker_before) = usages.unwrap_or_default();
        let Self { counters, seconds, workers, ended, .. } = self;
        if seconds <= 0.0 {
            bail!("{} before anything was measured", ended.unwrap_or_default());
        }
        Ok(Outcome {
            counters,
            seconds: seconds / workers as f64,
            workers,
            generator: since(generator_before, generator),
            tracker: since(tracker_before, tracker),
            ended,
        })
    }

    fn generator(&self) -> Option<Usage> {
        Usage::of_one(std::process::id()).ok()
    }

    fn tracker(&self) -> Result<Option<Usage>> {
        self.plan.pid.map(Usage::of).transpose()
    }

    fn wait_until_ready(&self, interrupted: &AtomicBool) -> Result<()> {
        let mut ready = 0;
        while ready < self.workers {
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted before anything was measured");
            }
            match self.events.recv_timeout(TICK) {
                Ok(WorkerEvent::Ready(prepared)) => {
                    prepared?;
                    ready += 1;
                }
                Err(RecvTimeoutError::Disconnected) => bail!("a worker thread panicked"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles one event, or waits until `until`.
    fn receive_until(&mut self, until: Instant) {
        let wait = until.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(wait) {
            Ok(event) => self.handle(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.ended.get_or_insert_with(|| "all workers have ended".into());
            }
        }
    }

    fn handle(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Ready(_) => {}
            WorkerEvent::Ended(error) => {
                self.ended.get_or_insert_with(|| format!("{error:#}"));
            }
            WorkerEvent::Slice(slice) => {
                self.interval.counters.merge(&slice.counters);
                self.interval.seconds += slice.seconds;
                if (self.first..self.first + self.slices).contains(&slice.number) {
                    self.counters.merge(&slice.counters);
                    self.seconds += slice.seconds;
                }
            }
        }
    }

    fn show(&mut self, elapsed: Duration, progress: &mut dyn FnMut(&Progress)) {
        self.interval.elapsed = elapsed;
        self.interval.is_measuring =
            elapsed > self.length * u32::try_from(self.first).unwrap_or(u32::MAX);
        self.interval.seconds /= self.workers as f64;
        progress(&self.interval);
        (self.interval.counters, self.interval.seconds) = (Counters::default(), 0.0);
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
            thread::sleep(Duration::from_millis(1));
            Ok(())
        }

        fn maintain(&mut self, _: &mut Counters) {}
    }

    #[test]
    fn warm_up_is_not_counted() {
        let (warm_up, duration) = (Duration::from_millis(300), Duration::from_millis(500));
        let plan = RunPlan { warm_up, duration, pid: None };
        let flag = AtomicBool::new(false);
        let outcome = run_workers(&plan, (2, |_| Ok(Counter)), &flag, &mut |_| {}).unwrap();
        assert!(outcome.seconds >= 0.4, "{}", outcome.seconds);
        // At most 2 a millisecond; a busy machine may do less.
        let answers = outcome.counters.responses.all();
        assert!(answers > 0 && answers as f64 <= 2000.0 * outcome.seconds * 1.05, "{answers}");
    }
}
