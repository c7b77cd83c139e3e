//! Where metrics and statistics come from: handles to the tracker, the workers' counters and the
//! application's own state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tracker::Tracker;
use tracker::counters::MetricsRegistry;
use types::Tick;

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
    /// Returns every host name with the expiry of its certificate; called at each scrape.
    pub certificates: Box<dyn Fn() -> BTreeMap<String, SystemTime> + Send + Sync>,
    /// Attempts to obtain certificates from an ACME server.
    pub acme: AcmeAttempts,
    /// The version, as `1.2.3`.
    pub version: &'static str,
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
    /// The swarms of the process that this one has replaced, once known.
    pub upgrade: OnceLock<Arc<UpgradeStats>>,
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
