//! `tidegate-bench load http`.

use std::process::ExitCode;

use ::load::TrackerUrl;
use ::load::http::{self, HttpOptions};
use anyhow::{Result, ensure};
use clap::{Args, value_parser};

use super::arguments::{RunArgs, WorkloadArgs, rate};
use super::{finish, progress_printer, usage_error};
use crate::interruption;

/// Load an HTTP tracker. One request at a time is outstanding on each connection. In the closed
/// loop a request follows each response; with --rate requests are sent on schedule as long as a
/// connection is free.
#[derive(Args)]
pub(crate) struct Http {
    /// Announce URL: `http://HOST[:PORT]/announce` or `https://…`. Certificates are not verified.
    url: String,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Concurrent connections, all threads together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Open a new connection for each request; over TLS, each is a handshake.
    #[arg(long)]
    close: bool,
    /// Requests per second on a fixed schedule, all threads together.
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl Http {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ok(usage_error(&error)),
        };
        if self.workload.write_hashes_if_asked(&options.workload)? {
            return Ok(ExitCode::SUCCESS);
        }
        let report =
            http::run(&options, &*interruption()?, &mut progress_printer(self.run.progress))?;
        finish(&report, false)
    }

    pub(super) fn options(&self) -> Result<HttpOptions> {
        let url = self.run.checked_url(TrackerUrl::http(&self.url)?)?;
        let usual = HttpOptions::of(url);
        let workload = self.workload.workload(self.run.seed, usual.workload);
        ensure!(
            workload.peers >= self.connections,
            "--peers {}: must be at least the number of connections",
            workload.peers
        );
        Ok(HttpOptions {
            workload,
            connections: self.connections,
            rate: self.rate,
            plan: self.run.plan(usual.plan),
            workers: self.workers,
            close: self.close,
            check_every: self.run.check_every,
            ..usual
        })
    }
}
