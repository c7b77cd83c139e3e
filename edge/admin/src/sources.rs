//! Where metrics and statistics come from: handles to the tracker, the workers' counters and the
//! application's own state.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use subsystem::Subsystems;
use tracker::Tracker;
use tracker::counters::MetricsRegistry;
use types::Tick;

use crate::networks::NetworkStats;
use crate::site::SiteSource;
use crate::torrent_names::TorrentNames;
use utoipa::ToSchema;

/// Everything that `/metrics`, `/health` and the API's statistics read.
pub struct MetricSources {
    /// The tracker itself.
    pub tracker: Arc<Tracker>,
    /// The counters that workers publish.
    pub registry: Arc<MetricsRegistry>,
    /// What the application reports about itself.
    pub status: Status,
    /// Returns the resources that the process has used; called at each scrape.
    pub process: fn() -> ProcessStats,
    /// Returns the tracker's time.
    pub clock: Box<dyn Fn() -> Tick + Send + Sync>,
    /// Returns every host name with the validity of its certificate; called at each scrape.
    pub certificates: Box<dyn Fn() -> BTreeMap<String, Range<SystemTime>> + Send + Sync>,
    /// Attempts to obtain certificates from an ACME server.
    pub acme: AcmeAttempts,
    /// Returns what the journal of swarms is doing, or `None` if it is off.
    pub journal: Box<dyn Fn() -> Option<JournalStats> + Send + Sync>,
    /// Parts of the tracker that show their state themselves.
    pub subsystems: Subsystems,
    /// The site whose users announce. Set once if there is one.
    pub site: OnceLock<Arc<dyn SiteSource>>,
    /// Returns the datagrams that the kernel has dropped since the start because the receive buffers of the UDP
    /// sockets were full; called each second. Set once if the system counts them.
    pub receive_losses: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
    /// The version, as `1.2.3`.
    pub version: &'static str,
}

impl MetricSources {
    /// Returns the datagrams that did not fit into the receive buffers of UDP sockets.
    pub(crate) fn receive_losses(&self) -> u64 {
        self.receive_losses.get().map_or(0, |losses| losses())
    }
}

/// Longest time before its expiry at which a certificate should have been renewed. ACME renews those of 90 days 30 days
/// before.
const RENEWED_BEFORE_MAX: Duration = Duration::from_secs(14 * 24 * 3600);

/// Returns whether a certificate should have been renewed by `now`: if less than 14 days are left, or less than a third of
/// a short lifetime.
pub fn is_renewal_late(validity: &Range<SystemTime>, now: SystemTime) -> bool {
    let left = validity.end.duration_since(now).unwrap_or_default();
    let lifetime = validity.end.duration_since(validity.start).unwrap_or_default();
    left < RENEWED_BEFORE_MAX.min(lifetime / 3)
}

/// State that the application reports.
#[derive(Debug, Default)]
pub struct Status {
    /// True while every listener serves and no shutdown is under way.
    pub ready: AtomicBool,
    /// Reloads of configuration and lists that were applied since the start.
    pub reloads: AtomicU64,
    /// Reloads that failed; the previous configuration and lists stayed in force.
    pub reload_failures: AtomicU64,
    /// Why the last reload failed; `None` if it did not.
    pub reload_failure: Mutex<Option<ReloadFailure>>,
    /// The swarms of the process that this one has replaced, once known.
    pub upgrade: OnceLock<Arc<UpgradeStats>>,
    /// The engine of the UDP listeners, e.g. `mmsg` or `shield (driver)`.
    pub udp_engine: OnceLock<String>,
    /// Why the engine is not the configured one, if so: a sentence without a full stop.
    pub udp_fallback: OnceLock<String>,
    /// What the XDP program has done. Empty without one.
    pub xdp: Mutex<XdpStats>,
    /// Peers by network. Empty without files that say where networks belong.
    pub networks: Mutex<Arc<NetworkStats>>,
    /// Names of torrents.
    pub torrent_names: Arc<TorrentNames>,
    /// Requests for the keys of tokens that failed.
    pub jwt_key_failures: AtomicU64,
}

impl Status {
    /// Returns the last count of peers by network.
    pub(crate) fn networks(&self) -> Arc<NetworkStats> {
        Arc::clone(&self.networks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the count of peers by network.
    pub fn set_networks(&self, stats: NetworkStats) {
        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(stats);
    }

    /// Returns why the last reload failed.
    pub(crate) fn reload_failure(&self) -> Option<ReloadFailure> {
        self.reload_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces why the last reload failed.
    pub fn set_reload_failure(&self, failure: Option<ReloadFailure>) {
        *self.reload_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Returns what the XDP program has done.
    pub(crate) fn xdp(&self) -> XdpStats {
        // Replaced as a whole, so a panic elsewhere does not matter.
        self.xdp.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a reload failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadFailure {
    /// The configuration file; `None`: there is none.
    pub file: Option<PathBuf>,
    /// The first mistake.
    pub error: String,
}

/// What the XDP program has done since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpStats {
    /// The interfaces that it is attached to.
    pub interfaces: Vec<XdpInterface>,
    /// AF_XDP sockets, by state.
    pub sockets: Vec<(&'static str, u64)>,
}

/// An interface with the XDP program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpInterface {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Where the program runs: driver or generic.
    pub mode: &'static str,
    /// Whether the driver writes into the tracker's memory.
    pub zero_copy: bool,
    /// Whether it is there and up.
    pub is_up: bool,
    /// Datagrams for listeners, by what was done with them.
    pub frames: Vec<(&'static str, u64)>,
    /// Frames that AF_XDP sockets lost.
    pub ring_drops: Vec<XdpRingDrops>,
}

/// Frames that an AF_XDP socket lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpRingDrops {
    /// The queue of the interface.
    pub queue: u32,
    /// What happened to which ring.
    pub ring: &'static str,
    /// How many.
    pub frames: u64,
}

/// Swarms received from the old process in an upgrade. All 0 if there was none.
#[derive(Debug, Default)]
pub struct UpgradeStats {
    /// Bytes received so far.
    pub bytes: AtomicU64,
    /// How long it took until everything was there that the old process had when it began to send.
    pub milliseconds: AtomicU64,
}

/// Attempts to obtain a certificate, by result.
#[derive(Debug, Default)]
pub struct AcmeAttempts {
    /// A certificate was issued.
    pub obtained: AtomicU64,
    /// The ACME server could not be reached, or failed.
    pub unreachable: AtomicU64,
    /// The ACME server refused.
    pub refused: AtomicU64,
}

/// Resources that the process has used.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStats {
    /// When the process started.
    pub started: SystemTime,
    /// Seconds since the start, by a clock that is never set.
    pub uptime_s: f64,
    /// Seconds of CPU time, user and system.
    pub cpu_s: f64,
    /// Bytes resident in memory.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_fds: u64,
}

/// What the journal of swarms is doing, in numbers. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalStats {
    /// What it is doing now.
    pub state: JournalState,
    /// Bytes written, by kind of block.
    pub bytes: Vec<(&'static str, u64)>,
    /// Blocks written, by kind.
    pub blocks: Vec<(&'static str, u64)>,
    /// Times that writing stopped, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// What was not restored, by reason.
    pub skipped: Vec<(&'static str, u64)>,
    /// Size on the disk, in bytes.
    pub disk_bytes: u64,
    /// Files on the disk.
    pub segments: u64,
    /// Seconds since the last complete round began, or since the start.
    pub round_age_s: f64,
    /// Age of the oldest change that is not written, in seconds.
    pub lag_s: f64,
    /// Times that the journal was forced to the disk.
    pub syncs: u64,
    /// Seconds that these took.
    pub sync_s: f64,
    /// Changes lost because too many waited.
    pub missed: u64,
    /// Peers restored at the start.
    pub restored_peers: u64,
    /// Torrents restored at the start.
    pub restored_torrents: u64,
    /// Seconds that restoring took; 0 until it has ended.
    pub restore_s: f64,
}

/// What a journal is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalState {
    /// There is none: swarms are lost when the process ends.
    Off,
    /// Peers are being restored from it. It is written after that.
    Restoring,
    /// Changes are written as they happen.
    Writing,
    /// The disk or another process prevents writing.
    #[default]
    Stopped,
}
