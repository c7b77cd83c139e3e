//! `tidegate load udp`.

use std::process::ExitCode;
use std::time::Duration;

use ::load::udp::{self, Hostile, Options};
use ::load::{Mix, Pace, Url};
use anyhow::{Result, ensure};
use clap::{Args, value_parser};

use super::arguments::{Any, Course, Crowd, Sources, rate};
use super::{conclude, interruption, watch, wrong_use};

/// Many peers behind a few sockets. In the closed loop a request follows each answer; with --rate they
/// are sent at their time, whatever comes back.
#[derive(Args)]
pub(crate) struct Udp {
    /// The tracker: `udp://HOST:PORT[/PATH]`; a path is sent along (BEP 41).
    url: String,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Sockets of each thread.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=4096))]
    sockets: u32,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    pace: Pacing,
    /// Connects, announces and scrapes, in proportion.
    #[arg(long, value_name = "C:A:S", default_value = "1:100:1")]
    mix: Mix,
    /// Torrents in each scrape.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=70))]
    scrape_torrents: u32,
    #[command(flatten)]
    crowd: Crowd,
    /// Hostile requests besides: bad-ids, garbage, truncated, oversize, scrapes.
    #[arg(long, value_name = "KIND")]
    hostile: Option<Hostile>,
    /// Of a hundred requests, how many are hostile.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, requires = "hostile",
          value_parser = value_parser!(u8).range(1..=99))]
    hostile_percent: u8,
    /// After so many milliseconds a request is lost.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=60_000))]
    timeout_ms: u32,
    /// Every datagram goes through the network stack alone. Without it, a tracker sees bursts.
    #[arg(long)]
    no_offload: bool,
    #[command(flatten)]
    course: Course,
    #[command(flatten)]
    any: Any,
}

/// When requests are sent.
#[derive(Args)]
struct Pacing {
    /// Requests under way at any time, all threads together.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(1..=1_000_000))]
    outstanding: u32,
    /// Requests a second instead, all threads together, sent when they are due.
    #[arg(long, value_name = "N", conflicts_with = "outstanding", value_parser = rate)]
    rate: Option<f64>,
}

impl Udp {
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
            udp::run(&options, &*interruption()?, &mut watch(self.course.telling.progress))?;
        conclude(&report, self.course.telling.json, false)
    }

    pub(super) fn options(&self) -> Result<Options> {
        let url = self.any.admit(Url::udp(&self.url)?)?;
        let sources = self.sources.of(&url)?;
        ensure!(
            self.crowd.peers >= self.workers * self.sockets,
            "--peers {}: fewer than there are sockets",
            self.crowd.peers
        );
        Ok(Options {
            habits: self.crowd.habits(self.any.seed),
            pace: self.pace.pace(),
            plan: self.course.plan(&self.any),
            mix: self.mix,
            scrape_torrents: self.scrape_torrents,
            workers: self.workers,
            sockets: self.sockets,
            sources,
            timeout: Duration::from_millis(self.timeout_ms.into()),
            check_every: self.course.telling.check_every,
            hostile: self.hostile.map(|profile| (profile, self.hostile_percent)),
            offload: !self.no_offload,
            ..Options::of(url)
        })
    }
}

impl Pacing {
    fn pace(&self) -> Pace {
        match self.rate {
            Some(rate) => Pace::Open { rate },
            None => Pace::Closed { outstanding: self.outstanding },
        }
    }
}
