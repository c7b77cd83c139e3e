//! `tidegate-bench load ws`.

use std::process::ExitCode;

use ::load::ws::{self, AnnounceTiming, WsOptions};
use ::load::{TrackerUrl, Workload};
use anyhow::Result;
use clap::{Args, value_parser};

use super::arguments::{RunArgs, WorkloadArgs, rate};
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
    /// Desktop clients (libtorrent 2.1) instead of browsers: every connection has N torrents, which it announces
    /// in turn at the tracker's interval, with ten offers each. `--peers` counts connections [default: 1000].
    #[arg(long, value_name = "N", conflicts_with_all = ["idle", "rate"], value_parser = value_parser!(u32).range(1..=10_000))]
    desktop: Option<u32>,
    /// Requests per second on a fixed schedule, all peers together.
    #[arg(long, value_name = "N", conflicts_with = "idle", value_parser = rate)]
    rate: Option<f64>,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Offers per announce except a peer's first [default: 10; idle: 0].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    offers: Option<u32>,
    #[command(flatten)]
    run: RunArgs,
}

impl Ws {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ok(usage_error(&error)),
        };
        if self.workload.write_hashes_if_asked(&options.workload)? {
            return Ok(ExitCode::SUCCESS);
        }
        let report =
            ws::run(&options, &*interruption()?, &mut progress_printer(self.run.progress))?;
        // Idle peers may have nothing to send for the whole measurement.
        finish(&report, self.idle || self.desktop.is_some())
    }

    pub(super) fn options(&self) -> Result<WsOptions> {
        let url = self.run.checked_url(TrackerUrl::web(&self.url)?)?;
        let usual = match (self.desktop, self.idle) {
            (Some(torrents), _) => WsOptions::desktop(url, torrents),
            (None, true) => WsOptions::idle(url),
            (None, false) => WsOptions::busy(url),
        };
        // An announce requests peers by its offers, so there is no `want`.
        let mut workload = self.workload.workload(self.run.seed, usual.workload);
        if let Some(connections) = self.workload.peers {
            workload.peers = connections.saturating_mul(usual.peers_each);
        }
        Ok(WsOptions {
            workload: Workload { want: None, ..workload },
            timing: self.rate.map_or(usual.timing, AnnounceTiming::Paced),
            plan: self.run.plan(usual.plan),
            workers: self.workers,
            offers: self.offers.map_or(usual.offers, |offers| offers as usize),
            check_every: self.run.check_every,
            ..usual
        })
    }
}
