//! Options that the load testers share.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::load::{RunPlan, Spread, TrackerUrl, Workload};
use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};

/// Options of all load testers.
#[derive(Args)]
pub(super) struct RunArgs {
    /// Seconds to measure [default: 10; idle WebTorrent: 150].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    seconds: Option<u32>,
    /// Seconds of load before measuring.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warm_up: u32,
    /// Seed of torrents and peers; equal seeds produce equal requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The tracker's process ID on this machine; reports the resources it and its child processes
    /// use.
    #[arg(long, value_name = "NUMBER")]
    pid: Option<u32>,
    /// File with the keys of a private tracker's users, one per line, all of equal length. Each
    /// peer gets one in turn, in place of `{key}` in the URL.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Allow trackers outside this machine and private networks.
    #[arg(long)]
    i_own_this_tracker: bool,
    /// Validate one in N responses.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    pub(super) check_every: u32,
    /// Print progress every second even if standard error is not a terminal.
    #[arg(long)]
    pub(super) progress: bool,
}

/// Options about torrents and peers.
#[derive(Args)]
pub(super) struct WorkloadArgs {
    /// Number of torrents [default: 10000; WebTorrent: 4, idle 1000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000_000))]
    torrents: Option<u32>,
    /// Number of peers at a time [default: 100000; WebTorrent: 128, idle 10000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub(super) peers: Option<u32>,
    /// Distribution of peers over torrents: uniform or real [default: real; WebTorrent: uniform].
    #[arg(long, value_name = "NAME")]
    spread: Option<Spread>,
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

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("must be between 0.01 and 10000000, found `{text}`")),
    }
}

impl RunArgs {
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

    /// Returns the usual plan but for what is given.
    pub(super) fn plan(&self, usual: RunPlan) -> RunPlan {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        RunPlan {
            warm_up: seconds(self.warm_up),
            duration: self.seconds.map_or(usual.duration, seconds),
            pid: self.pid,
        }
    }
}

impl WorkloadArgs {
    /// Writes the info hashes if `--write-hashes` is given. Returns whether it did.
    pub(super) fn write_hashes_if_asked(&self, workload: &Workload) -> Result<bool> {
        let Some(file) = &self.write_hashes else { return Ok(false) };
        write_hashes(file, workload)?;
        Ok(true)
    }

    /// Returns the usual workload but for what is given.
    pub(super) fn workload(&self, seed: u64, usual: Workload) -> Workload {
        Workload {
            seed,
            torrents: self.torrents.unwrap_or(usual.torrents),
            peers: self.peers.unwrap_or(usual.peers),
            spread: self.spread.unwrap_or(usual.spread),
            completes_percent: self.completes,
            churn_percent: self.churn,
            want: u16::try_from(self.numwant).ok(),
            ..usual
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
fn write_hashes(path: &Path, workload: &Workload) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        for hash in workload.info_hashes() {
            writeln!(file, "{hash}")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
