//! What the load testers' command lines have in common.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::load::{Habits, Pest, Plan, Spread, Started, Url};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, value_parser};
use primitives::IpPrefix;

/// What all load testers are told.
#[derive(Args)]
pub(super) struct Any {
    /// Seconds of load before anything is counted.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) warm_up: u32,
    /// Runs with the same seed have the same torrents and peers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The tracker's process on this machine: what it uses, and what it has started, is told, too.
    #[arg(long, value_name = "NUMBER")]
    pub(super) pid: Option<u32>,
    /// Keys of a private tracker's users, one on a line, all of one length. Peers have them in turn, each in
    /// the place of `{key}` in the URL.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// A tracker to start, and to end behind the load, with its words: behind a `--`.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid")]
    tracker: Vec<String>,
    /// The tracker may be outside this machine and its private networks.
    #[arg(long)]
    i_own_this_tracker: bool,
}

/// Torrents and peers.
#[derive(Args)]
pub(super) struct Crowd {
    /// Torrents that there are.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub(super) torrents: u32,
    /// Peers that there are at a time.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub(super) peers: u32,
    /// How peers spread over torrents: uniform, `pareto` or `pareto:SHAPE`, `gamma` or `gamma:SHAPE:SCALE`, or real.
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

/// What is told of a run.
#[derive(Args)]
pub(super) struct Telling {
    /// Of so many answers one is looked at closely.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    pub(super) check_every: u32,
    /// Print the figures as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// A line a second on standard error, even if it is no terminal.
    #[arg(long)]
    pub(super) progress: bool,
}

/// Hostile connections beside the load.
#[derive(Args)]
pub(super) struct Pests {
    /// Hostile connections besides: slowloris, garbage, oversize, half, silent.
    #[arg(long, value_name = "KIND")]
    hostile: Option<Pest>,
    /// How many of them.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "hostile",
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    hostile_connections: u32,
}

impl Pests {
    /// Their kind, and how many.
    pub(super) fn chosen(&self) -> Option<(Pest, u32)> {
        self.hostile.map(|kind| (kind, self.hostile_connections))
    }
}

/// How long a run takes, and what is told of it.
#[derive(Args)]
pub(super) struct Course {
    /// Seconds to wait at most, beyond the warm-up, until the tracker answers at a steady rate.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=3600))]
    pub(super) steady: Option<u32>,
    /// How long to measure.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) seconds: u32,
    #[command(flatten)]
    pub(super) telling: Telling,
}

/// Where load comes from.
#[derive(Args)]
pub(super) struct Sources {
    /// Addresses or networks of this machine that load comes from in turn, by commas.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = addresses)]
    source: Vec<Network>,
}

/// Addresses that one word stands for.
#[derive(Clone, Debug)]
struct Network(Vec<IpAddr>);

/// More of them than a machine has ports for are no use.
const SOURCES_MAX: usize = 65_536;

fn addresses(text: &str) -> Result<Network, String> {
    let network: IpPrefix =
        text.parse().map_err(|_| format!("`{text}` is neither an address nor a network"))?;
    Ok(Network(network.hosts().take(SOURCES_MAX).collect()))
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("`{text}` is no number from 0.01 to 10000000")),
    }
}

impl Sources {
    /// All of them. An error if one cannot speak with the tracker.
    pub(super) fn of(&self, url: &Url) -> Result<Vec<IpAddr>> {
        let sources: Vec<IpAddr> = self.source.iter().flat_map(|word| word.0.clone()).collect();
        let is_v4 = url.address().is_ipv4();
        if let Some(other) = sources.iter().find(|source| source.is_ipv4() != is_v4) {
            bail!("--source {other}: {url} is of the other address family");
        }
        Ok(sources)
    }
}

impl Any {
    /// The tracker, if it is to be started: its process is then that of the plan.
    pub(super) fn start(&self, url: &Url, plan: &mut Plan) -> Result<Option<Started>> {
        let Some((program, words)) = self.tracker.split_first() else { return Ok(None) };
        let started = Started::new(program, words, url)?;
        plan.pid = Some(started.pid());
        Ok(Some(started))
    }

    /// The URL with its users' keys, if this tracker may be put under load.
    pub(super) fn admit(&self, url: Url) -> Result<Url> {
        ensure!(
            url.is_private() || self.i_own_this_tracker,
            "{url} is outside this machine and its private networks: \
             say --i-own-this-tracker if it is yours to load"
        );
        url.with_keys(&self.keys.as_deref().map_or(Ok(Vec::new()), keys)?)
    }
}

impl Crowd {
    /// Whether the info hashes were asked for, and written, instead of a load.
    pub(super) fn wrote_hashes(&self, habits: &Habits) -> Result<bool> {
        let Some(file) = &self.write_hashes else { return Ok(false) };
        write_hashes(file, habits)?;
        Ok(true)
    }

    pub(super) fn habits(&self, seed: u64) -> Habits {
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
    pub(super) fn plan(&self, any: &Any) -> Plan {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Plan {
            warm_up: seconds(any.warm_up),
            steady_within: self.steady.map(seconds),
            duration: seconds(self.seconds),
            pid: any.pid,
        }
    }
}

/// The first word of each line, as in tidegate's own files of keys.
fn keys(path: &Path) -> Result<Vec<String>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    let keys: Vec<String> = entries.map(String::from).collect();
    ensure!(!keys.is_empty(), "{}: no keys", path.display());
    Ok(keys)
}

/// Writes the info hashes of all torrents, one a line.
pub(super) fn write_hashes(path: &Path, habits: &Habits) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        for hash in habits.info_hashes() {
            writeln!(file, "{hash}")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
