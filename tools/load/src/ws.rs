//! Load for WebTorrent trackers: each connection is a peer of one torrent.
//!
//! A busy peer announces with offers, answers the offers that it is given, and announces again as
//! soon as it has its reply, or when its turn has come in an open loop: one request is under way on each
//! connection at any time. An idle peer announces again when the tracker said it should, and answers pings.
//! All that comes is counted.
//!
//! `peer` is one peer without I/O, `sockets` gives many of them their connections, `worker` leads a
//! thread's share of them through the run, `incoming` tells messages apart.

mod crowd;
mod incoming;
mod peer;
mod sockets;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::conduct::{Plan, Progress, conduct};
use crate::report::About;
use crate::{Habits, Mix, Pace, Pest, Report, Spread, Url, Usage, WebReport};

/// The load.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tracker.
    pub url: Url,
    /// Torrents and peers; each peer has a connection.
    pub habits: Habits,
    /// When peers announce again.
    pub rhythm: Rhythm,
    /// How long it takes.
    pub plan: Plan,
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
    pub hostile: Option<(Pest, u32)>,
}

/// When peers announce again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rhythm {
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

impl Options {
    /// What aquatic's load tester does, too: 128 busy peers with 10 offers each, in 4 torrents.
    pub fn busy(url: Url) -> Self {
        Self {
            url,
            habits: Habits {
                torrents: 4,
                peers: 128,
                spread: Spread::Uniform,
                seeders_percent: 25,
                ..Habits::default()
            },
            rhythm: Rhythm::Busy,
            plan: Plan::default(),
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
    pub fn idle(url: Url) -> Self {
        let busy = Self::busy(url);
        Self {
            habits: Habits { torrents: 1_000, peers: 10_000, ..busy.habits },
            offers: 0,
            rhythm: Rhythm::Idle { ping_every: Some(Duration::from_secs(30)) },
            // A tracker gets a second to put things in order before its memory is looked at.
            plan: Plan { duration: Duration::from_secs(150), ..busy.plan },
            ..busy
        }
    }

    fn pace(&self) -> Pace {
        match self.rhythm {
            Rhythm::Paced(rate) => Pace::Open { rate },
            Rhythm::Busy | Rhythm::Idle { .. } => Pace::Closed { outstanding: self.habits.peers },
        }
    }
}

/// Puts the tracker under the load and tells what came of it. It stops early, and keeps what it has, when
/// `interrupted` is set.
pub fn run(
    options: &Options,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    ensure!(
        options.mix.connect == 0,
        "a WebSocket has no connects: announces and scrapes, as in 10:1"
    );
    let before = options.plan.pid.map(Usage::of).transpose()?;
    let joining = worker::Joining::default();
    let make = |number| worker::Ws::new(options, number, &joining);
    let workers = (options.workers.clamp(1, options.habits.peers.max(1)), make);
    let outcome = conduct(&options.plan, workers, interrupted, progress)
        .with_context(|| format!("cannot load {}", options.url))?;
    let about = About {
        protocol: "ws",
        url: options.url.to_string(),
        seed: options.habits.seed,
        pace: options.pace(),
        pid: options.plan.pid,
        hostile: options.hostile.map(|(kind, _)| kind.to_string()),
    };
    let (joined, join_s) = joining.told();
    let grown = Option::zip(before, outcome.tracker_before)
        .map(|(before, joined)| joined.resident_bytes as f64 - before.resident_bytes as f64);
    let web = WebReport {
        joined,
        join_s,
        bytes_per_connection: grown.map(|bytes| bytes / joined.max(1) as f64),
        counts: outcome.found.web,
    };
    let mut report = Report::new(about, outcome);
    if matches!(options.rhythm, Rhythm::Idle { .. }) {
        // Idle peers wait by intent.
        report.generator.is_limit = false;
    }
    report.web = Some(web);
    Ok(report)
}
