//! Figures of one moment or one span of time, computed from counters.

use std::time::{Instant, SystemTime};

use serde_json::Value;
use tracker::counters::{Counters, DropReason, Latency, Listener, Protocol};
use types::Refusal;

use crate::clock::since_epoch;
use crate::sources::MetricSources;

/// The fields of a sample. Those that end with `_s` are rates per second.
pub(crate) const FIELDS: [&str; 18] = [
    "time",
    "udp_s",
    "http_s",
    "https_s",
    "ws_s",
    "wss_s",
    "p50_us",
    "p99_us",
    "refusals_s",
    "drops_s",
    "bytes_in_s",
    "bytes_out_s",
    "torrents",
    "seeders",
    "leechers",
    "connections",
    "cpu",
    "memory",
];

/// Values in the order of [`FIELDS`].
pub(crate) type Sample = [f64; FIELDS.len()];

/// The counters at one moment.
#[derive(Clone)]
pub(super) struct CounterSnapshot {
    /// Unix time, seconds.
    pub(super) time: u64,
    pub(super) at: Instant,
    pub(super) counters: Counters,
    /// By protocol.
    requests: [u64; Protocol::ALL.len()],
    cpu_s: f64,
}

impl CounterSnapshot {
    pub(super) fn new(listeners: &[(Listener, Counters)], cpu_s: f64) -> Self {
        let mut all = Counters::default();
        let mut requests = [0; Protocol::ALL.len()];
        for (listener, counters) in listeners {
            all.add(counters);
            let sum: u64 = counters.requests.as_flattened().iter().sum();
            requests[listener.protocol.index()] += sum;
        }
        // Not needed here: snapshots are kept for half an hour.
        (all.clients, all.busy_networks) = Default::default();
        let time = since_epoch(SystemTime::now()).as_secs();
        Self { time, at: Instant::now(), counters: all, requests, cpu_s }
    }

    /// Returns how often each refusal and each drop happened since `last`, without those that did not, by
    /// their labels.
    pub(super) fn reasons_since(&self, last: &Self) -> [Vec<(&'static str, u64)>; 2] {
        let grown = |labels: &[&'static str], new: &[u64], old: &[u64]| {
            let grown = new.iter().zip(old).map(|(new, old)| new.saturating_sub(*old));
            labels.iter().copied().zip(grown).filter(|(_, count)| *count > 0).collect()
        };
        let (new, old) = (&self.counters, &last.counters);
        let refusals = grown(&Refusal::ALL.map(Refusal::label), &new.refusals, &old.refusals);
        [refusals, grown(&DropReason::ALL.map(DropReason::label), &new.drops, &old.drops)]
    }
}

/// Computes rates between two snapshots.
pub(super) fn sample(
    sources: &MetricSources,
    last: &CounterSnapshot,
    now: &CounterSnapshot,
) -> Sample {
    let passed_s = now.at.duration_since(last.at).as_secs_f64().max(0.001);
    let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / passed_s;
    let requests =
        |protocol: Protocol| rate(now.requests[protocol.index()], last.requests[protocol.index()]);
    let (new, old) = (&now.counters, &last.counters);
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    let totals = sources.tracker.totals();
    [
        now.time as f64,
        requests(Protocol::Udp),
        requests(Protocol::Http),
        requests(Protocol::Https),
        requests(Protocol::Ws),
        requests(Protocol::Wss),
        quantile_us(0.5, &new.latency, &old.latency),
        quantile_us(0.99, &new.latency, &old.latency),
        rate(sum(&new.refusals), sum(&old.refusals)),
        rate(sum(&new.drops), sum(&old.drops)),
        rate(new.bytes_in, old.bytes_in),
        rate(new.bytes_out, old.bytes_out),
        totals.torrents as f64,
        (totals.v4.seeders + totals.v6.seeders + totals.web.seeders) as f64,
        (totals.v4.leechers + totals.v6.leechers + totals.web.leechers) as f64,
        new.connections_open as f64,
        (now.cpu_s - last.cpu_s) / passed_s,
        (sources.process)().resident_bytes as f64,
    ]
}

/// Returns the quantile `part` of the latencies between two snapshots in microseconds, interpolated within its
/// bucket; 0 without responses.
fn quantile_us(part: f64, new: &Latency, old: &Latency) -> f64 {
    let responses: Vec<u64> =
        new.buckets.iter().zip(old.buckets).map(|(new, old)| new.saturating_sub(old)).collect();
    let wanted = responses.iter().sum::<u64>() as f64 * part;
    let (mut before, mut low) = (0.0, 0.0);
    for (bucket, responses) in responses.iter().enumerate() {
        let responses = *responses as f64;
        let Some(high) = Latency::BOUNDS_US.get(bucket) else { break };
        if responses > 0.0 && before + responses >= wanted {
            return low + (f64::from(*high) - low) * (wanted - before) / responses;
        }
        (before, low) = (before + responses, f64::from(*high));
    }
    if before == 0.0 && wanted == 0.0 { 0.0 } else { low }
}

/// Rounds to three decimals, and writes whole numbers as integers, to keep the text short.
pub(crate) fn rounded(sample: &Sample) -> Value {
    let number = |figure: &f64| match (figure * 1000.0).round() / 1000.0 {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => Value::from(whole as i64),
        figure => Value::from(figure),
    };
    sample.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let none = Latency::default();
        let mut some = none;
        assert_eq!(quantile_us(0.5, &some, &none), 0.0);
        some.observe(Duration::from_micros(7), 98);
        some.observe(Duration::from_micros(700), 2);
        assert!((5.0..=10.0).contains(&quantile_us(0.5, &some, &none)));
        assert!((500.0..=1000.0).contains(&quantile_us(0.99, &some, &none)));
        let mut slow = none;
        slow.observe(Duration::from_secs(1), 1);
        assert_eq!(quantile_us(0.99, &slow, &none), 100_000.0);
    }
}
