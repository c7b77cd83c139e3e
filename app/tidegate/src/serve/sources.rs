//! The sources of metrics: what they read of the process.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use admin::{AcmeAttempts, MetricSources, ProcessStats, Status};
use net::process::usage;
use net::{ReceiveLosses, UdpSocket};
use subsystem::Subsystems;
use tracing::debug;
use tracker::counters::MetricsRegistry;

use super::listeners::BoundListener;
use super::module::Shared;
use crate::access::TorrentFolders;

/// Returns the sources of metrics. Uptime counts from the first call: after an upgrade, the tracker's own clock
/// continues the old one.
pub(super) fn metric_sources(shared: &Shared, folders: &TorrentFolders) -> MetricSources {
    let _ = start();
    let status = Status { torrent_names: Arc::clone(folders.names()), ..Status::default() };
    let _ = status.upgrade.set(Arc::clone(&shared.upgrade_stats));
    let clock = shared.clock;
    let certificates = Arc::clone(&shared.certificates);
    MetricSources {
        tracker: Arc::clone(&shared.tracker),
        registry: Arc::<MetricsRegistry>::default(),
        status,
        process,
        clock: Box::new(move || clock.now()),
        certificates: Box::new(move || certificates.validities()),
        acme: AcmeAttempts::default(),
        subsystems: Subsystems::default(),
        site: OnceLock::new(),
        receive_losses: OnceLock::new(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Shows the engine of UDP, and why it is not the configured one, if so. Call once.
pub(super) fn show_engine(sources: &MetricSources, engine: String, fallback: Option<String>) {
    let _ = sources.status.udp_engine.set(engine);
    let _ = fallback.map(|why| sources.status.udp_fallback.set(why));
}

/// Begins to count the datagrams that do not fit into the receive buffers of these sockets.
pub(super) fn count_losses(sources: &MetricSources, listeners: &[BoundListener<UdpSocket>]) {
    let sockets = listeners.iter().flat_map(|listener| &listener.sockets);
    match ReceiveLosses::of(sockets) {
        Ok(losses) => {
            let losses = Mutex::new(losses);
            let count = move || losses.lock().unwrap_or_else(PoisonError::into_inner).count();
            let _ = sources.receive_losses.set(Box::new(count));
        }
        Err(error) => debug!(%error, "the system does not count full receive buffers"),
    }
}

pub(super) fn uptime() -> Duration {
    start().1.elapsed()
}

/// Returns when this process started, by the wall clock and a monotonic one.
fn start() -> (SystemTime, Instant) {
    static START: OnceLock<(SystemTime, Instant)> = OnceLock::new();
    *START.get_or_init(|| (SystemTime::now(), Instant::now()))
}

fn process() -> ProcessStats {
    let usage = usage();
    ProcessStats {
        started: start().0,
        uptime_s: uptime().as_secs_f64(),
        cpu_s: usage.user_s + usage.system_s,
        resident_bytes: usage.resident_bytes,
        open_fds: usage.descriptors,
    }
}
