//! `tidegate load http`.

use std::process::ExitCode;
use std::time::Duration;

use ::load::http::{self, Options};
use ::load::{Mix, Url};
use anyhow::{Result, ensure};
use clap::{Args, value_parser};

use super::arguments::{Any, Course, Crowd, Pests, Sources, rate};
use super::{conclude, interruption, watch, wrong_use};

/// Many peers behind connections, with one request at a time on each. In the closed loop a request
/// follows each answer; with --rate they are sent at their time, as long as a connection is free.
#[derive(Args)]
pub(crate) struct Http {
    /// Where to announce: `http://HOST[:PORT]/announce` or `https://…`; certificates are not looked at.
    url: String,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Connections at a time, all threads together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Each request has a connection of its own: over TLS, each is a handshake.
    #[arg(long)]
    close: bool,
    /// Sessions of TLS go on where an earlier one ended.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    sources: Sources,
    /// Requests a second, all threads together, sent when they are due.
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Announces and scrapes, in proportion.
    #[arg(long, value_name = "A:S", default_value = "1:0")]
    mix: Mix,
    /// Torrents in each scrape.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1000))]
    scrape_torrents: u32,
    #[command(flatten)]
    crowd: Crowd,
    #[command(flatten)]
    pests: Pests,
    /// After so many milliseconds a request is lost, and its connection is closed.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = value_parser!(u32).range(1..=60_000))]
    timeout_ms: u32,
    #[command(flatten)]
    course: Course,
    #[command(flatten)]
    any: Any,
}

impl Http {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ok(wrong_use(&error)),
        };
        if self.crowd.wrote_hashes(&options.habits)? {
            return Ok(ExitCode::SUCCESS);
        }
        let _tracker = self.any.start(&options.url, &mut options.plan)?;
        let report =
            http::run(&options, &*interruption()?, &mut watch(self.course.telling.progress))?;
        conclude(&report, self.course.telling.json, false)
    }

    pub(super) fn options(&self) -> Result<Options> {
        let url = Url::http(&self.url)?;
        self.any.admits(&url)?;
        let sources = self.sources.of(&url)?;
        ensure!(
            self.crowd.peers >= self.connections,
            "--peers {}: fewer than there are connections",
            self.crowd.peers
        );
        Ok(Options {
            url,
            habits: self.crowd.habits(self.any.seed),
            connections: self.connections,
            rate: self.rate,
            plan: self.course.plan(&self.any),
            mix: self.mix,
            scrape_torrents: self.scrape_torrents,
            workers: self.workers,
            close: self.close,
            resume: self.resume,
            sources,
            timeout: Duration::from_millis(self.timeout_ms.into()),
            check_every: self.course.telling.check_every,
            hostile: self.pests.chosen(),
        })
    }
}
