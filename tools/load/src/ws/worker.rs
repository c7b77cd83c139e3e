//! One thread's share of the peers, from their first announce to the end of the run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Options;
use super::sockets::Sockets;
use crate::conduct::Worker;
use crate::found::Found;

/// How long replies to the first answers are waited for: to learn whether there are any.
const PROBE: Duration = Duration::from_millis(300);
/// How long a tracker may be silent while peers join.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for anything meanwhile.
const TICK: Duration = Duration::from_millis(50);

/// How all workers' peers have joined.
#[derive(Debug, Default)]
pub(super) struct Joining {
    joined: AtomicU64,
    /// Nanoseconds until the last one had.
    longest_ns: AtomicU64,
}

/// See the module.
pub(super) struct Ws<'a> {
    sockets: Sockets,
    joining: &'a Joining,
    probes: bool,
}

impl Joining {
    /// How many have, and how many seconds that took.
    pub(super) fn told(&self) -> (u64, f64) {
        let longest = Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed));
        (self.joined.load(Ordering::Relaxed), longest.as_secs_f64())
    }
}

impl<'a> Ws<'a> {
    /// Worker number `number`, whose peers have still to connect.
    pub(super) fn new(options: &Options, number: u32, joining: &'a Joining) -> Result<Self> {
        let probes = options.offers > 0 && options.answers_percent > 0;
        Ok(Self { sockets: Sockets::new(options, number)?, joining, probes })
    }

    /// Goes on for so long, unless told to stop.
    fn run_for(&mut self, duration: Duration, stop: &AtomicBool) -> Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            self.sockets.turn(end.min(Instant::now() + TICK))?;
        }
        Ok(())
    }
}

impl Worker for Ws<'_> {
    /// Opens all connections and lets each peer announce once.
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()> {
        let start = Instant::now();
        let mut progress = (start, 0);
        while !stop.load(Ordering::Relaxed) && self.sockets.settled() < self.sockets.peers() {
            self.sockets.open_some()?;
            self.sockets.turn(Instant::now() + TICK)?;
            let settled = self.sockets.settled();
            if settled > progress.1 {
                progress = (Instant::now(), settled);
            }
            // Those that are silent are no peers; the others go on without them.
            if progress.0.elapsed() > PATIENCE {
                break;
            }
        }
        if self.sockets.joined() == 0 {
            let why = self.sockets.complaint().unwrap_or_else(|| "nothing was answered".into());
            bail!("no peer could join: {why}");
        }
        let taken_ns = start.elapsed().as_nanos() as u64;
        self.joining.longest_ns.fetch_max(taken_ns, Ordering::Relaxed);
        self.joining.joined.fetch_add(self.sockets.joined() as u64, Ordering::Relaxed);
        if self.probes {
            self.sockets.begin_probe();
            self.run_for(PROBE, stop)?;
            self.sockets.end_probe();
        }
        Ok(())
    }

    fn start(&mut self, at: Instant) {
        // What has come before does not count.
        self.sockets.swap_found(&mut Found::default());
        self.sockets.start(at);
    }

    fn turn(&mut self, until: Instant, found: &mut Found) -> Result<()> {
        self.sockets.swap_found(found);
        let done = self.sockets.turn(until);
        self.sockets.swap_found(found);
        done?;
        self.sockets.is_alive()
    }

    fn tidy(&mut self, found: &mut Found) {
        self.sockets.swap_found(found);
        self.sockets.sweep();
        self.sockets.swap_found(found);
    }
}
