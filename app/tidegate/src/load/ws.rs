//! `tidegate load ws`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::load::ws::{self, Options, Rhythm};
use ::load::{Habits, Mix, Plan, Spread, Url};
use anyhow::Result;
use clap::{Args, value_parser};

use super::arguments::{Any, Pests, Sources, Telling, rate, write_hashes};
use super::{conclude, interruption, watch, wrong_use};

/// Every connection is a peer of one torrent. A busy one announces with offers, answers the offers it
/// is given, and announces again as soon as it has its reply. All that the tracker delivers is
/// counted.
#[derive(Args)]
pub(crate) struct Ws {
    /// The tracker: `ws://HOST[:PORT][/PATH]` or `wss://…`; certificates are not looked at.
    url: String,
    /// Peers announce again when the tracker says they should, not at once, and send pings.
    #[arg(long)]
    idle: bool,
    /// Requests a second, all peers together, sent when they are due.
    #[arg(long, value_name = "N", conflicts_with = "idle", value_parser = rate)]
    rate: Option<f64>,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Peers, each on a connection of its own [default: 128; idle: 10000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,
    /// After so many answers a peer's connection is closed and another one opened.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    requests_per_connection: Option<u32>,
    #[command(flatten)]
    sources: Sources,
    /// Torrents that there are [default: 4; idle: 1000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000_000))]
    torrents: Option<u32>,
    /// How peers spread over torrents: uniform, `pareto` or `pareto:SHAPE`, `gamma` or `gamma:SHAPE:SCALE`, or real.
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    spread: Spread,
    /// Of a hundred peers, how many seed from the start.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = value_parser!(u8).range(0..=100))]
    seeders: u8,
    /// Of a hundred announces of leechers, how many say that the download is completed.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    completes: u8,
    /// Of a hundred announces, how many say that the peer stops; another one takes its place.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    churn: u8,
    /// Offers in each announce but a peer's first [default: 10; idle: 0].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    offers: Option<u32>,
    /// Bytes of a session description in offers and answers.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = value_parser!(u32).range(0..=60_000))]
    offer_bytes: u32,
    /// Of a hundred offers received, how many are answered.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
          value_parser = value_parser!(u8).range(0..=100))]
    answers: u8,
    /// Announces and scrapes, in proportion.
    #[arg(long, value_name = "A:S", default_value = "1:0")]
    mix: Mix,
    /// Torrents in each scrape.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=50))]
    scrape_torrents: u32,
    /// Seconds between an idle peer's pings; 0 = none.
    #[arg(long, value_name = "N", default_value_t = 30)]
    ping: u32,
    #[command(flatten)]
    pests: Pests,
    /// After so many milliseconds a request is lost.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = value_parser!(u32).range(1..=60_000))]
    timeout_ms: u32,
    /// Seconds to wait at most, beyond the warm-up, until the tracker answers at a steady rate.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=3600))]
    steady: Option<u32>,
    /// How long to measure [default: 10; idle: 150].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    seconds: Option<u32>,
    /// Write the torrents' info hashes to a file, for trackers that need a list of them, and end.
    #[arg(long, value_name = "FILE")]
    write_hashes: Option<PathBuf>,
    #[command(flatten)]
    telling: Telling,
    #[command(flatten)]
    any: Any,
}

impl Ws {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut options = match self.options() {
            Ok(options) => options,
            Err(error) => return Ok(wrong_use(&error)),
        };
        if let Some(file) = &self.write_hashes {
            write_hashes(file, &options.habits)?;
            return Ok(ExitCode::SUCCESS);
        }
        let _tracker = self.any.start(&options.url, &mut options.plan)?;
        let report = ws::run(&options, &*interruption()?, &mut watch(self.telling.progress))?;
        // Idle peers may well have nothing to say for as long as is measured.
        conclude(&report, self.telling.json, self.idle)
    }

    pub(super) fn options(&self) -> Result<Options> {
        let url = Url::web(&self.url)?;
        self.any.admits(&url)?;
        let sources = self.sources.of(&url)?;
        let usual = if self.idle { Options::idle(url) } else { Options::busy(url) };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(Options {
            habits: Habits {
                seed: self.any.seed,
                torrents: self.torrents.unwrap_or(usual.habits.torrents),
                peers: self.connections.unwrap_or(usual.habits.peers),
                spread: self.spread,
                seeders_percent: self.seeders,
                completes_percent: self.completes,
                churn_percent: self.churn,
                want: None,
            },
            rhythm: match (self.rate, self.idle) {
                (Some(rate), _) => Rhythm::Paced(rate),
                (None, true) => {
                    Rhythm::Idle { ping_every: (self.ping > 0).then(|| seconds(self.ping)) }
                }
                (None, false) => Rhythm::Busy,
            },
            plan: Plan {
                warm_up: seconds(self.any.warm_up),
                steady_within: self.steady.map(seconds),
                duration: self.seconds.map_or(usual.plan.duration, seconds),
                pid: self.any.pid,
            },
            mix: self.mix,
            scrape_torrents: self.scrape_torrents,
            workers: self.workers,
            offers: self.offers.map_or(usual.offers, |offers| offers as usize),
            offer_bytes: self.offer_bytes as usize,
            answers_percent: self.answers,
            requests_per_connection: self.requests_per_connection,
            sources,
            timeout: Duration::from_millis(self.timeout_ms.into()),
            check_every: self.telling.check_every,
            hostile: self.pests.chosen(),
            ..usual
        })
    }
}
