//! Options of the load testers.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::load::http::HttpOptions;
use ::load::udp::UdpOptions;
use ::load::ws::{AnnounceTiming, WsOptions};
use ::load::{LoopMode, Mix, RunPlan, Spread, TrackerUrl, Workload};
use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};

/// Load a UDP tracker: many peers share a few sockets. In the closed loop a request follows each
/// response; with --rate requests are sent on schedule whatever the responses.
#[derive(Args)]
pub(crate) struct Udp {
    /// Tracker URL: `udp://HOST:PORT[/PATH]`; the path is sent as BEP 41 options.
    #[arg(value_parser = TrackerUrl::udp)]
    url: TrackerUrl,
    /// Sockets per thread.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=4096))]
    sockets: u32,
    /// Outstanding requests, all threads together.
    #[arg(long, value_name = "N", default_value_t = 512, conflicts_with = "rate",
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    outstanding: u32,
    /// Ratio of connects, announces and scrapes.
    #[arg(long, value_name = "C:A:S", default_value = "1:100:1")]
    mix: Mix,
    /// Send each datagram alone, without UDP segmentation offload, which makes the tracker see
    /// bursts.
    #[arg(long)]
    no_offload: bool,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
}

/// Load an HTTP tracker. One request at a time is outstanding on each connection. In the closed
/// loop a request follows each response; with --rate requests are sent on schedule as long as a
/// connection is free.
#[derive(Args)]
pub(crate) struct Http {
    /// Announce URL: `http://HOST[:PORT]/announce` or `https://…`. Certificates are not verified.
    #[arg(value_parser = TrackerUrl::http)]
    url: TrackerUrl,
    /// Concurrent connections, all threads together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Open a new connection for each request; over TLS, each is a handshake.
    #[arg(long)]
    close: bool,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
}

/// Load a WebTorrent tracker. Every connection is one peer of one torrent. A busy peer announces
/// with offers, answers the offers it receives, and announces again after each response. The report
/// counts everything that the tracker delivers.
#[derive(Args)]
pub(crate) struct Ws {
    /// Tracker URL: `ws://HOST[:PORT][/PATH]` or `wss://…`. Certificates are not verified.
    #[arg(value_parser = TrackerUrl::web)]
    url: TrackerUrl,
    /// Announce at the tracker's interval instead of immediately, and send pings.
    #[arg(long, conflicts_with = "rate")]
    pub(super) idle: bool,
    /// Desktop clients (libtorrent 2.1) instead of browsers: every connection has N torrents, which it announces
    /// in turn at the tracker's interval, with ten offers each. `--peers` counts connections [default: 1000].
    #[arg(long, value_name = "N", conflicts_with_all = ["idle", "rate"], value_parser = value_parser!(u32).range(1..=10_000))]
    pub(super) desktop: Option<u32>,
    /// Offers per announce except a peer's first [default: 10; idle: 0].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    offers: Option<u32>,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
}

/// Options of all load testers.
#[derive(Args)]
pub(super) struct SharedArgs {
    /// Requests per second on a fixed schedule, all threads together.
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Number of torrents [default: 10000; WebTorrent: 4, idle 1000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000_000))]
    torrents: Option<u32>,
    /// Number of peers at a time [default: 100000; WebTorrent: 128, idle 10000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000_000))]
    peers: Option<u32>,
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
    /// Seconds to measure [default: 10; idle WebTorrent: 150].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    seconds: Option<u32>,
    /// Seconds of load before measuring.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warm_up: u32,
    /// Seed of torrents and peers; equal seeds produce equal requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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
    check_every: u32,
    /// Print progress every second even if standard error is not a terminal.
    #[arg(long)]
    pub(super) progress: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("must be between 0.01 and 10000000, found `{text}`")),
    }
}

impl Udp {
    pub(super) fn options(&self) -> Result<UdpOptions> {
        let usual = UdpOptions::of(self.shared.checked(&self.url)?);
        let closed = LoopMode::Closed { outstanding: self.outstanding };
        let workers = self.shared.workers;
        let workload = self.shared.workload(usual.workload);
        at_least(&workload, workers * self.sockets, "sockets")?;
        Ok(UdpOptions {
            workload,
            loop_mode: self.shared.rate.map_or(closed, |rate| LoopMode::Open { rate }),
            plan: self.shared.plan(usual.plan),
            mix: self.mix,
            workers,
            sockets: self.sockets,
            check_every: self.shared.check_every,
            offload: !self.no_offload,
            ..usual
        })
    }
}

impl Http {
    pub(super) fn options(&self) -> Result<HttpOptions> {
        let usual = HttpOptions::of(self.shared.checked(&self.url)?);
        let workload = self.shared.workload(usual.workload);
        at_least(&workload, self.connections, "connections")?;
        Ok(HttpOptions {
            workload,
            connections: self.connections,
            rate: self.shared.rate,
            plan: self.shared.plan(usual.plan),
            workers: self.shared.workers,
            close: self.close,
            check_every: self.shared.check_every,
            ..usual
        })
    }
}

impl Ws {
    pub(super) fn options(&self) -> Result<WsOptions> {
        let url = self.shared.checked(&self.url)?;
        let usual = match (self.desktop, self.idle) {
            (Some(torrents), _) => WsOptions::desktop(url, torrents),
            (None, true) => WsOptions::idle(url),
            (None, false) => WsOptions::busy(url),
        };
        // An announce requests peers by its offers, so there is no `want`.
        let mut workload = Workload { want: None, ..self.shared.workload(usual.workload) };
        if let Some(connections) = self.shared.peers {
            workload.peers = connections.saturating_mul(usual.peers_each);
        }
        Ok(WsOptions {
            workload,
            timing: self.shared.rate.map_or(usual.timing, AnnounceTiming::Paced),
            plan: self.shared.plan(usual.plan),
            workers: self.shared.workers,
            offers: self.offers.map_or(usual.offers, |offers| offers as usize),
            check_every: self.shared.check_every,
            ..usual
        })
    }
}

fn at_least(workload: &Workload, peers: u32, what: &str) -> Result<()> {
    ensure!(
        workload.peers >= peers,
        "--peers {}: must be at least the number of {what}",
        workload.peers
    );
    Ok(())
}

impl SharedArgs {
    /// Returns the URL with its users' keys. Fails for public addresses unless
    /// `--i-own-this-tracker` is given.
    fn checked(&self, url: &TrackerUrl) -> Result<TrackerUrl> {
        ensure!(
            url.is_private() || self.i_own_this_tracker,
            "{url} is outside this machine and private networks: \
             pass --i-own-this-tracker if you may load it"
        );
        url.clone().with_keys(&self.keys.as_deref().map_or(Ok(Vec::new()), keys)?)
    }

    /// Returns the usual plan but for what is given.
    fn plan(&self, usual: RunPlan) -> RunPlan {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        RunPlan {
            warm_up: seconds(self.warm_up),
            duration: self.seconds.map_or(usual.duration, seconds),
            pid: self.pid,
        }
    }

    /// Returns the usual workload but for what is given.
    fn workload(&self, usual: Workload) -> Workload {
        Workload {
            seed: self.seed,
            torrents: self.torrents.unwrap_or(usual.torrents),
            peers: self.peers.unwrap_or(usual.peers),
            spread: self.spread.unwrap_or(usual.spread),
            completes_percent: self.completes,
            churn_percent: self.churn,
            want: u16::try_from(self.numwant).ok(),
            ..usual
        }
    }

    /// Writes the info hashes of all torrents, one per line, if that is asked. Returns whether it is.
    pub(super) fn write_hashes(&self, workload: &Workload) -> Result<bool> {
        let Some(path) = &self.write_hashes else { return Ok(false) };
        let write = || {
            let mut file = BufWriter::new(File::create(path)?);
            for hash in workload.info_hashes() {
                writeln!(file, "{hash}")?;
            }
            file.flush()
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(true)
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
