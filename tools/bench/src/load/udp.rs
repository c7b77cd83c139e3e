//! `tidegate-bench load udp`.

use std::process::ExitCode;

use ::load::udp::{self, UdpOptions};
use ::load::{LoopMode, Mix, TrackerUrl};
use anyhow::{Result, ensure};
use clap::{Args, value_parser};

use super::arguments::{RunArgs, WorkloadArgs, rate};
use super::{finish, progress_printer, usage_error};
use crate::interruption;

/// Load a UDP tracker: many peers share a few sockets. In the closed loop a request follows each
/// response; with --rate requests are sent on schedule whatever the responses.
#[derive(Args)]
pub(crate) struct Udp {
    /// Tracker URL: `udp://HOST:PORT[/PATH]`; the path is sent as BEP 41 options.
    url: String,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Sockets per thread.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=4096))]
    sockets: u32,
    #[command(flatten)]
    rate: RateArgs,
    /// Ratio of connects, announces and scrapes.
    #[arg(long, value_name = "C:A:S", default_value = "1:100:1")]
    mix: Mix,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Send each datagram alone, without UDP segmentation offload, which makes the tracker see
    /// bursts.
    #[arg(long)]
    no_offload: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Options about the request rate.
#[derive(Args)]
struct RateArgs {
    /// Outstanding requests, all threads together.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(1..=1_000_000))]
    outstanding: u32,
    /// Requests per second on a fixed schedule instead, all threads together.
    #[arg(long, value_name = "N", conflicts_with = "outstanding", value_parser = rate)]
    rate: Option<f64>,
}

impl Udp {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ok(usage_error(&error)),
        };
        if self.workload.write_hashes_if_asked(&options.workload)? {
            return Ok(ExitCode::SUCCESS);
        }
        let report =
            udp::run(&options, &*interruption()?, &mut progress_printer(self.run.progress))?;
        finish(&report, false)
    }

    pub(super) fn options(&self) -> Result<UdpOptions> {
        let url = self.run.checked_url(TrackerUrl::udp(&self.url)?)?;
        let usual = UdpOptions::of(url);
        let workload = self.workload.workload(self.run.seed, usual.workload);
        ensure!(
            workload.peers >= self.workers * self.sockets,
            "--peers {}: must be at least the number of sockets",
            workload.peers
        );
        Ok(UdpOptions {
            workload,
            loop_mode: self.rate.loop_mode(),
            plan: self.run.plan(usual.plan),
            mix: self.mix,
            workers: self.workers,
            sockets: self.sockets,
            check_every: self.run.check_every,
            offload: !self.no_offload,
            ..usual
        })
    }
}

impl RateArgs {
    fn loop_mode(&self) -> LoopMode {
        match self.rate {
            Some(rate) => LoopMode::Open { rate },
            None => LoopMode::Closed { outstanding: self.outstanding },
        }
    }
}
