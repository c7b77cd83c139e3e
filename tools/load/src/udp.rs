//! Load for UDP trackers (BEP 15): many peers behind a few sockets, in as many threads as asked for.
//!
//! A worker has sockets, each connected to the tracker from a source address, with a connection id of
//! its own and a share of the peers. Requests of the same length leave as one train, answers come in
//! batches. `flights` knows what is under way, `requests` what is asked next, `mover` moves datagrams.

mod flights;
mod hostile;
mod mover;
mod requests;
mod sample;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::conduct::{Plan, Progress, conduct};
use crate::report::About;
use crate::{Habits, Mix, Pace, Report, Url};

pub use hostile::Hostile;

/// The load.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tracker.
    pub url: Url,
    /// Torrents and peers.
    pub habits: Habits,
    /// When requests are sent.
    pub pace: Pace,
    /// How long it takes.
    pub plan: Plan,
    /// Which requests.
    pub mix: Mix,
    /// Torrents in each scrape: 1 to 70.
    pub scrape_torrents: u32,
    /// Threads.
    pub workers: u32,
    /// Sockets of each thread.
    pub sockets: u32,
    /// Addresses that the sockets are bound to in turn; the system's choice if there are none.
    pub sources: Vec<IpAddr>,
    /// After how long a request is lost.
    pub timeout: Duration,
    /// Of so many announces' answers one is looked at closely.
    pub check_every: u32,
    /// Requests of the hostile kind, and how many of a hundred they are.
    pub hostile: Option<(Hostile, u8)>,
    /// Whether many datagrams may go through the network stack as one. The tracker then sees bursts.
    pub offload: bool,
    /// Whether, behind it all, one torrent's peers are asked for over and over to see how evenly they are
    /// given out.
    pub samples: bool,
}

impl Options {
    /// One worker, 16 sockets, 512 requests under way.
    pub fn of(url: Url) -> Self {
        Self {
            url,
            habits: Habits::default(),
            pace: Pace::Closed { outstanding: 512 },
            plan: Plan::default(),
            mix: Mix { connect: 1, announce: 100, scrape: 1 },
            scrape_torrents: 10,
            workers: 1,
            sockets: 16,
            sources: Vec::new(),
            timeout: Duration::from_secs(1),
            check_every: 16,
            hostile: None,
            offload: true,
            samples: true,
        }
    }
}

/// How long a tracker may be silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Puts the tracker under the load and tells what came of it. It stops early, and keeps what it has, when
/// `interrupted` is set.
pub fn run(
    options: &Options,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    let make = |number| worker::Udp::new(options, number);
    let workers = (options.workers.max(1), make);
    let outcome = conduct(&options.plan, workers, interrupted, progress)
        .with_context(|| format!("cannot load {}", options.url))?;
    let about = About {
        protocol: "udp",
        url: options.url.to_string(),
        seed: options.habits.seed,
        pace: options.pace,
        pid: options.plan.pid,
        hostile: options.hostile.map(|(profile, _)| profile.to_string()),
    };
    let mut report = Report::new(about, outcome);
    if options.samples && report.ended.is_none() {
        report.checks.sample = sample::sample(options);
    }
    Ok(report)
}
