//! `tidegate-bench load ws`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::load::ws::{self, AnnounceTiming, WsOptions};
use ::load::{Mix, RunPlan, Spread, TrackerUrl, Workload};
use anyhow::Result;
use clap::{Args, value_parser};

use super::arguments::{CommonArgs, OutputArgs, rate, write_hashes};
use super::{finish, progress_printer, usage_error};
use crate::interruption;

/// Load a WebTorrent tracker. Every connection is one peer of one torrent. A busy peer announces
/// with offers, answers the offers it receives, and announces again after each response. The report
/// counts everything that the tracker delivers.
#[derive(Args)]
pub(crate) struct Ws {
    /// Tracker URL: `ws://HOST[:PORT][/PATH]` or `wss://…`. Certificates are not verified.
    url: String,
    /// Announce at the tracker's interval instead of immediately, and send pings.
    #[arg(long)]
    idle: bool,
    /// Requests per second on a fixed schedule, all peers together.
    #[arg(long, value_name = "N", conflicts_with = "idle", value_parser = rate)]
    rate: Option<f64>,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Peers, each on its own connection [default: 128; idle: 10000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,
    /// Number of torrents [default: 4; idle: 1000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000_000))]
    torrents: Option<u32>,
    /// Distribution of peers over torrents: uniform or real.
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    spread: Spread,
    /// Percentage of leecher announces with event `completed`.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    completes: u8,
    /// Percentage of announces with event `stopped`; another peer replaces each.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    churn: u8,
    /// Offers per announce except a peer's first [default: 10; idle: 0].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    offers: Option<u32>,
    /// Percentage of received offers to answer.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
          value_parser = value_parser!(u8).range(0..=100))]
    answers: u8,
    /// Ratio of announces to scrapes.
    #[arg(long, value_name = "A:S", default_value = "1:0")]
    mix: Mix,
    /// Seconds to measure [default: 10; idle: 150].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    seconds: Option<u32>,
    /// Write the info hashes to a file, for trackers that need a list, and exit.
    #[arg(long, value_name = "FILE")]
    write_hashes: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl Ws {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ok(usage_error(&error)),
        };
        if let Some(file) = &self.write_hashes {
            write_hashes(file, &options.workload)?;
            return Ok(ExitCode::SUCCESS);
        }
        let report =
            ws::run(&options, &*interruption()?, &mut progress_printer(self.output.progress))?;
        // Idle peers may have nothing to send for the whole measurement.
        finish(&report, self.output.json, self.idle)
    }

    pub(super) fn options(&self) -> Result<WsOptions> {
        let url = self.common.checked_url(TrackerUrl::web(&self.url)?)?;
        let usual = if self.idle { WsOptions::idle(url) } else { WsOptions::busy(url) };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(WsOptions {
            workload: Workload {
                seed: self.common.seed,
                torrents: self.torrents.unwrap_or(usual.workload.torrents),
                peers: self.connections.unwrap_or(usual.workload.peers),
                spread: self.spread,
                completes_percent: self.completes,
                churn_percent: self.churn,
                want: None,
                ..usual.workload
            },
            timing: self.rate.map_or(usual.timing, AnnounceTiming::Paced),
            plan: RunPlan {
                warm_up: seconds(self.common.warm_up),
                duration: self.seconds.map_or(usual.plan.duration, seconds),
                pid: self.common.pid,
            },
            mix: self.mix,
            workers: self.workers,
            offers: self.offers.map_or(usual.offers, |offers| offers as usize),
            answers_percent: self.answers,
            check_every: self.output.check_every,
            ..usual
        })
    }
}
