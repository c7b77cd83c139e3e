//! Load for WebTorrent trackers: each connection is a peer of one torrent.
//!
//! A busy peer announces with offers, answers the offers that it is given, and announces again as
//! soon as it has its reply: one request is under way on each connection at any time. An idle peer
//! announces again when the tracker said it should, and answers pings. All that comes is counted.
//!
//! [`run`] goes through the stages; `peer` is one peer without I/O, `sockets` gives many of them
//! their connections, `incoming` tells messages apart.

mod crowd;
mod incoming;
mod peer;
mod report;
mod sockets;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Url, Usage};
use sockets::Sockets;

pub use report::{Memory, Report, Tally};

/// The load.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tracker.
    pub url: Url,
    /// How many peers, each on a connection of its own.
    pub connections: usize,
    /// How many torrents they are in, in turn; at least 1.
    pub torrents: usize,
    /// Offers in each announce but a peer's first, which has none; at most 64.
    pub offers: usize,
    /// Bytes of an offer's or an answer's session description, or a few more.
    pub offer_bytes: usize,
    /// Of a hundred offers received, how many are answered.
    pub answers_percent: u8,
    /// Of a hundred requests, how many are scrapes.
    pub scrapes_percent: u8,
    /// When peers announce again.
    pub pace: Pace,
    /// How long to measure.
    pub duration: Duration,
    /// Runs with the same seed have the same torrents and names.
    pub seed: u64,
    /// The tracker's process, if it is on this machine: to tell what it uses.
    pub pid: Option<u32>,
}

/// When peers announce again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as the last announce was answered.
    Busy {
        /// How long that goes on before anything is counted.
        warm_up: Duration,
    },
    /// When the tracker's interval is over.
    Idle {
        /// How often each peer sends a ping, if it does.
        ping_every: Option<Duration>,
    },
}

impl Options {
    /// What aquatic's load tester does, too: 128 busy peers with 10 offers each.
    pub fn busy(url: Url) -> Self {
        Self {
            url,
            connections: 128,
            torrents: 4,
            offers: 10,
            offer_bytes: 1000,
            answers_percent: 100,
            scrapes_percent: 0,
            pace: Pace::Busy { warm_up: Duration::from_secs(1) },
            duration: Duration::from_secs(10),
            seed: 1,
            pid: None,
        }
    }

    /// What pages that were left open do: 10,000 idle peers, ten to a torrent, who have found whom
    /// they need, for long enough that each announces again.
    pub fn idle(url: Url) -> Self {
        Self {
            connections: 10_000,
            torrents: 1_000,
            offers: 0,
            pace: Pace::Idle { ping_every: Some(Duration::from_secs(30)) },
            duration: Duration::from_secs(150),
            ..Self::busy(url)
        }
    }
}

/// How long a tracker may take for an answer before it is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long replies to the first answers are waited for: to learn whether there are any.
const PROBE: Duration = Duration::from_millis(300);
/// How long a tracker gets to put things in order before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(1);
/// The longest wait for anything, so that nothing is late by more.
const TICK: Duration = Duration::from_millis(50);

/// Puts the tracker under the load and tells what came of it. `stage` hears what happens meanwhile.
pub fn run(options: &Options, stage: &mut dyn FnMut(&str)) -> Result<Report> {
    let usage = || options.pid.map(Usage::of).transpose();
    let before = usage()?;
    let mut sockets = Sockets::new(options)?;
    let open_s = join(&mut sockets, options)?;
    stage(&format!("{} joined in {open_s:.2} s", sockets.joined()));
    sockets.run_for(SETTLE)?;
    let joined = usage()?;
    if options.offers > 0 {
        sockets.probe()?;
    }
    if let Pace::Busy { warm_up } = options.pace {
        sockets.start();
        sockets.run_for(warm_up)?;
    }
    stage("measuring");
    sockets.forget_figures();
    let (start, own, tracker) = (Instant::now(), Usage::of(std::process::id()).ok(), usage()?);
    sockets.run_for(options.duration)?;
    let seconds = start.elapsed().as_secs_f64();
    let since = |before: Option<Usage>, now: Option<Usage>| Some(now?.since(&before?));
    let at_end = usage().context("the tracker is gone")?;
    let resident = |usage: Option<Usage>| usage.map(|usage| usage.resident_bytes);
    Ok(Report {
        joined: sockets.joined(),
        open_s,
        seconds,
        tally: sockets.tally(),
        latencies: sockets.latencies().clone(),
        own: since(own, Usage::of(std::process::id()).ok()),
        tracker: since(tracker, at_end),
        memory: Option::zip(resident(before), Option::zip(resident(joined), resident(at_end)))
            .map(|(before, (joined, at_end))| Memory { before, joined, at_end }),
        complaint: sockets.complaint().map(str::to_owned),
    })
}

/// Opens all connections and lets each peer announce once: seconds that it took.
fn join(sockets: &mut Sockets, options: &Options) -> Result<f64> {
    let start = Instant::now();
    let mut progress = (start, 0);
    loop {
        sockets.open_some()?;
        sockets.turn(TICK)?;
        let settled = sockets.settled();
        if settled >= options.connections {
            break;
        }
        if settled > progress.1 {
            progress = (Instant::now(), settled);
        }
        // Those that are silent are no peers; the others go on without them.
        if progress.0.elapsed() > PATIENCE {
            break;
        }
    }
    if sockets.joined() == 0 {
        let why = sockets.complaint().unwrap_or("nothing was answered");
        bail!("no peer could join at {}: {why}", options.url);
    }
    Ok(start.elapsed().as_secs_f64())
}
