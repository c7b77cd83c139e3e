//! Recent statistics for the dashboard's charts and `tidegate top`: a sample each second for ten minutes, and
//! one each minute for a day. The same data as `/metrics`, without a Prometheus server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tracker::counters::{Counters, DropReason, Latency, Listener, Protocol};
use types::Refusal;

use crate::clients::samples_by_name;
use crate::clock::since_epoch;
use crate::cluster::ClusterDigest;
use crate::json::json_text;
use crate::sources::MetricSources;
use crate::swarms::Swarms;

/// Samples kept: ten minutes of seconds, a day of minutes.
const SECONDS: usize = 600;
const MINUTES: usize = 1440;
/// Messages queued for the slowest stream.
const QUEUE_MAX: usize = 64;
/// Seconds between details.
const DETAILS_PERIOD_S: u64 = 5;

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
type Sample = [f64; FIELDS.len()];

/// Keeps samples and sends them to streams.
pub(crate) struct Recorder {
    history: Mutex<History>,
    subscribers: broadcast::Sender<Arc<StatsMessage>>,
}

/// A message to streams: the name of the event, and JSON.
pub(crate) struct StatsMessage {
    pub(crate) name: &'static str,
    pub(crate) data: String,
}

#[derive(Default)]
struct History {
    seconds: VecDeque<Sample>,
    minutes: VecDeque<Sample>,
    last: Option<CounterSnapshot>,
    /// The counters at the last details.
    last_details: Option<CounterSnapshot>,
    /// The last details.
    details: Option<Arc<StatsMessage>>,
    samples_total: u64,
}

/// The counters at one moment.
#[derive(Clone)]
struct CounterSnapshot {
    at: Instant,
    counters: Counters,
    requests: BTreeMap<&'static str, u64>,
    cpu_s: f64,
}

/// Data sent less often than samples.
#[derive(Serialize)]
struct Details {
    /// Rates per second by reason.
    drops: BTreeMap<&'static str, f64>,
    refusals: BTreeMap<&'static str, f64>,
    /// Shares of client software.
    clients: BTreeMap<&'static str, f64>,
    bans: usize,
    keys: usize,
    allowed: usize,
    denied: usize,
    uptime_s: f64,
    downloads: u64,
    memory_used: u64,
    memory_budget: Option<u64>,
    /// As in `/stats`.
    swarms: Swarms,
    /// `null` outside a cluster.
    cluster: Option<ClusterDigest>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { history: Mutex::default(), subscribers: broadcast::Sender::new(QUEUE_MAX) }
    }
}

impl Recorder {
    /// Takes a sample. Call each second.
    pub(crate) fn record(&self, sources: &MetricSources) {
        let listeners = sources.registry.read();
        let snapshot = CounterSnapshot::new(&listeners, (sources.process)().cpu_s);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &history.last {
            let sample = sample(sources, last, &snapshot);
            history.keep(sample);
            // Without subscribers there is nothing to serialize.
            if self.subscribers.receiver_count() > 0 {
                let data = rounded(&sample).to_string();
                let _ = self.subscribers.send(Arc::new(StatsMessage { name: "sample", data }));
            }
        }
        let is_due = |last: &CounterSnapshot| {
            snapshot.at.duration_since(last.at).as_secs() >= DETAILS_PERIOD_S
        };
        if history.last_details.as_ref().is_none_or(is_due) {
            let before = history.last_details.replace(snapshot.clone());
            let data = details(sources, &listeners, before.as_ref(), &snapshot);
            let message = Arc::new(StatsMessage { name: "details", data });
            history.details = Some(Arc::clone(&message));
            // Fails only without subscribers.
            let _ = self.subscribers.send(message);
        }
        history.last = Some(snapshot);
    }

    /// Returns messages with everything so far, and a receiver of all later messages.
    pub(crate) fn subscribe(
        &self,
    ) -> (Vec<Arc<StatsMessage>>, broadcast::Receiver<Arc<StatsMessage>>) {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no sample is missed or sent twice.
        let receiver = self.subscribers.subscribe();
        let rows = |samples: &VecDeque<Sample>| samples.iter().map(rounded).collect::<Vec<_>>();
        let (seconds, minutes) = (rows(&history.seconds), rows(&history.minutes));
        let data = json!({ "fields": FIELDS, "seconds": seconds, "minutes": minutes });
        let start = Arc::new(StatsMessage { name: "history", data: data.to_string() });
        ([start].into_iter().chain(history.details.clone()).collect(), receiver)
    }
}

impl History {
    fn keep(&mut self, sample: Sample) {
        self.samples_total += 1;
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(sample);
        if self.samples_total.is_multiple_of(60) {
            if self.minutes.len() == MINUTES {
                self.minutes.pop_front();
            }
            let minute = self.seconds.iter().rev().take(60);
            let count = minute.len() as f64;
            let mut mean = [0.0; FIELDS.len()];
            minute.for_each(|sample| {
                mean.iter_mut().zip(sample).for_each(|(to, of)| *to += of / count)
            });
            [mean[0], ..] = sample;
            self.minutes.push_back(mean);
        }
    }
}

impl CounterSnapshot {
    fn new(listeners: &[(Listener, Counters)], cpu_s: f64) -> Self {
        let mut all = Counters::default();
        let mut requests = BTreeMap::new();
        for (listener, counters) in listeners {
            all.add(counters);
            let sum: u64 = counters.requests.as_flattened().iter().sum();
            *requests.entry(listener.protocol.label()).or_default() += sum;
        }
        Self { at: Instant::now(), counters: all, requests, cpu_s }
    }
}

/// Computes rates between two snapshots.
fn sample(sources: &MetricSources, last: &CounterSnapshot, now: &CounterSnapshot) -> Sample {
    let passed_s = now.at.duration_since(last.at).as_secs_f64().max(0.001);
    let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / passed_s;
    let requests = |protocol: Protocol| {
        let of = |snapshot: &CounterSnapshot| {
            snapshot.requests.get(protocol.label()).copied().unwrap_or(0)
        };
        rate(of(now), of(last))
    };
    let (new, old) = (&now.counters, &last.counters);
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    let time = since_epoch(SystemTime::now());
    let totals = sources.tracker.totals();
    [
        time.as_secs() as f64,
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

fn details(
    sources: &MetricSources,
    listeners: &[(Listener, Counters)],
    before: Option<&CounterSnapshot>,
    now: &CounterSnapshot,
) -> String {
    let zero = Counters::default();
    let old = before.map_or(&zero, |before| &before.counters);
    let passed_s = before.map_or(f64::INFINITY, |old| now.at.duration_since(old.at).as_secs_f64());
    let rates = |names: &mut dyn Iterator<Item = &'static str>, new: &[u64], old: &[u64]| {
        let rates =
            new.iter().zip(old).map(|(new, old)| new.saturating_sub(*old) as f64 / passed_s);
        names.zip(rates).filter(|(_, rate)| *rate > 0.0).collect::<BTreeMap<_, _>>()
    };
    let clients = samples_by_name(listeners);
    let samples = clients.values().sum::<u64>().max(1) as f64;
    let (tracker, totals) = (&sources.tracker, sources.tracker.totals());
    let details = Details {
        drops: rates(
            &mut DropReason::ALL.into_iter().map(DropReason::label),
            &now.counters.drops,
            &old.drops,
        ),
        refusals: rates(
            &mut Refusal::ALL.into_iter().map(Refusal::label),
            &now.counters.refusals,
            &old.refusals,
        ),
        clients: clients.into_iter().map(|(name, count)| (name, count as f64 / samples)).collect(),
        bans: tracker.bans().len(),
        keys: tracker.passkeys().len(),
        allowed: tracker.allowed().len(),
        denied: tracker.denied().len(),
        uptime_s: (sources.process)().uptime_s,
        downloads: totals.downloads,
        memory_used: totals.memory_used,
        memory_budget: tracker.memory_budget(),
        swarms: Swarms::new((sources.journal)().as_ref()),
        cluster: sources.cluster().as_ref().map(ClusterDigest::new),
    };
    json_text(&details)
}

/// Rounds to three decimals, and writes whole numbers as integers, to keep the history short.
fn rounded(sample: &Sample) -> Value {
    let number = |figure: &f64| match (figure * 1000.0).round() / 1000.0 {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => Value::from(whole as i64),
        figure => Value::from(figure),
    };
    sample.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracker::ListenerPolicyId;
    use tracker::RequestKind;
    use types::Family;

    use super::*;
    use crate::metrics::tests::sources;

    #[test]
    fn keeps_and_sends_samples() {
        let sources = sources();
        let _ = sources.cluster.set(Box::new(crate::metrics::tests::cluster));
        let (address, listener_policy) = ("1.2.3.4:5".parse().unwrap(), ListenerPolicyId(0));
        let mut metrics = sources.registry.register(Listener {
            protocol: Protocol::Udp,
            address,
            listener_policy,
        });
        let recorder = Recorder::default();
        recorder.record(&sources);
        let (history, mut messages) = recorder.subscribe();
        assert_eq!([history[0].name, history[1].name], ["history", "details"]);
        let history: Value = serde_json::from_str(&history[0].data).unwrap();
        assert_eq!(history["fields"].as_array().unwrap().len(), FIELDS.len());
        assert_eq!(history["seconds"], json!([]), "a first sample needs two snapshots");
        metrics.counters.request(Family::V4, RequestKind::Announce);
        metrics.counters.latency.observe(Duration::from_micros(15), 1);
        metrics.publish();
        recorder.record(&sources);
        let sample = messages.try_recv().unwrap();
        let row: Vec<f64> = serde_json::from_str(&sample.data).unwrap();
        assert_eq!((sample.name, row.len()), ("sample", FIELDS.len()));
        assert!(row[1] > 0.0 && row[2] == 0.0, "{row:?}");
        assert!(row[6] > 10.0 && row[6] <= 20.0, "{row:?}");
        assert!(messages.try_recv().is_err(), "details come every five seconds");
        recorder.history.lock().unwrap().last_details = None;
        recorder.record(&sources);
        messages.try_recv().unwrap();
        let details: Value = serde_json::from_str(&messages.try_recv().unwrap().data).unwrap();
        assert_eq!(details["clients"], json!({ "other": 0.0 }));
        let swarms = json!({
            "journal": "stopped", "round_age_s": 61, "disk_bytes": 16, "restored": 3
        });
        assert_eq!(details["swarms"], swarms);
        let cluster = json!({
            "node": 1, "state": "linked", "heard": 0, "others": 1, "lag_s": 0.0,
            "unstored_bytes": 0, "problems": 1
        });
        assert_eq!(details["cluster"], cluster);
    }

    #[test]
    fn history_is_limited_and_minutes_are_means() {
        let mut history = History::default();
        for number in 0..SECONDS * 2 {
            history.keep([number as f64; FIELDS.len()]);
        }
        assert_eq!((history.seconds.len(), history.minutes.len()), (SECONDS, SECONDS * 2 / 60));
        assert_eq!(history.minutes[0][1], 29.5);
        assert_eq!(history.minutes[0][0], 59.0, "a minute has the time of its end");
    }

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
