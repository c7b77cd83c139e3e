//! `tidegate load udp`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::load::udp::{self, Hostile, Mix, Options};
use ::load::{Habits, Pace, Plan, Spread, Url};
use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};
use ipnet::IpNet;

use super::{Any, conclude, interruption, watch};

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
    /// Addresses or networks of this machine that the sockets are bound to in turn.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = addresses)]
    source: Vec<Sources>,
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

/// Torrents and peers.
#[derive(Args)]
struct Crowd {
    /// Torrents that there are.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    torrents: u32,
    /// Peers that there are at a time.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    peers: u32,
    /// How peers spread over torrents: uniform, pareto[:SHAPE], gamma[:SHAPE:SCALE] or real.
    #[arg(long, value_name = "NAME", default_value = "real")]
    spread: Spread,
    /// Of a hundred peers, how many seed from the start.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = value_parser!(u8).range(0..=100))]
    seeders: u8,
    /// Of a hundred announces of leechers, how many say that the download is completed.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    completes: u8,
    /// Of a hundred announces, how many say that the peer stops; another one takes its place.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    churn: u8,
    /// Peers that an announce asks for; the tracker's choice if negative.
    #[arg(long, value_name = "N", default_value_t = 50, allow_hyphen_values = true,
          value_parser = value_parser!(i32).range(-1..=65_535))]
    numwant: i32,
    /// Write the torrents' info hashes to a file, for trackers that need a list of them, and end.
    #[arg(long, value_name = "FILE")]
    write_hashes: Option<PathBuf>,
}

/// How long a run takes, and what is told of it.
#[derive(Args)]
struct Course {
    /// Seconds to wait at most, beyond the warm-up, until the tracker answers at a steady rate.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=3600))]
    steady: Option<u32>,
    /// How long to measure.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1_000_000))]
    seconds: u32,
    /// Of so many announces' answers one is looked at closely.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    check_every: u32,
    /// Print the figures as one line of JSON.
    #[arg(long)]
    json: bool,
    /// A line a second on standard error, even if it is no terminal.
    #[arg(long)]
    progress: bool,
}

/// Source addresses that one word stands for.
#[derive(Clone, Debug)]
struct Sources(Vec<IpAddr>);

/// More of them than a machine has ports for are no use.
const SOURCES_MAX: usize = 65_536;

fn addresses(text: &str) -> Result<Sources, String> {
    if let Ok(address) = text.parse() {
        return Ok(Sources(vec![address]));
    }
    let network: IpNet =
        text.parse().map_err(|_| format!("`{text}` is neither an address nor a network"))?;
    Ok(Sources(network.hosts().take(SOURCES_MAX).collect()))
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("`{text}` is no number from 0.01 to 10000000")),
    }
}

impl Udp {
    pub(super) fn run(&self) -> Result<()> {
        let options = self.options()?;
        if let Some(file) = &self.crowd.write_hashes {
            return write_hashes(file, &options.habits);
        }
        let report = udp::run(&options, &*interruption()?, &mut watch(self.course.progress))?;
        conclude(&report, self.course.json)
    }

    fn options(&self) -> Result<Options> {
        let url = Url::udp(&self.url)?;
        self.any.admits(&url)?;
        let sources: Vec<IpAddr> = self.source.iter().flat_map(|word| word.0.clone()).collect();
        if let Some(other) =
            sources.iter().find(|source| source.is_ipv4() != url.address().is_ipv4())
        {
            anyhow::bail!("--source {other}: {url} is of the other address family");
        }
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
            check_every: self.course.check_every,
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

impl Crowd {
    fn habits(&self, seed: u64) -> Habits {
        Habits {
            seed,
            torrents: self.torrents,
            peers: self.peers,
            spread: self.spread,
            seeders_percent: self.seeders,
            completes_percent: self.completes,
            churn_percent: self.churn,
            want: u16::try_from(self.numwant).ok(),
        }
    }
}

impl Course {
    fn plan(&self, any: &Any) -> Plan {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Plan {
            warm_up: seconds(any.warm_up),
            steady_within: self.steady.map(seconds),
            duration: seconds(self.seconds),
            pid: any.pid,
        }
    }
}

fn write_hashes(path: &Path, habits: &Habits) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        for hash in habits.info_hashes() {
            writeln!(file, "{hash}")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
