//! Load for WebTorrent trackers: each connection is a peer of one torrent.
//!
//! A busy peer announces with offers, answers the offers that it is given, and announces again as
//! soon as it has its reply, or when its turn has come in an open loop: one request is under way on each
//! connection at any time. An idle peer announces again when the tracker said it should, and answers pings.
//! All that comes is counted.
//!
//! `peer` is one peer without I/O, `sockets` gives many of them their connections, `worker` leads a
//! thread's share of them through the run, `incoming` tells messages apart.

mod incoming;
mod peer;
mod shared;
mod sockets;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::report::RunInfo;
use crate::runner::{Progress, RunPlan, run_workers};
use crate::{
    HostileConnection, LoopMode, Mix, Report, Spread, TrackerUrl, Usage, WebTorrentReport, Workload,
};

/// The load.
#[derive(Clone, Debug)]
pub struct WsOptions {
    /// The tracker.
    pub url: TrackerUrl,
    /// Torrents and peers; each peer has a connection.
    pub workload: Workload,
    /// When peers announce again.
    pub timing: AnnounceTiming,
    /// How long it takes.
    pub plan: RunPlan,
    /// Which requests; nothing connects.
    pub mix: Mix,
    /// Torrents in each scrape: at least 1.
    pub scrape_torrents: u32,
    /// Threads.
    pub workers: u32,
    /// Offers in each announce but a peer's first, which has none; at most 64.
    pub offers: usize,
    /// Bytes of an offer's or an answer's session description, or a few more.
    pub offer_bytes: usize,
    /// Of a hundred offers received, how many are answered.
    pub answers_percent: u8,
    /// After so many answers to its requests a peer's connection is closed and another one opened.
    pub requests_per_connection: Option<u32>,
    /// Addresses that the connections come from in turn; the system's choice if there are none.
    pub sources: Vec<IpAddr>,
    /// After how long a request is lost.
    pub timeout: Duration,
    /// Of so many offers one is looked at closely.
    pub check_every: u32,
    /// Hostile connections besides, and how many, all workers together.
    pub hostile: Option<(HostileConnection, u32)>,
}

/// When peers announce again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnnounceTiming {
    /// As soon as the last announce was answered.
    Busy,
    /// So many times a second, all peers together, as long as there is one that waits for nothing.
    Paced(f64),
    /// When the tracker's interval is over.
    Idle {
        /// How often each peer sends a ping, if it does.
        ping_every: Option<Duration>,
    },
}

impl WsOptions {
    /// What aquatic's load tester does, too: 128 busy peers with 10 offers each, in 4 torrents.
    pub fn busy(url: TrackerUrl) -> Self {
        Self {
            url,
            workload: Workload {
                torrents: 4,
                peers: 128,
                spread: Spread::Uniform,
                seeders_percent: 25,
                ..Workload::default()
            },
            timing: AnnounceTiming::Busy,
            plan: RunPlan::default(),
            mix: Mix { connect: 0, announce: 1, scrape: 0 },
            scrape_torrents: 5,
            workers: 1,
            offers: 10,
            offer_bytes: 1000,
            answers_percent: 100,
            requests_per_connection: None,
            sources: Vec::new(),
            timeout: Duration::from_secs(5),
            check_every: 16,
            hostile: None,
        }
    }

    /// What pages that were left open do: 10,000 idle peers, ten to a torrent, who have found whom
    /// they need, for long enough that each announces again.
    pub fn idle(url: TrackerUrl) -> Self {
        let busy = Self::busy(url);
        Self {
            workload: Workload { torrents: 1_000, peers: 10_000, ..busy.workload },
            offers: 0,
            timing: AnnounceTiming::Idle { ping_every: Some(Duration::from_secs(30)) },
            // A tracker gets a second to put things in order before its memory is looked at.
            plan: RunPlan { duration: Duration::from_secs(150), ..busy.plan },
            ..busy
        }
    }

    fn loop_mode(&self) -> LoopMode {
        match self.timing {
            AnnounceTiming::Paced(rate) => LoopMode::Open { rate },
            AnnounceTiming::Busy | AnnounceTiming::Idle { .. } => {
                LoopMode::Closed { outstanding: self.workload.peers }
            }
        }
    }
}

/// Puts the tracker under the load and tells what came of it. It stops early, and keeps what it has, when
/// `interrupted` is set.
pub fn run(
    options: &WsOptions,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    ensure!(
        options.mix.connect == 0,
        "a WebSocket has no connects: announces and scrapes, as in 10:1"
    );
    let before = options.plan.pid.map(Usage::of).transpose()?;
    let join_stats = worker::JoinStats::default();
    let make = |number| worker::Ws::new(options, number, &join_stats);
    let workers = (options.workers.clamp(1, options.workload.peers.max(1)), make);
    let outcome = run_workers(&options.plan, workers, interrupted, progress)
        .with_context(|| format!("cannot load {}", options.url))?;
    let info = RunInfo {
        protocol: "ws",
        url: options.url.to_string(),
        seed: options.workload.seed,
        loop_mode: options.loop_mode(),
        pid: options.plan.pid,
        hostile: options.hostile.map(|(kind, _)| kind.to_string()),
    };
    let (joined, join_s) = join_stats.summary();
    let grown = Option::zip(before, outcome.tracker_before)
        .map(|(before, joined)| joined.resident_bytes as f64 - before.resident_bytes as f64);
    let web = WebTorrentReport {
        joined,
        join_s,
        bytes_per_connection: grown.map(|bytes| bytes / joined.max(1) as f64),
        counts: outcome.counters.web,
    };
    let mut report = Report::new(info, outcome);
    if matches!(options.timing, AnnounceTiming::Idle { .. }) {
        // Idle peers wait by intent.
        report.generator.is_limit = false;
    }
    report.web = Some(web);
    Ok(report)
}
