//! The Prometheus text format, version 0.0.4. Names and labels are documented in
//! `docs/metrics.md` and stay as they are.

pub(crate) mod latency;

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tracker::counters::{Counters, DropReason, Listener};
use tracker::{ListenerPolicyId, RequestKind};
use types::{Family, Refusal};

use super::MetricSources;
use super::api::{Api, AuthError};
use super::log_tail::LOG_TAIL;
use super::records::RecordsError;

/// All metrics as they are now.
pub(super) fn render(sources: &MetricSources, api: Option<&Api>) -> String {
    let mut page = Page::default();
    let listeners = sources.registry.read();
    render_traffic(&mut page, &listeners);
    latency::render_latency(&mut page, &listeners);
    latency::render_clients(&mut page, &listeners);
    render_totals(&mut page, sources);
    latency::render_store(&mut page, sources, (sources.clock)());
    render_lists(&mut page, sources, &listeners);
    render_limits(&mut page, sources);
    render_certificates(&mut page, sources);
    render_process(&mut page, sources);
    if let Some(api) = api {
        render_records(&mut page, api);
        render_api(&mut page, api);
    }
    page.text
}

fn render_traffic(page: &mut Page, listeners: &[(Listener, Counters)]) {
    type Table = fn(&Counters) -> &[[u64; RequestKind::ALL.len()]; 2];
    let tables: [(&str, &str, Table); 2] = [
        ("requests_total", "Requests received.", |counters| &counters.requests),
        ("responses_total", "Responses sent; refusals are of kind other.", |c| &c.responses),
    ];
    for (name, help, table) in tables {
        page.head(name, "counter", help);
        for (listener, counters) in listeners {
            for (family, row) in [Family::V4, Family::V6].into_iter().zip(table(counters)) {
                for (kind, value) in RequestKind::ALL.into_iter().zip(row) {
                    let own = [("family", label(family)), ("kind", kind.label())];
                    page.line(name, listener, &own, value);
                }
            }
        }
    }
    page.head("refusals_total", "counter", "Requests refused, by the reason the client was told.");
    for (listener, counters) in listeners {
        for (refusal, value) in Refusal::ALL.into_iter().zip(&counters.refusals) {
            page.line("refusals_total", listener, &[("reason", refusal.label())], value);
        }
    }
    page.head("drops_total", "counter", "Datagrams dropped and connections closed, by reason.");
    for (listener, counters) in listeners {
        for (drop, value) in DropReason::ALL.into_iter().zip(&counters.drops) {
            page.line("drops_total", listener, &[("reason", drop.label())], value);
        }
    }
    type Figure = fn(&Counters) -> u64;
    let sources: [(&str, &str, &str, Figure); 7] = [
        ("received_bytes_total", "counter", "Payload bytes received.", |c| c.bytes_in),
        ("sent_bytes_total", "counter", "Payload bytes sent.", |c| c.bytes_out),
        ("peers_sent_total", "counter", "Peers given in answers.", |c| c.peers_sent),
        (
            "kernel_blocks_total",
            "counter",
            "Networks that the kernel was asked to shut out.",
            |c| c.kernel_blocks,
        ),
        ("tls_handshakes_total", "counter", "TLS handshakes completed.", |c| c.tls_handshakes),
        ("connections_total", "counter", "Connections accepted.", |c| c.connections_opened),
        ("connections_open", "gauge", "Connections open now.", |c| {
            c.connections_opened.saturating_sub(c.connections_closed)
        }),
    ];
    for (name, kind, help, figure) in sources {
        page.head(name, kind, help);
        for (listener, counters) in listeners {
            page.line(name, listener, &[], figure(counters));
        }
    }
}

fn render_totals(page: &mut Page, sources: &MetricSources) {
    let totals = sources.tracker.totals();
    page.head("peers", "gauge", "Peers known, by family (web: WebTorrent) and role.");
    let (v4, v6) = (label(Family::V4), label(Family::V6));
    for (family, of) in [(v4, totals.v4), (v6, totals.v6), ("web", totals.web)] {
        for (role, value) in [("seeder", of.seeders), ("leecher", of.leechers)] {
            let labels = format!("family=\"{family}\",role=\"{role}\"");
            page.plain("peers", &labels, value);
        }
    }
    page.single("torrents", "gauge", "Torrents known.", totals.torrents);
    page.single("partial_seeds", "gauge", "Leechers that are partial seeds.", totals.partial_seeds);
    page.single("downloads_total", "counter", "Downloads completed.", totals.downloads);
    page.single("expired_peers_total", "counter", "Peers that aged out.", totals.expired);
    page.single("swarm_memory_used_bytes", "gauge", "Memory in use.", totals.memory_used);
    let help = "Memory taken from the system for torrents and peers.";
    page.single("swarm_memory_reserved_bytes", "gauge", help, totals.memory_reserved);
    let help = "New peers not stored because the memory budget was used up.";
    page.single("refused_for_memory_total", "counter", help, totals.refused_for_memory);
}

/// The lists that hold in general, and those of listeners that may have their own.
fn render_lists(page: &mut Page, sources: &MetricSources, listeners: &[(Listener, Counters)]) {
    let listener_policies = sources.tracker.listener_policies().load();
    let lists = |listener_policy: ListenerPolicyId| {
        let lists = listener_policies
            .get(usize::from(listener_policy.0))
            .map(|listener_policy| &listener_policy.lists);
        let sizes = lists.map(|lists| [("allow", lists.allow.len()), ("deny", lists.deny.len())]);
        sizes.into_iter().flatten()
    };
    page.head("access_list_entries", "gauge", "Entries of the access lists.");
    for (name, len) in lists(ListenerPolicyId::default()) {
        page.plain("access_list_entries", &format!("list=\"{name}\""), len);
    }
    for (listener, _) in
        listeners.iter().filter(|(it, _)| it.listener_policy != ListenerPolicyId::default())
    {
        for (name, len) in lists(listener.listener_policy) {
            page.line("access_list_entries", listener, &[("list", name)], len);
        }
    }
}

fn render_limits(page: &mut Page, sources: &MetricSources) {
    let table_usages = sources.tracker.limiter().table_usages((sources.clock)());
    page.head("limit_buckets", "gauge", "Prefixes whose requests can be remembered.");
    for fill in &table_usages {
        page.plain("limit_buckets", &format!("kind=\"{}\"", fill.label), fill.buckets);
    }
    page.head("limit_buckets_used", "gauge", "Prefixes whose requests are remembered.");
    for fill in &table_usages {
        page.plain("limit_buckets_used", &format!("kind=\"{}\"", fill.label), fill.in_use);
    }
}

fn render_certificates(page: &mut Page, sources: &MetricSources) {
    let help = "When a host's certificate expires, seconds since 1970.";
    page.head("certificate_expiry_timestamp_seconds", "gauge", help);
    for (name, expires) in (sources.certificates)() {
        let since = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // A certificate may claim any name.
        let name = name.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        page.plain(
            "certificate_expiry_timestamp_seconds",
            &format!("name=\"{name}\""),
            since.as_secs(),
        );
    }
    page.head("acme_attempts_total", "counter", "Attempts to obtain a certificate, by result.");
    let acme = &sources.acme;
    for (result, count) in [
        ("obtained", &acme.obtained),
        ("unreachable", &acme.unreachable),
        ("refused", &acme.refused),
    ] {
        let count = count.load(Ordering::Relaxed);
        page.plain("acme_attempts_total", &format!("result=\"{result}\""), count);
    }
}

fn render_process(page: &mut Page, sources: &MetricSources) {
    let process = (sources.process)();
    let status = &sources.status;
    page.head("build_info", "gauge", "Always 1; the version is in its label.");
    page.plain("build_info", &format!("version=\"{}\"", sources.version), 1);
    let reloads = status.reloads.load(Ordering::Relaxed);
    page.single("reloads_total", "counter", "Reloads of configuration and lists.", reloads);
    let failures = status.reload_failures.load(Ordering::Relaxed);
    let help = "Reloads that failed, so that what was in force stayed.";
    page.single("reload_failures_total", "counter", help, failures);
    let help = "Lines of the log that were too many of their kind.";
    page.single("log_lines_left_out_total", "counter", help, LOG_TAIL.suppressed());
    page.single("uptime_seconds", "gauge", "Seconds since the start.", process.uptime_s);
    page.single("process_cpu_seconds_total", "counter", "CPU time used.", process.cpu_s);
    let help = "Memory resident.";
    page.single("process_resident_memory_bytes", "gauge", help, process.resident_bytes);
    page.single("process_open_fds", "gauge", "Open descriptors.", process.open_fds);
}

fn render_records(page: &mut Page, api: &Api) {
    let health = api.records().health();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let durable = u8::from(api.records().is_durable());
    page.single("records_durable", "gauge", "1 if records outlive the process.", durable);
    let sources = [
        ("records_commits_total", "counter", "Transactions committed.", &health.commits),
        ("records_changes_total", "counter", "Changes acknowledged.", &health.changes),
        ("records_waiting", "gauge", "Changes that wait for the writer.", &health.changes_pending),
        ("records_counts_total", "counter", "Counts written.", &health.counts_written),
        (
            "records_counts_waiting",
            "gauge",
            "Counts that could not be written.",
            &health.counts_pending,
        ),
        ("records_lag_seconds", "gauge", "For how long counts wait.", &health.lag_s),
    ];
    for (name, kind, help, count) in sources {
        page.single(name, kind, help, load(count));
    }
    let flush_s = load(&health.last_flush_us) as f64 / 1e6;
    page.single("records_flush_seconds", "gauge", "How long the last flush took.", flush_s);
    let help = "Changes and flushes that failed, by reason.";
    page.head("records_failures_total", "counter", help);
    for (label, count) in RecordsError::LABELS.into_iter().zip(&health.failures) {
        page.plain("records_failures_total", &format!("reason=\"{label}\""), load(count));
    }
}

fn render_api(page: &mut Page, api: &Api) {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (authenticator, webhooks) = (api.authenticator(), api.webhooks());
    page.single(
        "api_requests_total",
        "counter",
        "API requests let in.",
        load(&authenticator.admitted),
    );
    page.head("api_refusals_total", "counter", "API requests not let in, by reason.");
    for (label, count) in AuthError::LABELS.into_iter().zip(&authenticator.refused) {
        page.plain("api_refusals_total", &format!("reason=\"{label}\""), load(count));
    }
    page.single(
        "events_total",
        "counter",
        "Events told to streams and webhooks.",
        api.hub().published(),
    );
    if let Some(traces) = api.traces() {
        page.head("trace_spans_total", "counter", "Spans of traces, by what came of them.");
        for (label, count) in [("sent", &traces.sent), ("dropped", &traces.dropped)] {
            page.plain("trace_spans_total", &format!("result=\"{label}\""), load(count));
        }
    }
    page.head("webhook_posts_total", "counter", "Posts of webhooks, by what came of them.");
    for (label, count) in [
        ("delivered", &webhooks.delivered),
        ("failed", &webhooks.failed),
        ("dropped", &webhooks.dropped),
    ] {
        page.plain("webhook_posts_total", &format!("result=\"{label}\""), load(count));
    }
}

fn label(family: Family) -> &'static str {
    match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    }
}

/// The text, line by line. Label values are our own words, addresses and versions, none of which holds
/// a character that would need escaping, or are escaped by the caller. Writing to a `String` cannot fail.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}");
    }

    /// A figure of one listener.
    fn line(&mut self, name: &str, listener: &Listener, own: &[(&str, &str)], value: impl Display) {
        let (address, protocol) = (listener.address, listener.protocol.label());
        let _ =
            write!(self.text, "tidegate_{name}{{listener=\"{address}\",protocol=\"{protocol}\"");
        for (key, text) in own {
            let _ = write!(self.text, ",{key}=\"{text}\"");
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    fn plain(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "tidegate_{name}{{{labels}}} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.text, "tidegate_{name} {value}");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;

    use tracker::counters::{MetricsRegistry, Protocol};
    use tracker::{Limits, Options, Policy, Rate, Secrets, Tracker};

    use types::Tick;

    use super::*;
    use crate::{AcmeAttempts, ProcessStats, Status};

    pub(crate) fn tracker() -> Tracker {
        tracker_with(None)
    }

    fn tracker_with(memory_budget: Option<u64>) -> Tracker {
        let policy = Policy::default();
        let store = tracker::StoreOptions {
            shards: 1,
            hash_key: [0; 16],
            peer_lifetime_s: policy.peer_lifetime_s,
            web_lifetime_s: policy.web_lifetime_s(),
            keep_peer_ids: false,
            memory_budget,
        };
        Tracker::new(
            &Options { policy, store },
            &Secrets { connection_ids: [0; 16], offers: [0; 16], limits: [0; 16] },
        )
    }

    pub(crate) fn sources() -> MetricSources {
        MetricSources {
            tracker: Arc::new(tracker()),
            registry: Arc::default(),
            status: Status::default(),
            process: ProcessStats::default,
            clock: Box::new(|| Tick(100_000)),
            certificates: Box::new(|| {
                let names = ["t.example", "a\"b"].map(String::from);
                names.map(|name| (name, SystemTime::UNIX_EPOCH + Duration::from_secs(7))).into()
            }),
            acme: AcmeAttempts::default(),
            version: "1.2.3",
        }
    }

    /// A new process inherits the tracker's clock, and its uptime starts at 0.
    #[test]
    fn limit_buckets_in_use_are_counted_by_the_inherited_clock() {
        let sources = sources();
        let scrapes = Rate { per_s: 5, burst: 9 };
        sources.tracker.limiter().replace(Limits { scrapes, ..Limits::default() });
        let view = sources.tracker.view(Tick(100_000));
        let from = [192, 0, 2, 1].into();
        view.authorize(ListenerPolicyId(0), from, RequestKind::Scrape, None).unwrap();
        let page = render(&sources, None);
        let used = "tidegate_limit_buckets_used{kind=\"scrape\"} 1";
        assert!(page.lines().any(|line| line == used), "{page}");
    }

    #[test]
    fn counts_appear_under_their_labels() {
        let sources = sources();
        let rate = Rate { per_s: 5, burst: 9 };
        sources.tracker.limiter().replace(Limits { scrapes: rate, ..Limits::default() });
        let registry: &MetricsRegistry = &sources.registry;
        let address = "[::1]:6969".parse().unwrap();
        let mut metrics = registry.register(Listener {
            protocol: Protocol::Udp,
            address,
            listener_policy: ListenerPolicyId(0),
        });
        metrics.counters.request(Family::V6, RequestKind::Announce);
        metrics.counters.drop(DropReason::BadConnectionId);
        metrics.counters.latency.observe(Duration::from_micros(15), 3);
        let id = Some(types::PeerId(*b"-qB5010-abcdefghijkl"));
        metrics.counters.clients.pass(64, || id);
        metrics.publish();
        let page = render(&sources, None);
        for line in [
            "tidegate_requests_total{listener=\"[::1]:6969\",protocol=\"udp\",family=\"v6\",kind=\"announce\"} 1",
            "tidegate_drops_total{listener=\"[::1]:6969\",protocol=\"udp\",reason=\"bad_connection_id\"} 1",
            "tidegate_request_duration_seconds_bucket{listener=\"[::1]:6969\",protocol=\"udp\",le=\"0.00001\"} 0",
            "tidegate_request_duration_seconds_bucket{listener=\"[::1]:6969\",protocol=\"udp\",le=\"0.00002\"} 3",
            "tidegate_request_duration_seconds_bucket{listener=\"[::1]:6969\",protocol=\"udp\",le=\"+Inf\"} 3",
            "tidegate_request_duration_seconds_sum{listener=\"[::1]:6969\",protocol=\"udp\"} 0.000045",
            "tidegate_clients_sampled{client=\"qBittorrent\"} 1",
            "tidegate_clients_sampled{client=\"other\"} 0",
            "tidegate_limit_buckets{kind=\"scrape\"} 65536",
            "tidegate_limit_buckets_used{kind=\"scrape\"} 0",
            "tidegate_build_info{version=\"1.2.3\"} 1",
            "tidegate_peers{family=\"v4\",role=\"seeder\"} 0",
            "tidegate_certificate_expiry_timestamp_seconds{name=\"t.example\"} 7",
            "tidegate_certificate_expiry_timestamp_seconds{name=\"a\\\"b\"} 7",
            "tidegate_acme_attempts_total{result=\"refused\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn every_series_has_one_head_and_stands_once() {
        let sources = sources();
        let address = "1.2.3.4:5".parse().unwrap();
        for protocol in [Protocol::Udp, Protocol::Http] {
            sources.registry.register(Listener {
                protocol,
                address,
                listener_policy: ListenerPolicyId(0),
            });
        }
        let page = render(&sources, None);
        let mut seen = HashSet::new();
        let mut family = "";
        let mut is_histogram = false;
        for line in page.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                family = head.split(' ').next().unwrap();
                is_histogram = head.ends_with(" histogram");
                assert!(seen.insert(head), "{head} twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let of =
                    ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                assert_eq!(of.filter(|_| is_histogram).unwrap_or(name), family);
                assert!(seen.insert(series), "{series} twice");
                assert!(value.parse::<f64>().is_ok());
            }
        }
        assert!(page.ends_with('\n'));
    }

    /// Names and types in the documentation are those that there are. Whoever changes one breaks
    /// somebody's dashboard.
    #[test]
    fn the_documentation_names_what_there_is() {
        let text = include_str!("../../../docs/metrics.md");
        let (own, with_api) = text.split_once("## Records and API").unwrap();
        let documented = |text: &'static str| {
            let rows = text.lines().filter_map(|line| line.strip_prefix("| `tidegate_"));
            rows.map(|row| {
                let (name, rest) = row.split_once('`').unwrap();
                let kind = rest.trim_start_matches([' ', '|']).split(' ').next().unwrap();
                format!("tidegate_{name} {kind}")
            })
        };
        let mut sources = sources();
        let tracker = Arc::get_mut(&mut sources.tracker).unwrap();
        *tracker = tracker_with(Some(1 << 20));
        let page = render(&sources, None);
        let heads = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let there: std::collections::BTreeSet<String> = heads.map(String::from).collect();
        assert_eq!(there, documented(own).collect());
        assert!(documented(with_api).count() > 5);
    }
}
