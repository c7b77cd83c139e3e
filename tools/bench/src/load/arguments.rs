//! Options that the load testers share.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::load::{RunPlan, Spread, TrackerUrl, Workload};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, value_parser};
use primitives::IpPrefix;

/// Options of all load testers.
#[derive(Args)]
pub(super) struct CommonArgs {
    /// Seconds of load before measuring.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) warm_up: u32,
    /// Seed of torrents and peers; equal seeds produce equal requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The tracker's process ID on this machine; reports the resources it and its child processes
    /// use.
    #[arg(long, value_name = "NUMBER")]
    pub(super) pid: Option<u32>,
    /// File with the keys of a private tracker's users, one per line, all of equal length. Each
    /// peer gets one in turn, in place of `{key}` in the URL.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Allow trackers outside this machine and private networks.
    #[arg(long)]
    i_own_this_tracker: bool,
}

/// Options about torrents and peers.
#[derive(Args)]
pub(super) struct WorkloadArgs {
    /// Number of torrents.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub(super) torrents: u32,
    /// Number of peers at a time.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub(super) peers: u32,
    /// Distribution of peers over torrents: uniform or real.
    #[arg(long, value_name = "NAME", default_value = "real")]
    spread: Spread,
    /// Percentage of peers that start as seeders.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = value_parser!(u8).range(0..=100))]
    seeders: u8,
    /// Percentage of leecher announces with event `completed`.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    completes: u8,
    /// Percentage of announces with event `stopped`; another peer replaces each.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    churn: u8,
    /// Peers that each announce requests; negative = the tracker's default.
    #[arg(long, value_name = "N", default_value_t = 50, allow_hyphen_values = true,
          value_parser = value_parser!(i32).range(-1..=65_535))]
    numwant: i32,
    /// Write the info hashes to a file, for trackers that need a list, and exit.
    #[arg(long, value_name = "FILE")]
    write_hashes: Option<PathBuf>,
}

/// Output options.
#[derive(Args)]
pub(super) struct OutputArgs {
    /// Validate one in N responses.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    pub(super) check_every: u32,
    /// Print the report as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print progress every second even if standard error is not a terminal.
    #[arg(long)]
    pub(super) progress: bool,
}

/// Duration and output options.
#[derive(Args)]
pub(super) struct RunArgs {
    /// After the warm-up, wait up to N seconds for a steady response rate.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=3600))]
    pub(super) steady: Option<u32>,
    /// Seconds to measure.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) seconds: u32,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Options about source addresses.
#[derive(Args)]
pub(super) struct SourceArgs {
    /// Source addresses or networks of this machine to use in turn, separated by commas.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = addresses)]
    source: Vec<SourceAddresses>,
}

/// The addresses that one argument stands for.
#[derive(Clone, Debug)]
struct SourceAddresses(Vec<IpAddr>);

/// A machine has no more ports than this, so more addresses gain nothing.
const SOURCES_MAX: usize = 65_536;

fn addresses(text: &str) -> Result<SourceAddresses, String> {
    let network: IpPrefix =
        text.parse().map_err(|_| format!("expected an IP address or a network, found `{text}`"))?;
    Ok(SourceAddresses(network.hosts().take(SOURCES_MAX).collect()))
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("must be between 0.01 and 10000000, found `{text}`")),
    }
}

impl SourceArgs {
    /// Returns all source addresses. Fails if one is of another family than the tracker's address.
    pub(super) fn of(&self, url: &TrackerUrl) -> Result<Vec<IpAddr>> {
        let sources: Vec<IpAddr> = self.source.iter().flat_map(|word| word.0.clone()).collect();
        let is_v4 = url.address().is_ipv4();
        if let Some(other) = sources.iter().find(|source| source.is_ipv4() != is_v4) {
            bail!("--source {other}: {url} has the other address family");
        }
        Ok(sources)
    }
}

impl CommonArgs {
    /// Returns the URL with its users' keys. Fails for public addresses unless
    /// `--i-own-this-tracker` is given.
    pub(super) fn checked_url(&self, url: TrackerUrl) -> Result<TrackerUrl> {
        ensure!(
            url.is_private() || self.i_own_this_tracker,
            "{url} is outside this machine and private networks: \
             pass --i-own-this-tracker if you may load it"
        );
        url.with_keys(&self.keys.as_deref().map_or(Ok(Vec::new()), keys)?)
    }
}

impl WorkloadArgs {
    /// Writes the info hashes if `--write-hashes` is given. Returns whether it did.
    pub(super) fn write_hashes_if_asked(&self, workload: &Workload) -> Result<bool> {
        let Some(file) = &self.write_hashes else { return Ok(false) };
        write_hashes(file, workload)?;
        Ok(true)
    }

    pub(super) fn workload(&self, seed: u64) -> Workload {
        Workload {
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

impl RunArgs {
    pub(super) fn plan(&self, common: &CommonArgs) -> RunPlan {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        RunPlan {
            warm_up: seconds(common.warm_up),
            steady_within: self.steady.map(seconds),
            duration: seconds(self.seconds),
            pid: common.pid,
        }
    }
}

/// Reads the first word of each line, as in tidegate's own key files.
fn keys(path: &Path) -> Result<Vec<String>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    let keys: Vec<String> = entries.map(String::from).collect();
    ensure!(!keys.is_empty(), "{}: no keys found", path.display());
    Ok(keys)
}

/// Writes the info hashes of all torrents, one per line.
pub(super) fn write_hashes(path: &Path, workload: &Workload) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        for hash in workload.info_hashes() {
            writeln!(file, "{hash}")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
