//! Recent statistics for the dashboard's charts and `tidegate top`: a sample each second to streams, and the
//! history of 90 days. The same data as `/metrics`, without a Prometheus server.

mod history;
mod recent;
mod sample;
mod services;
mod torrents;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tracker::IpPrefix;
use tracker::counters::{BusyNetworks, Counters, Listener, ServicesReport};
use types::InfoHash;

use crate::annotation::Annotation;
use crate::clients::samples_by_name;
use crate::clock::since_epoch;
use crate::json::json_text;
use crate::records::tables::history::{PendingHistory, StoredRow};
use crate::records::tables::lists::List;
use crate::sources::MetricSources;

use history::History;
pub(crate) use history::{HistorySpan, StatsHistory, TorrentHistory};
use recent::Recent;
pub(crate) use recent::{Cause, CommonEnding};
use sample::{CounterSnapshot, FIELDS, Sample, rounded, sample};
use services::{Moment, Services};

/// Samples that a new stream gets.
const SECONDS: usize = 60;
/// Messages queued for the slowest stream.
const QUEUE_MAX: usize = 64;
/// Seconds between details.
const DETAILS_PERIOD_S: u64 = 5;
/// Torrents of a list that are followed without being looked at one by one.
const TOP_FOLLOWED: usize = 20;
/// Networks in details.
const NETWORKS_MAX: usize = 10;

/// Keeps samples and sends them to streams.
pub(crate) struct Recorder {
    state: Mutex<State>,
    subscribers: broadcast::Sender<Arc<StatsMessage>>,
}

/// A message to streams: the name of the event, and JSON.
pub(crate) struct StatsMessage {
    pub(crate) name: &'static str,
    pub(crate) data: String,
}

#[derive(Default)]
struct State {
    seconds: VecDeque<Sample>,
    history: History,
    services: Services,
    recent: Recent,
    last: Option<CounterSnapshot>,
    /// The counters at the last details.
    last_details: Option<CounterSnapshot>,
    details: Option<Arc<StatsMessage>>,
}

/// Data sent less often than samples.
#[derive(Serialize)]
struct Details {
    /// Rates per second by reason.
    drops: BTreeMap<&'static str, f64>,
    refusals: BTreeMap<&'static str, f64>,
    /// Shares of client software.
    clients: BTreeMap<&'static str, f64>,
    /// Shares of the networks that announce most.
    networks: BTreeMap<String, f64>,
    bans: usize,
    keys: usize,
    allowed: usize,
    denied: usize,
    uptime_s: f64,
    downloads: u64,
    memory_used: u64,
    memory_budget: Option<u64>,
    /// As in `/stats`.
    swarms: Value,
    /// `null` outside a cluster.
    cluster: Option<Value>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { state: Mutex::default(), subscribers: broadcast::Sender::new(QUEUE_MAX) }
    }
}

impl Recorder {
    /// Takes a sample. Call each second.
    pub(crate) fn record(&self, sources: &MetricSources) {
        let listeners = sources.registry.read();
        let snapshot = CounterSnapshot::new(&listeners, (sources.process)().cpu_s);
        let lost = sources.receive_losses();
        let mut state = self.state.lock();
        state.recent.add(snapshot.at, &snapshot.counters, lost);
        if let Some(last) = &state.last {
            let sample = sample(sources, last, &snapshot);
            state.keep(sample);
            // Without subscribers there is nothing to serialize.
            if self.subscribers.receiver_count() > 0 {
                self.send("sample", rounded(&sample).to_string());
            }
        }
        state.history.add(sources, &snapshot);
        let readings = state.services.read(&listeners, &sources.registry.publish_counts());
        let unix_ms = since_epoch(SystemTime::now()).as_millis() as u64;
        state.services.add(Moment { unix_ms, at: snapshot.at }, &readings);
        let is_due = |last: &CounterSnapshot| {
            snapshot.at.duration_since(last.at).as_secs() >= DETAILS_PERIOD_S
        };
        if state.last_details.as_ref().is_none_or(is_due) {
            let before = state.last_details.replace(snapshot.clone());
            let data = details(sources, &listeners, before.as_ref(), &snapshot);
            state.details = Some(self.send("details", data));
        }
        state.last = Some(snapshot);
    }

    /// Returns the datagrams that the kernel dropped in the last ten minutes because receive buffers were full.
    pub(crate) fn recent_losses(&self) -> u64 {
        self.state.lock().recent.losses()
    }

    /// Returns the cause by which nearly all requests of the last five minutes ended, if there is one.
    pub(crate) fn common_ending(&self) -> Option<CommonEnding> {
        self.state.lock().recent.common_ending()
    }

    /// Keeps an annotation, and sends it to streams.
    pub(crate) fn annotate(&self, annotation: Annotation) {
        let mut state = self.state.lock();
        self.send("annotation", json_text(&annotation));
        state.history.annotate(annotation);
    }

    /// Moves what the records do not have yet to `pending`.
    pub(crate) fn collect(&self, pending: &mut PendingHistory) {
        let mut state = self.state.lock();
        state.history.collect(pending);
        state.services.collect(pending);
    }

    /// Adds what the records have. Call before the first sample.
    pub(crate) fn restore(&self, stored: PendingHistory) {
        let mut state = self.state.lock();
        state.services.restore(&stored.rows, false);
        state.history.restore(stored);
    }

    /// Returns what the process that replaces this one needs and the records do not have: rows with steps too short for
    /// them, and rows that still change.
    pub(crate) fn brief_rows(&self) -> Vec<StoredRow> {
        let state = self.state.lock();
        let mut rows = state.history.brief_rows();
        rows.append(&mut state.services.rows());
        rows
    }

    /// Adds rows of an earlier process. Call before the first sample.
    pub(crate) fn restore_rows(&self, rows: Vec<StoredRow>) {
        let mut state = self.state.lock();
        state.services.restore(&rows, true);
        state.history.restore(PendingHistory { rows, annotations: Vec::new() });
    }

    /// Returns the traffic and the uptime of all services until `now`, a Unix time in seconds.
    pub(crate) fn services(&self, now: u64) -> ServicesReport {
        self.state.lock().services.report(now)
    }

    /// Returns what is known of a span that ends `now`, a Unix time in seconds.
    pub(crate) fn span(&self, span: HistorySpan, now: u64) -> StatsHistory {
        self.state.lock().history.span(span, now)
    }

    /// Returns what is known of a torrent within a span that ends `now`, a Unix time in seconds.
    pub(crate) fn torrent(&self, hash: &InfoHash, span: HistorySpan, now: u64) -> TorrentHistory {
        self.state.lock().history.torrent(hash, span, now)
    }

    /// Follows a torrent that an operator looks at.
    pub(crate) fn follow(&self, hash: InfoHash) {
        self.state.lock().history.followed.open(hash);
    }

    /// Follows the torrents at the top of a list, while there is room.
    pub(crate) fn follow_top(&self, hashes: impl Iterator<Item = InfoHash>) {
        let mut state = self.state.lock();
        hashes.take(TOP_FOLLOWED).for_each(|hash| state.history.followed.add(hash));
    }

    /// Returns messages with the last minute, and a receiver of all later messages.
    pub(crate) fn subscribe(
        &self,
    ) -> (Vec<Arc<StatsMessage>>, broadcast::Receiver<Arc<StatsMessage>>) {
        let state = self.state.lock();
        // Under the lock, so that no sample is missed or sent twice.
        let receiver = self.subscribers.subscribe();
        let seconds: Vec<_> = state.seconds.iter().map(rounded).collect();
        let data = json!({ "fields": FIELDS, "seconds": seconds }).to_string();
        let start = Arc::new(StatsMessage { name: "history", data });
        ([start].into_iter().chain(state.details.clone()).collect(), receiver)
    }

    fn send(&self, name: &'static str, data: String) -> Arc<StatsMessage> {
        let message = Arc::new(StatsMessage { name, data });
        // Fails only without subscribers.
        let _ = self.subscribers.send(Arc::clone(&message));
        message
    }
}

impl State {
    fn keep(&mut self, sample: Sample) {
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(sample);
    }
}

/// Returns the networks that announce most, with their shares of the sampled announces.
fn busy_networks(listeners: &[(Listener, Counters)]) -> BTreeMap<String, f64> {
    let mut all = BusyNetworks::default();
    listeners.iter().for_each(|(_, counters)| all.add(&counters.busy_networks));
    let mut known: Vec<(IpPrefix, u32)> = all.counts().to_vec();
    known.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
    known.truncate(NETWORKS_MAX);
    let share = |count| f64::from(count) / f64::from(all.total().max(1));
    known.into_iter().map(|(network, count)| (network.to_string(), share(count))).collect()
}

fn details(
    sources: &MetricSources,
    listeners: &[(Listener, Counters)],
    before: Option<&CounterSnapshot>,
    now: &CounterSnapshot,
) -> String {
    let rates = |before: &CounterSnapshot| -> [BTreeMap<&'static str, f64>; 2] {
        let passed_s = now.at.duration_since(before.at).as_secs_f64();
        now.reasons_since(before).map(|counts| {
            counts.into_iter().map(|(reason, count)| (reason, count as f64 / passed_s)).collect()
        })
    };
    let [refusals, drops] = before.map(rates).unwrap_or_default();
    let clients = samples_by_name(listeners);
    let samples = clients.values().sum::<u64>().max(1) as f64;
    let (tracker, totals) = (&sources.tracker, sources.tracker.totals());
    let details = Details {
        drops,
        refusals,
        clients: clients.into_iter().map(|(name, count)| (name, count as f64 / samples)).collect(),
        networks: busy_networks(listeners),
        bans: tracker.bans().len(),
        keys: tracker.passkeys().keys(),
        allowed: List::Allow.all_entries(tracker),
        denied: List::Deny.all_entries(tracker),
        uptime_s: (sources.process)().uptime_s,
        downloads: totals.downloads,
        memory_used: totals.memory_used,
        memory_budget: tracker.store().memory_budget(),
        swarms: sources.swarms(),
        cluster: sources.subsystems.read("cluster").map(|it| it.digest()),
    };
    json_text(&details)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracker::ListenerPolicyId;
    use tracker::RequestKind;
    use tracker::counters::Protocol;
    use types::Family;

    use super::*;
    use crate::metrics::tests::sources;

    #[test]
    fn keeps_and_sends_samples() {
        let sources = sources();
        sources.subsystems.add("cluster", crate::api::partition);
        let address: std::net::SocketAddr = "1.2.3.4:5".parse().unwrap();
        let listener_policy = ListenerPolicyId(0);
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
        let id = types::PeerId(*b"-qB5010-abcdefghijkl");
        metrics.counters.announced(64, || Some((id, address.ip())));
        metrics.publish();
        recorder.record(&sources);
        let sample = messages.try_recv().unwrap();
        let row: Vec<f64> = serde_json::from_str(&sample.data).unwrap();
        assert_eq!((sample.name, row.len()), ("sample", FIELDS.len()));
        assert!(row[1] > 0.0 && row[2] == 0.0, "{row:?}");
        assert!(row[6] > 10.0 && row[6] <= 20.0, "{row:?}");
        assert!(messages.try_recv().is_err(), "details come every five seconds");
        recorder.state.lock().last_details = None;
        recorder.record(&sources);
        messages.try_recv().unwrap();
        let details: Value = serde_json::from_str(&messages.try_recv().unwrap().data).unwrap();
        assert_eq!(details["clients"], json!({ "other": 0.0, "qBittorrent": 1.0 }));
        assert_eq!(details["networks"], json!({ "1.2.3.0/24": 1.0 }));
        let swarms = json!({
            "journal": "stopped", "round_age_s": 61, "disk_bytes": 16, "restored": 3
        });
        assert_eq!(details["swarms"], swarms);
        let cluster = json!({
            "node": 1, "state": "not_stored", "heard": 0, "others": 2, "lag_s": 0.0,
            "unstored_bytes": 5 << 20, "problems": 3
        });
        assert_eq!(details["cluster"], cluster);
    }

    #[test]
    fn a_stream_begins_with_the_last_minute() {
        let mut state = State::default();
        for number in 0..SECONDS * 2 {
            state.keep([number as f64; FIELDS.len()]);
        }
        assert_eq!((state.seconds.len(), state.seconds[0][0]), (SECONDS, SECONDS as f64));
    }
}
