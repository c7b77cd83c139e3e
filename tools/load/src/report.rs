//! The report of a run, as JSON.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counters::{Counters, WebTorrentCounters};
use crate::runner::{Load, Outcome};
use crate::{Latencies, LoopMode};

/// The results of a run. Field names are those of the JSON that is printed, and are stable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `udp`, `http` or `ws`.
    pub protocol: String,
    /// The tracker's URL.
    pub url: String,
    /// Seed of torrents and peers.
    pub seed: u64,
    /// Closed or open loop.
    #[serde(rename = "loop")]
    pub loop_mode: LoopMode,
    /// Measured seconds.
    pub seconds: f64,
    /// Requests, responses, errors and bytes.
    #[serde(flatten)]
    pub counts: Counters,
    /// Responses per second.
    pub responses_per_s: f64,
    /// Latencies: from a request's scheduled time in an open loop, from when it was sent in a
    /// closed one.
    pub latency_us: Quantiles,
    /// Fraction of the responses, from 0 to 1, that took longer than a millisecond.
    pub over_1_ms: f64,
    /// Mean number of peers in an announce response.
    pub peers_per_response: f64,
    /// WebTorrent's own results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<WebTorrentReport>,
    /// Resource usage of the load generator.
    pub generator: GeneratorUsage,
    /// Resource usage of the tracker, if its process is known.
    pub tracker: Option<TrackerUsage>,
    /// Why the run ended early, if it did.
    pub ended: Option<String>,
}

/// Latency quantiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Quantiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

/// WebTorrent's own results.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct WebTorrentReport {
    /// Peers whose first announce was answered.
    pub joined: u64,
    /// WebTorrent's counters.
    #[serde(flatten)]
    pub counts: WebTorrentCounters,
}

/// Resource usage of the load generator.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct GeneratorUsage {
    /// CPU time in seconds.
    pub cpu_s: f64,
    /// True if the load generator, not the tracker, limited the results.
    pub is_limit: bool,
    /// In an open loop, fraction of requests sent more than a millisecond late.
    pub schedule_slip: f64,
}

/// Resource usage of the tracker while it was measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TrackerUsage {
    /// Process ID.
    pub pid: u32,
    /// CPU seconds in user space.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub sys_s: f64,
    /// Resident memory at the end, in bytes.
    pub rss_bytes: u64,
    /// Peak resident memory, in bytes.
    pub rss_peak_bytes: u64,
    /// Responses per second of the tracker's CPU time; `None` if it used too little to measure.
    pub responses_per_cpu_s: Option<f64>,
}

/// A generator that waits for less than this fraction of the time limits the results.
const WAITING_MIN: f64 = 0.05;
/// A schedule counts as missed if more than this fraction of the requests are late.
const SLIP_MAX: f64 = 0.01;

impl Report {
    pub(crate) fn new(load: &Load<'_>, outcome: Outcome) -> Self {
        let generator = GeneratorUsage::of(load, &outcome);
        let Outcome { counters, seconds, tracker, ended, .. } = outcome;
        let all = counters.responses.all();
        let tracker = load.plan.pid.zip(tracker).map(|(pid, used)| TrackerUsage {
            pid,
            user_s: used.user_s,
            sys_s: used.system_s,
            rss_bytes: used.resident_bytes,
            rss_peak_bytes: used.peak_bytes,
            responses_per_cpu_s: (used.cpu_s() > 0.0).then(|| all as f64 / used.cpu_s()),
        });
        Self {
            protocol: load.protocol.to_owned(),
            url: load.url.to_string(),
            seed: load.seed,
            loop_mode: load.loop_mode,
            seconds,
            responses_per_s: all as f64 / seconds,
            latency_us: Quantiles::of(&counters.latencies),
            over_1_ms: counters.latencies.part_above(Duration::from_millis(1)),
            peers_per_response: counters.peers as f64 / counters.responses.announce.max(1) as f64,
            counts: counters,
            web: None,
            generator,
            tracker,
            ended,
        }
    }

    /// Returns the fraction of the requests that failed: refused, or answered by an invalid response.
    pub fn failed_part(&self) -> f64 {
        self.counts.errors.values().sum::<u64>() as f64 / self.counts.sent.max(1) as f64
    }

    /// Returns the fraction of the requests that were not answered.
    pub fn lost_part(&self) -> f64 {
        self.counts.lost as f64 / self.counts.sent.max(1) as f64
    }

    /// Returns the number of WebTorrent connections that lasted for the whole measurement.
    pub fn connections_kept(&self) -> u64 {
        self.web.map_or(0, |web| web.joined.saturating_sub(web.counts.connections_lost))
    }
}

impl Quantiles {
    fn of(latencies: &Latencies) -> Self {
        let us = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        let part = |part| us(latencies.quantile(part).unwrap_or_default());
        Self {
            mean: us(latencies.mean()),
            p50: part(0.5),
            p90: part(0.9),
            p99: part(0.99),
            p99_9: part(0.999),
            p99_99: part(0.9999),
            max: us(latencies.max()),
        }
    }
}

impl GeneratorUsage {
    fn of(load: &Load<'_>, outcome: &Outcome) -> Self {
        let counters = &outcome.counters;
        let waiting = counters.waited.as_secs_f64() / (outcome.seconds * f64::from(load.workers));
        // Requests may also be late because every connection waits for the tracker.
        let (schedule_slip, is_late) = match load.loop_mode {
            LoopMode::Closed { .. } => (0.0, true),
            LoopMode::Open { .. } => {
                let slip = counters.overdue as f64 / counters.sent.max(1) as f64;
                (slip, slip > SLIP_MAX)
            }
        };
        let is_limit = is_late && waiting < WAITING_MIN;
        let cpu_s = outcome.generator.map_or(0.0, |used| used.cpu_s());
        Self { cpu_s, is_limit, schedule_slip }
    }
}

/// Formats all figures as JSON over several lines.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        writeln!(f, "{text}")
    }
}
