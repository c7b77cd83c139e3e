//! Where metrics and statistics come from: handles to the tracker, the workers' counters and the
//! application's own state.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};
use subsystem::Subsystems;
use tracker::Tracker;
use tracker::counters::MetricsRegistry;
use types::Tick;

use crate::site::SiteSource;
use crate::torrent_names::TorrentNames;

/// Everything that `/metrics`, `/health` and the API's statistics read.
pub struct MetricSources {
    /// The tracker itself.
    pub tracker: Arc<Tracker>,
    /// The counters that workers publish.
    pub registry: Arc<MetricsRegistry>,
    /// State that the application reports about itself.
    pub status: Status,
    /// Returns the resources that the process has used; called at each scrape.
    pub process: fn() -> ProcessStats,
    /// Returns the tracker's time.
    pub clock: Box<dyn Fn() -> Tick + Send + Sync>,
    /// Returns every host name with the validity of its certificate; called at each scrape.
    pub certificates: Box<dyn Fn() -> BTreeMap<String, Range<SystemTime>> + Send + Sync>,
    /// Attempts to obtain certificates from an ACME server.
    pub acme: AcmeAttempts,
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
    /// Returns the state of the journal of swarms, which says so if there is none.
    pub(crate) fn swarms(&self) -> Value {
        let none =
            || json!({ "journal": "off", "round_age_s": null, "disk_bytes": 0, "restored": 0 });
        self.subsystems.read("journal").map_or_else(none, |it| it.digest())
    }

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
    /// Names of torrents.
    pub torrent_names: Arc<TorrentNames>,
    /// Requests for the keys of tokens that failed.
    pub jwt_key_failures: AtomicU64,
}

impl Status {
    pub(crate) fn reload_failure(&self) -> Option<ReloadFailure> {
        self.reload_failure.lock().clone()
    }

    /// Replaces why the last reload failed.
    pub fn set_reload_failure(&self, failure: Option<ReloadFailure>) {
        *self.reload_failure.lock() = failure;
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

/// Swarms received from the old process in an upgrade. All 0 if there was none.
#[derive(Debug, Default)]
pub struct UpgradeStats {
    /// Bytes received so far.
    pub bytes: AtomicU64,
    /// Time until this process had everything that the old one had when it began to send, in milliseconds.
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

#[cfg(test)]
mod tests {
    use subsystem::Subsystem;

    #[test]
    fn a_tracker_without_a_journal_shows_one_that_is_off() {
        let sources = crate::metrics::tests::sources();
        let sources = super::MetricSources { subsystems: Default::default(), ..sources };
        assert_eq!(sources.swarms(), journal::JournalStatus::default().to_json());
    }
}
