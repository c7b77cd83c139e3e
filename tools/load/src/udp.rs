//! Load for UDP trackers (BEP 15): many peers behind a few sockets, in as many threads as asked for.
//!
//! A worker has sockets, each connected to the tracker from a source address, with a connection id of
//! its own and a share of the peers. Requests of the same length leave as one train, answers come in
//! batches. `pending` knows what is under way, `requests` what is asked next, `mover` moves datagrams.

mod datagram_io;
mod hostile;
mod pending;
mod requests;
mod sample;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::report::RunInfo;
use crate::runner::{Progress, RunPlan, run_workers};
use crate::{LoopMode, Mix, Report, TrackerUrl, Workload};

pub use hostile::HostileDatagram;

/// The load.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// The tracker.
    pub url: TrackerUrl,
    /// Torrents and peers.
    pub workload: Workload,
    /// When requests are sent.
    pub loop_mode: LoopMode,
    /// How long it takes.
    pub plan: RunPlan,
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
    pub hostile: Option<(HostileDatagram, u8)>,
    /// Whether many datagrams may go through the network stack as one. The tracker then sees bursts.
    pub offload: bool,
    /// Whether, behind it all, one torrent's peers are asked for over and over to see how evenly they are
    /// given out.
    pub samples: bool,
}

impl UdpOptions {
    /// One worker, 16 sockets, 512 requests under way.
    pub fn of(url: TrackerUrl) -> Self {
        Self {
            url,
            workload: Workload::default(),
            loop_mode: LoopMode::Closed { outstanding: 512 },
            plan: RunPlan::default(),
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
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Puts the tracker under the load and tells what came of it. It stops early, and keeps what it has, when
/// `interrupted` is set.
pub fn run(
    options: &UdpOptions,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    let make = |number| worker::Udp::new(options, number);
    let workers = (options.workers.max(1), make);
    let outcome = run_workers(&options.plan, workers, interrupted, progress)
        .with_context(|| format!("cannot load {}", options.url))?;
    let info = RunInfo {
        protocol: "udp",
        url: options.url.to_string(),
        seed: options.workload.seed,
        loop_mode: options.loop_mode,
        pid: options.plan.pid,
        hostile: options.hostile.map(|(profile, _)| profile.to_string()),
    };
    let mut report = Report::new(info, outcome);
    if options.samples && report.ended.is_none() {
        report.checks.sample = sample::sample(options);
    }
    Ok(report)
}
