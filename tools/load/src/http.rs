//! Load for HTTP trackers: many peers behind connections that are kept, or that serve for a single
//! request, as most clients' do; over TLS the latter is a load of handshakes.
//!
//! One request is under way on a connection at a time. In a closed loop the next one follows its answer;
//! in an open loop it waits until it is due, and what is due waits for a connection.

mod connection;
mod response;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::report::RunInfo;
use crate::runner::{Progress, RunPlan, run_workers};
use crate::{HostileConnection, LoopMode, Mix, Report, TrackerUrl, Workload};

/// The load.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Where to announce.
    pub url: TrackerUrl,
    /// Torrents and peers.
    pub workload: Workload,
    /// How many connections there are at a time, all workers together.
    pub connections: u32,
    /// Requests a second of an open loop; a closed loop if none.
    pub rate: Option<f64>,
    /// How long it takes.
    pub plan: RunPlan,
    /// Which requests; nothing connects.
    pub mix: Mix,
    /// Torrents in each scrape: at least 1.
    pub scrape_torrents: u32,
    /// Threads.
    pub workers: u32,
    /// Whether each connection is closed behind its answer, and another one opened.
    pub close: bool,
    /// Whether sessions of TLS go on where an earlier one ended.
    pub resume: bool,
    /// Addresses that the connections come from in turn; the system's choice if there are none.
    pub sources: Vec<IpAddr>,
    /// After how long a request is lost.
    pub timeout: Duration,
    /// Of so many announces' answers one is looked at closely.
    pub check_every: u32,
    /// Hostile connections besides, and how many, all workers together.
    pub hostile: Option<(HostileConnection, u32)>,
}

impl HttpOptions {
    /// 64 connections that are kept, one worker, announces alone.
    pub fn of(url: TrackerUrl) -> Self {
        Self {
            url,
            workload: Workload::default(),
            connections: 64,
            rate: None,
            plan: RunPlan::default(),
            mix: Mix { connect: 0, announce: 1, scrape: 0 },
            scrape_torrents: 10,
            workers: 1,
            close: false,
            resume: false,
            sources: Vec::new(),
            timeout: Duration::from_secs(5),
            check_every: 16,
            hostile: None,
        }
    }

    fn loop_mode(&self) -> LoopMode {
        match self.rate {
            Some(rate) => LoopMode::Open { rate },
            None => LoopMode::Closed { outstanding: self.connections },
        }
    }
}

/// How long a tracker may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Puts the tracker under the load and tells what came of it. It stops early, and keeps what it has, when
/// `interrupted` is set.
pub fn run(
    options: &HttpOptions,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    ensure!(options.mix.connect == 0, "HTTP has no connects: announces and scrapes, such as 10:1");
    ensure!(
        options.mix.scrape == 0 || options.url.target.contains("/announce"),
        "{} has no `/announce` that could become a `/scrape` (BEP 48)",
        options.url
    );
    let make = |number| worker::Http::new(options, number);
    let workers = (options.workers.clamp(1, options.connections.max(1)), make);
    let outcome = run_workers(&options.plan, workers, interrupted, progress)
        .with_context(|| format!("cannot load {}", options.url))?;
    let info = RunInfo {
        protocol: "http",
        url: options.url.to_string(),
        seed: options.workload.seed,
        loop_mode: options.loop_mode(),
        pid: options.plan.pid,
        hostile: options.hostile.map(|(kind, _)| kind.to_string()),
    };
    Ok(Report::new(info, outcome))
}
