//! One thread's share of the peers, from joining to the end of the run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::WsOptions;
use super::sockets::Sockets;
use crate::counters::Counters;
use crate::runner::{SILENCE_MAX, Worker};

/// Duration of the probe for acknowledgements of answers.
const PROBE: Duration = Duration::from_millis(300);
/// Maximum wait per step while peers join.
const TICK: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Ws<'a> {
    sockets: Sockets,
    /// Peers of all workers that have joined.
    joined: &'a AtomicU64,
    probe: bool,
}

impl<'a> Ws<'a> {
    /// Creates worker number `number`, whose peers are not yet connected.
    pub(super) fn new(options: &WsOptions, number: u32, joined: &'a AtomicU64) -> Result<Self> {
        let probe = options.offers > 0;
        Ok(Self { sockets: Sockets::new(options, number)?, joined, probe })
    }

    /// Handles events for a duration, unless told to stop.
    fn run_for(&mut self, duration: Duration, stop: &AtomicBool) -> Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            self.sockets.step(end.min(Instant::now() + TICK))?;
        }
        Ok(())
    }
}

impl Worker for Ws<'_> {
    /// Opens all connections and makes each peer announce once.
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut progress = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) && self.sockets.decided() < self.sockets.connections() {
            self.sockets.open_some()?;
            self.sockets.step(Instant::now() + TICK)?;
            let reached = self.sockets.join_progress();
            if reached > progress.1 {
                progress = (Instant::now(), reached);
            }
            // Peers without a response are left out; the others continue.
            if progress.0.elapsed() > SILENCE_MAX {
                break;
            }
        }
        if self.sockets.joined() == 0 {
            let why =
                self.sockets.most_frequent_error().unwrap_or_else(|| "nothing was answered".into());
            bail!("no peer could join: {why}");
        }
        self.joined.fetch_add(self.sockets.joined() as u64, Ordering::Relaxed);
        if self.probe {
            self.sockets.start_probe();
            self.run_for(PROBE, stop)?;
            self.sockets.end_probe();
        }
        Ok(())
    }

    fn start(&mut self, at: Instant) {
        // Counts from before the start are discarded.
        self.sockets.swap_counters(&mut Counters::default());
        self.sockets.start(at);
    }

    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()> {
        self.sockets.swap_counters(counters);
        let done = self.sockets.step(until);
        self.sockets.swap_counters(counters);
        done?;
        self.sockets.check_alive()
    }

    fn maintain(&mut self, counters: &mut Counters) {
        self.sockets.swap_counters(counters);
        self.sockets.sweep();
        self.sockets.swap_counters(counters);
    }
}
