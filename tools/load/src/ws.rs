//! Load for WebTorrent trackers: each connection is a peer of one torrent, or of many, as those of desktop clients.
//!
//! A busy peer announces with offers, answers received offers, and announces again after each
//! response, or on schedule in an open loop: each connection has one outstanding request at any
//! time. An idle peer announces at the tracker's interval and answers pings. All received messages
//! are counted.
//!
//! `peer` is one peer without I/O, `worker` gives a thread's share of them connections, `incoming` classifies messages,
//! `shared` holds what a worker's peers share.

mod incoming;
mod peer;
mod shared;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::runner::{self, Load, Progress, RunPlan, Tester};
use crate::{LoopMode, Report, Spread, TrackerUrl, WebTorrentReport, Workload};

/// Parameters of a WebTorrent load.
#[derive(Clone, Debug)]
pub struct WsOptions {
    /// The tracker's URL.
    pub url: TrackerUrl,
    /// Torrents and peers.
    pub workload: Workload,
    /// Peers of one connection, each of a torrent; at least 1.
    pub peers_each: u32,
    /// When peers announce again.
    pub timing: AnnounceTiming,
    /// Durations of the run.
    pub plan: RunPlan,
    /// Threads.
    pub workers: u32,
    /// Offers per announce except a peer's first, which has none; at most 64.
    pub offers: usize,
    /// Time until a request counts as lost.
    pub timeout: Duration,
    /// Validate one in this many offers.
    pub check_every: u32,
}

/// When peers announce again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnnounceTiming {
    /// As soon as the last request was answered.
    Busy,
    /// This many requests per second, all peers together, as long as a peer is free.
    Paced(f64),
    /// At the tracker's interval.
    Idle {
        /// Interval of each peer's pings, if it sends any.
        ping_every: Option<Duration>,
        /// Peers announce no sooner, whatever the tracker says.
        interval_min: Duration,
    },
}

impl WsOptions {
    /// Returns the parameters of aquatic's load tester: 128 busy peers with 10 offers each, in 4
    /// torrents.
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
            peers_each: 1,
            timing: AnnounceTiming::Busy,
            plan: RunPlan::default(),
            workers: 1,
            offers: 10,
            timeout: Duration::from_secs(5),
            check_every: 16,
        }
    }

    /// Returns the load of web pages left open: 10,000 idle peers, ten per torrent, that send no
    /// offers; long enough that each announces again.
    pub fn idle(url: TrackerUrl) -> Self {
        let busy = Self::busy(url);
        Self {
            workload: Workload { torrents: 1_000, peers: 10_000, ..busy.workload },
            offers: 0,
            timing: AnnounceTiming::Idle {
                ping_every: Some(Duration::from_secs(30)),
                interval_min: Duration::ZERO,
            },
            // The warm-up gives the tracker a second to settle before its memory is measured.
            plan: RunPlan { duration: Duration::from_secs(150), ..busy.plan },
            ..busy
        }
    }

    /// Returns the load of desktop clients (libtorrent 2.1): 1,000 connections, each with `torrents` torrents of ten
    /// peers, and ten offers in each announce but the first.
    pub fn desktop(url: TrackerUrl, torrents: u32) -> Self {
        let idle = Self::idle(url);
        let connections = 1000;
        let peers = torrents.saturating_mul(connections);
        let torrents_all = (peers / 10).max(1);
        Self {
            workload: Workload { torrents: torrents_all, peers, ..idle.workload },
            peers_each: torrents,
            offers: 10,
            timing: AnnounceTiming::Idle {
                ping_every: None,
                interval_min: Duration::from_secs(60),
            },
            ..idle
        }
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> u32 {
        self.workload.peers / self.peers_each.max(1)
    }

    fn loop_mode(&self) -> LoopMode {
        match self.timing {
            AnnounceTiming::Paced(rate) => LoopMode::Open { rate },
            AnnounceTiming::Busy | AnnounceTiming::Idle { .. } => {
                LoopMode::Closed { outstanding: self.connections() }
            }
        }
    }
}

impl Tester for WsOptions {
    fn workload(&self) -> &Workload {
        &self.workload
    }

    fn run(&self, interrupted: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Report> {
        let joined = AtomicU64::new(0);
        let make = |number| worker::Ws::new(self, number, &joined);
        let load = Load {
            protocol: "ws",
            url: &self.url,
            seed: self.workload.seed,
            loop_mode: self.loop_mode(),
            plan: &self.plan,
            workers: self.workers.clamp(1, self.connections().max(1)),
        };
        let mut report = runner::run(&load, make, interrupted, progress)?;
        let joined = joined.load(Ordering::Relaxed);
        if matches!(self.timing, AnnounceTiming::Idle { .. }) {
            // Idle peers wait intentionally.
            report.generator.is_limit = false;
        }
        report.web = Some(WebTorrentReport { joined, counts: report.counts.web });
        Ok(report)
    }
}
