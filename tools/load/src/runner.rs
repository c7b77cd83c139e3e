//! The course of a run, whatever the protocol: workers make ready, start together, warm up, are measured,
//! and stop. They hand in what they found in slices of time, so that a run can be watched, can wait until
//! the tracker is steady, and keeps what it has when it is cut short.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{Counters, Usage};

/// How long a run takes, and whom it watches.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// How long it goes on before anything is counted.
    pub warm_up: Duration,
    /// How long, beyond that, it may wait for the tracker to be steady; not at all if none.
    pub steady_within: Option<Duration>,
    /// How long to measure.
    pub duration: Duration,
    /// The tracker's process, if it is on this machine: to tell what it uses.
    pub pid: Option<u32>,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self {
            warm_up: Duration::from_secs(1),
            steady_within: None,
            duration: Duration::from_secs(10),
            pid: None,
        }
    }
}

/// How a run is going: about a second of it.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Whether it counts.
    pub is_measuring: bool,
    /// What came meanwhile.
    pub counters: Counters,
    /// Seconds of that.
    pub seconds: f64,
}

/// A line that says how it is going.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, is_measuring, counters, seconds } = self;
        let rate = counters.all_responses() as f64 / seconds.max(1e-9);
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

/// One thread's part of a load.
pub(crate) trait Worker {
    /// Does what must be done before the start, and gives up when told to stop.
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()>;

    /// All begins at this moment.
    fn start(&mut self, at: Instant);

    /// Does what can be done now, and waits for more to do until `until` at the latest. An error ends
    /// the run.
    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()>;

    /// Does what must be done now and then.
    fn maintain(&mut self, counters: &mut Counters);
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counters: Counters,
    /// Seconds that it is about.
    pub(crate) seconds: f64,
    pub(crate) workers: usize,
    pub(crate) generator: Option<Usage>,
    pub(crate) tracker: Option<Usage>,
    /// The tracker's usage when measuring began.
    pub(crate) tracker_before: Option<Usage>,
    /// Whether the tracker was steady before it was measured, if that was waited for.
    pub(crate) is_steady: Option<bool>,
    /// Why it ended early, if it did.
    pub(crate) ended: Option<String>,
}

/// Slices are no longer than that.
const SLICE_MAX: Duration = Duration::from_millis(250);
/// How soon an interruption is noticed.
const TICK: Duration = Duration::from_millis(50);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// So many slices are compared with as many before them, and may differ by this part.
const STEADY: (usize, f64) = (4, 0.03);

/// What a worker says.
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

/// Runs so many workers, each of which `make` makes in its own thread. An error if they cannot start, or if
/// nothing was measured.
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
                // Nobody listens any more only when all is over.
                Err(error) => drop(sender.send(WorkerEvent::Ready(Err(error)))),
            });
        }
        drop(sender);
        let runner = Runner::new(plan, (slices, length), workers as usize, events);
        let outcome = runner.run(&starts, interrupted, &stop, progress);
        stop.store(true, Ordering::Relaxed);
        // Workers that wait for the start give up.
        drop(starts);
        outcome
    })
}

/// How many slices there are, and how long each is.
fn split_into_slices(duration: Duration) -> (u64, Duration) {
    let slices = duration.as_nanos().div_ceil(SLICE_MAX.as_nanos()).clamp(4, 1 << 30) as u32;
    (slices.into(), (duration / slices).max(Duration::from_millis(1)))
}

/// A worker's thread.
fn run_worker(
    mut worker: impl Worker,
    length: Duration,
    events: &Sender<WorkerEvent>,
    start: &Receiver<Instant>,
    stop: &AtomicBool,
) {
    let prepared = worker.prepare(stop);
    // Nobody listens any more only when all is over.
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

/// Who hears the workers.
struct Runner<'a> {
    plan: &'a RunPlan,
    slices: u64,
    length: Duration,
    workers: usize,
    events: Receiver<WorkerEvent>,
    /// The first slice that counts, once it is known.
    first: Option<u64>,
    is_steady: Option<bool>,
    /// Answers in each slice so far, and from how many workers.
    history: Vec<(u64, usize)>,
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
            first: plan.steady_within.is_none().then_some(first),
            is_steady: None,
            history: Vec::new(),
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
            let mut wake = now + TICK;
            if let Some(first) = self.first {
                let (from, to) = (moment(first), moment(first + self.slices));
                if now >= from && usages.is_none() {
                    usages = Some((self.generator(), self.tracker()?));
                }
                if now >= to {
                    break;
                }
                wake = wake.min(if now < from { from } else { to });
            }
            self.receive_until(wake);
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
        let Self { counters, seconds, workers, is_steady, ended, .. } = self;
        if seconds <= 0.0 {
            bail!("{} before anything was measured", ended.unwrap_or_default());
        }
        Ok(Outcome {
            counters,
            seconds: seconds / workers as f64,
            workers,
            generator: since(generator_before, generator),
            tracker: since(tracker_before, tracker),
            tracker_before,
            is_steady,
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
                Err(RecvTimeoutError::Disconnected) => bail!("a worker has ended"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes in what workers say until then, or until one has said something.
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
                let counts = |first| (first..first + self.slices).contains(&slice.number);
                match self.first {
                    Some(first) if counts(first) => {
                        self.counters.merge(&slice.counters);
                        self.seconds += slice.seconds;
                    }
                    Some(_) => {}
                    None => self.detect_steady(&slice),
                }
            }
        }
    }

    /// Decides whether the tracker is steady by now.
    fn detect_steady(&mut self, slice: &Slice) {
        let number = slice.number as usize;
        if self.history.len() <= number {
            self.history.resize(number + 1, (0, 0));
        }
        let Some((answers, workers)) = self.history.get_mut(number) else { return };
        *answers += slice.counters.all_responses();
        *workers += 1;
        if *workers < self.workers {
            return;
        }
        let past = self.length * (number as u32 + 1);
        let longest = self.plan.warm_up + self.plan.steady_within.unwrap_or_default();
        let is_steady = past >= self.plan.warm_up && is_steady(&self.history);
        if is_steady || past >= longest {
            self.is_steady = Some(is_steady);
            // The next one has begun already.
            self.first = Some(slice.number + 2);
        }
    }

    fn show(&mut self, elapsed: Duration, progress: &mut dyn FnMut(&Progress)) {
        self.interval.elapsed = elapsed;
        self.interval.is_measuring = self
            .first
            .is_some_and(|first| elapsed > self.length * u32::try_from(first).unwrap_or(u32::MAX));
        self.interval.seconds /= self.workers as f64;
        progress(&self.interval);
        (self.interval.counters, self.interval.seconds) = (Counters::default(), 0.0);
    }
}

/// Whether the last slices have about as many answers as those before them, and some at all.
fn is_steady(history: &[(u64, usize)]) -> bool {
    let (count, part) = STEADY;
    let mut sums = history.rchunks(count).filter(|chunk| chunk.len() == count);
    let sum =
        |chunk: &[(u64, usize)]| chunk.iter().map(|(answers, _)| *answers as f64).sum::<f64>();
    match (sums.next().map(sum), sums.next().map(sum)) {
        (Some(now), Some(before)) => now > 0.0 && (now - before).abs() <= before * part,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers so many requests in each turn of a millisecond.
    struct Counter {
        turns: u64,
        answers: fn(u64) -> u64,
        fails_after: Option<u64>,
    }

    impl Worker for Counter {
        fn prepare(&mut self, _: &AtomicBool) -> Result<()> {
            Ok(())
        }

        fn start(&mut self, _: Instant) {}

        fn step(&mut self, _: Instant, counters: &mut Counters) -> Result<()> {
            if self.fails_after.is_some_and(|turns| self.turns >= turns) {
                bail!("it is dead");
            }
            self.turns += 1;
            (0..(self.answers)(self.turns))
                .for_each(|_| counters.count(crate::ResponseKind::Announce));
            thread::sleep(Duration::from_millis(1));
            Ok(())
        }

        fn maintain(&mut self, _: &mut Counters) {}
    }

    fn counter(answers: fn(u64) -> u64) -> Counter {
        Counter { turns: 0, answers, fails_after: None }
    }

    fn plan() -> RunPlan {
        RunPlan {
            warm_up: Duration::from_millis(30),
            duration: Duration::from_millis(500),
            ..RunPlan::default()
        }
    }

    #[test]
    fn only_what_is_measured_counts() {
        let flag = AtomicBool::new(false);
        let make = |number| Ok(counter(if number == 0 { |_| 1 } else { |_| 2 }));
        let outcome = run_workers(&plan(), (2, make), &flag, &mut |_| {}).unwrap();
        assert!(outcome.seconds >= 0.4, "{}", outcome.seconds);
        // At most 3 a millisecond; a busy machine may do less.
        let answers = outcome.counters.all_responses();
        assert!(answers > 0 && answers as f64 <= 3000.0 * outcome.seconds * 1.05, "{answers}");
        assert_eq!((outcome.ended, outcome.is_steady), (None, None));
    }

    #[test]
    fn a_run_cut_short_keeps_what_it_has() {
        let long =
            RunPlan { duration: Duration::from_secs(3600), warm_up: Duration::ZERO, ..plan() };
        let flag = AtomicBool::new(false);
        let dies = |_| Ok(Counter { fails_after: Some(30), ..counter(|_| 1) });
        let outcome = run_workers(&long, (1, dies), &flag, &mut |_| {}).unwrap();
        assert_eq!(outcome.ended.as_deref(), Some("it is dead"));
        assert_eq!(outcome.counters.all_responses(), 30);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                flag.store(true, Ordering::Relaxed);
            });
            run_workers(&long, (1, |_| Ok(counter(|_| 1))), &flag, &mut |_| {}).unwrap()
        });
        assert_eq!(outcome.ended.as_deref(), Some("interrupted"));
        assert!(outcome.counters.all_responses() > 0);
        assert!(run_workers(&long, (1, |_| Ok(counter(|_| 1))), &flag, &mut |_| {}).is_err());
    }

    #[test]
    fn what_cannot_start_is_an_error() {
        struct Broken;
        impl Worker for Broken {
            fn prepare(&mut self, _: &AtomicBool) -> Result<()> {
                bail!("nobody is there")
            }
            fn start(&mut self, _: Instant) {}
            fn step(&mut self, _: Instant, _: &mut Counters) -> Result<()> {
                Ok(())
            }
            fn maintain(&mut self, _: &mut Counters) {}
        }
        let flag = AtomicBool::new(false);
        let error = run_workers(&plan(), (2, |_| Ok(Broken)), &flag, &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "nobody is there");
        let make = |_| -> Result<Broken> { bail!("no sockets") };
        let error = run_workers(&plan(), (2, make), &flag, &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "no sockets");
    }

    #[test]
    fn measuring_begins_when_the_tracker_is_steady() {
        // It gets no slower before a quarter of a second has passed.
        let slow_at_first = |step: u64| if step < 100 { step } else { 100 };
        let patient = RunPlan { steady_within: Some(Duration::from_secs(20)), ..plan() };
        let flag = AtomicBool::new(false);
        let make = |_| Ok(counter(slow_at_first));
        let outcome = run_workers(&patient, (1, make), &flag, &mut |_| {}).unwrap();
        assert!(outcome.is_steady.is_some(), "{outcome:?}");
        let steady = |answers: &[u64]| {
            is_steady(&answers.iter().map(|answers| (*answers, 1)).collect::<Vec<_>>())
        };
        assert!(steady(&[1, 100, 101, 99, 100, 102, 98, 100, 101]));
        assert!(!steady(&[50, 60, 70, 80, 90, 100, 110, 120]));
        assert!(!steady(&[0; 8]) && !steady(&[1; 7]));
    }
}
