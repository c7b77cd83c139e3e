//! The page `/metrics`, in the Prometheus text format. `docs/metrics.md` documents every name and label.

mod listeners;

use std::sync::atomic::{AtomicU64, Ordering};

use subsystem::{Page, escape};
use tracker::ListenerPolicyId;
use tracker::counters::{Counters, Listener};

use crate::api::{Api, AuthError};
use crate::clock::since_epoch;
use crate::log_tail::LOG_TAIL;
use crate::sources::MetricSources;

pub(super) fn render(sources: &MetricSources, api: Option<&Api>) -> String {
    let mut page = Page::default();
    let listeners = sources.registry.read();
    listeners::render_traffic(&mut page, &listeners);
    listeners::render_connections(&mut page, &listeners);
    listeners::render_latency(&mut page, &listeners);
    listeners::render_clients(&mut page, &listeners);
    render_swarms(&mut page, sources);
    sources.subsystems.read_all().iter().for_each(|it| it.metrics(&mut page));
    render_memory(&mut page, sources);
    render_access(&mut page, sources, &listeners);
    render_approval(&mut page, sources);
    render_limits(&mut page, sources);
    render_certificates(&mut page, sources);
    render_process(&mut page, sources);
    if let Some(api) = api {
        render_records(&mut page, api);
        render_api(&mut page, api);
    }
    page.into_text()
}

fn render_swarms(page: &mut Page, sources: &MetricSources) {
    let totals = sources.tracker.totals();
    let name = "tidegate_peers";
    page.family(name, "gauge", "Known peers, by family (web: WebTorrent) and role.");
    for (family, counts) in [("v4", totals.v4), ("v6", totals.v6), ("web", totals.web)] {
        for (role, value) in [("seeder", counts.seeders), ("leecher", counts.leechers)] {
            page.labelled_sample(name, &[("family", family), ("role", role)], value);
        }
    }
    page.single("tidegate_torrents", "gauge", "Known torrents.", totals.torrents);
    let help = "Leechers that are partial seeds (BEP 21).";
    page.single("tidegate_partial_seeds", "gauge", help, totals.partial_seeds);
    page.single("tidegate_downloads_total", "counter", "Downloads completed.", totals.downloads);
    let help = "Peers removed because they stopped announcing.";
    page.single("tidegate_expired_peers_total", "counter", help, totals.expired);
    let help = "Peers replaced by new ones of the same address or network.";
    page.single("tidegate_replaced_peers_total", "counter", help, totals.replaced);
    let help = "Peers removed because memory was short and their network had too many.";
    page.single("tidegate_evicted_peers_total", "counter", help, totals.evicted);
    let help = "Seconds by which peers may be removed late.";
    let lag_s = sources.tracker.store().expiry_lag_s((sources.clock)());
    page.single("tidegate_expiry_lag_seconds", "gauge", help, lag_s);
    let frozen = sources.tracker.frozen().len();
    page.single(
        "tidegate_frozen_torrents",
        "gauge",
        "Torrents whose announces are refused.",
        frozen,
    );
}

fn render_memory(page: &mut Page, sources: &MetricSources) {
    let totals = sources.tracker.totals();
    let help = "Memory in use for torrents and peers.";
    page.single("tidegate_swarm_memory_used_bytes", "gauge", help, totals.memory_used);
    let help = "Memory reserved from the system for torrents and peers.";
    page.single("tidegate_swarm_memory_reserved_bytes", "gauge", help, totals.memory_reserved);
    if let Some(budget) = sources.tracker.store().memory_budget() {
        let help = "Memory limit for torrents and peers.";
        page.single("tidegate_swarm_memory_budget_bytes", "gauge", help, budget);
    }
    let help = "New peers not stored because the memory budget was used up.";
    let name = "tidegate_peers_rejected_for_memory_total";
    page.single(name, "counter", help, totals.refused_for_memory);
    let help = "New peers not stored because their network had its share of the memory budget.";
    let name = "tidegate_peers_rejected_for_share_total";
    page.single(name, "counter", help, totals.refused_for_share);
}

/// Access lists, keys and bans. Lists of all listeners come without listener labels; listeners with a policy
/// of their own may have other lists in files.
fn render_access(page: &mut Page, sources: &MetricSources, listeners: &[(Listener, Counters)]) {
    let settings = sources.tracker.settings();
    let lists = |id: ListenerPolicyId| {
        let lists = settings.listener(id).map(|policy| &policy.lists);
        let sizes = lists.map(|lists| {
            let torrents = ("torrents", lists.torrents.len());
            [("allow", lists.allow.len()), ("deny", lists.deny.len()), torrents]
        });
        sizes.into_iter().flatten()
    };
    let name = "tidegate_access_list_entries";
    page.family(name, "gauge", "Entries of the access lists.");
    for (list, len) in lists(ListenerPolicyId::default()) {
        page.sample(name, ("list", list), len);
    }
    let has_own_policy =
        |listener: &Listener| listener.listener_policy != ListenerPolicyId::default();
    for (listener, _) in listeners.iter().filter(|(listener, _)| has_own_policy(listener)) {
        for (list, len) in lists(listener.listener_policy) {
            listeners::listener_sample(page, name, listener, &[("list", list)], len);
        }
    }
    let tracker = &sources.tracker;
    page.single("tidegate_user_keys", "gauge", "Valid user keys.", tracker.passkeys().keys());
    let sessions = tracker.passkeys().sessions();
    page.single("tidegate_key_sessions", "gauge", "Peers with a key that are known.", sessions);
    let name = "tidegate_key_excessive_reports_total";
    let help = "Announces with a key that were credited less than they report.";
    page.single(name, "counter", help, tracker.passkeys().excessive_reports());
    page.single("tidegate_bans", "gauge", "Banned networks.", tracker.bans().len());
}

fn render_limits(page: &mut Page, sources: &MetricSources) {
    let usages = sources.tracker.limiter().table_usages((sources.clock)());
    let help = "Prefixes that the rate limiter can track.";
    let buckets = usages.iter().map(|usage| (usage.label, usage.buckets));
    page.by_label("tidegate_rate_limit_buckets", "gauge", help, "kind", buckets);
    let help = "Prefixes that the rate limiter tracks now.";
    let in_use = usages.iter().map(|usage| (usage.label, usage.in_use));
    page.by_label("tidegate_rate_limit_buckets_used", "gauge", help, "kind", in_use);
}

/// Renders what the configuration refuses, tokens, and names of torrents.
fn render_approval(page: &mut Page, sources: &MetricSources) {
    let tracker = &sources.tracker;
    let help = "Ranges of addresses that the configuration refuses.";
    let ranges = tracker.bans().network_ranges();
    page.single("tidegate_refused_network_ranges", "gauge", help, ranges);
    let stats = tracker.tokens().stats();
    let help = "Tokens of announces that were not remembered, by result.";
    let results =
        [("valid", stats.valid), ("refused", stats.refused), ("deferred", stats.deferred)];
    page.by_label("tidegate_jwt_verifications_total", "counter", help, "result", results);
    let help = "Verified tokens that are remembered.";
    page.single("tidegate_jwt_remembered", "gauge", help, stats.remembered);
    let help = "Requests for the keys of tokens that failed.";
    let failures = sources.status.jwt_key_failures.load(Ordering::Relaxed);
    page.single("tidegate_jwt_key_failures_total", "counter", help, failures);
    let help = "Torrents whose name is known.";
    page.single("tidegate_torrent_names", "gauge", help, sources.status.torrent_names.len());
}

fn render_certificates(page: &mut Page, sources: &MetricSources) {
    let name = "tidegate_certificate_expiry_timestamp_seconds";
    let help = "Expiry of a host name's certificate, in Unix time.";
    let certificates = (sources.certificates)().into_iter();
    // A certificate may name anything.
    let ends =
        certificates.map(|(host, validity)| (escape(&host), since_epoch(validity.end).as_secs()));
    page.by_label(name, "gauge", help, "name", ends);
    let help = "Attempts to obtain a certificate, by result.";
    let acme = &sources.acme;
    let results = [
        ("obtained", load(&acme.obtained)),
        ("unreachable", load(&acme.unreachable)),
        ("refused", load(&acme.refused)),
    ];
    page.by_label("tidegate_acme_attempts_total", "counter", help, "result", results);
}

/// The `process_*` names and their help texts are those of Prometheus' own client libraries.
fn render_process(page: &mut Page, sources: &MetricSources) {
    let process = (sources.process)();
    let status = &sources.status;
    let name = "tidegate_build_info";
    page.family(name, "gauge", "The version as a label; the value is always 1.");
    page.sample(name, ("version", sources.version), 1);
    let help = "Reloads of configuration and lists that were applied.";
    page.single("tidegate_reloads_total", "counter", help, load(&status.reloads));
    let help = "Reloads that failed; the previous configuration stayed in force.";
    page.single("tidegate_reload_failures_total", "counter", help, load(&status.reload_failures));
    let upgrade = status.upgrade.get();
    let help = "Time that the old process took to send its swarms in an upgrade; 0 without one.";
    let ms = upgrade.map_or(0, |upgrade| load(&upgrade.milliseconds));
    page.single("tidegate_upgrade_swarms_seconds", "gauge", help, ms as f64 / 1000.0);
    let help = "Bytes of swarms and sessions received from the old process in an upgrade.";
    let bytes = upgrade.map_or(0, |upgrade| load(&upgrade.bytes));
    page.single("tidegate_upgrade_swarms_bytes", "gauge", help, bytes);
    let help =
        "Datagrams that the kernel dropped because the receive buffer of a UDP socket was full.";
    let name = "tidegate_receive_buffer_drops_total";
    page.single(name, "counter", help, sources.receive_losses());
    let help = "Log lines suppressed by the rate limit.";
    page.single("tidegate_log_lines_suppressed_total", "counter", help, LOG_TAIL.suppressed());
    let help = "Start time of the process since unix epoch in seconds.";
    let started_s = since_epoch(process.started).as_secs_f64();
    page.single("process_start_time_seconds", "gauge", help, started_s);
    let help = "Total user and system CPU time spent in seconds.";
    page.single("process_cpu_seconds_total", "counter", help, process.cpu_s);
    let help = "Resident memory size in bytes.";
    page.single("process_resident_memory_bytes", "gauge", help, process.resident_bytes);
    let help = "Number of open file descriptors.";
    page.single("process_open_fds", "gauge", help, process.open_fds);
}

fn render_records(page: &mut Page, api: &Api) {
    let health = api.records().health();
    let durable = u8::from(api.records().is_durable());
    let help = "1 if the records survive a restart, 0 if they are in memory only.";
    page.single("tidegate_records_durable", "gauge", help, durable);
    let help = "Transactions committed.";
    page.single("tidegate_records_commits_total", "counter", help, load(&health.commits));
    let help = "Changes committed and applied.";
    page.single("tidegate_records_changes_total", "counter", help, load(&health.changes));
    let help = "Changes queued for the writer.";
    page.single("tidegate_records_changes_pending", "gauge", help, load(&health.changes_pending));
    let help = "Counts written.";
    let name = "tidegate_records_counts_written_total";
    page.single(name, "counter", help, load(&health.counts_written));
    let help = "Counts that could not be written yet.";
    page.single("tidegate_records_counts_pending", "gauge", help, load(&health.counts_pending));
    let help = "Age of the oldest count that could not be written, in seconds.";
    page.single("tidegate_records_lag_seconds", "gauge", help, load(&health.lag_s));
    let help = "Duration of the last flush of counts, in seconds.";
    let flush_s = load(&health.last_flush_us) as f64 / 1e6;
    page.single("tidegate_records_last_flush_duration_seconds", "gauge", help, flush_s);
    let help = "Changes and flushes that failed, by reason.";
    let failures = health.failures_by_label();
    page.by_label("tidegate_records_failures_total", "counter", help, "reason", failures);
}

fn render_api(page: &mut Page, api: &Api) {
    let (authenticator, webhooks) = (api.authenticator(), api.webhooks());
    let help = "API requests accepted.";
    page.single("tidegate_api_requests_total", "counter", help, load(&authenticator.accepted));
    let help = "API requests refused, by reason.";
    let refusals = AuthError::LABELS.into_iter().zip(authenticator.refused.iter().map(load));
    page.by_label("tidegate_api_refusals_total", "counter", help, "reason", refusals);
    let help = "Events published to streams and webhooks.";
    page.single("tidegate_events_total", "counter", help, api.hub().published());
    let help = "Posts to webhooks, by result.";
    let results = [
        ("delivered", load(&webhooks.delivered)),
        ("failed", load(&webhooks.failed)),
        ("dropped", load(&webhooks.dropped)),
    ];
    page.by_label("tidegate_webhook_posts_total", "counter", help, "result", results);
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use journal::{Figures, JournalStatus, State};
    use subsystem::Subsystems;
    use tracker::RequestKind;
    use tracker::counters::{DropReason, MetricsRegistry, Protocol};
    use tracker::{Limits, Options, Policy, Rate, Secrets, Tracker};
    use types::{Family, Tick};
    use xdp::{InterfaceStatus, XdpStatus};

    use super::*;
    use crate::api::partition;
    use crate::{AcmeAttempts, ProcessStats, Status};

    pub(crate) fn tracker() -> Tracker {
        tracker_with(None)
    }

    fn tracker_with(memory_budget: Option<u64>) -> Tracker {
        let mut options = Options::predictable(Policy::default());
        options.store.memory_budget = memory_budget;
        Tracker::new(&options, &Secrets::PUBLIC)
    }

    /// Returns the program on an interface that is down.
    fn xdp() -> XdpStatus {
        XdpStatus::new(vec![InterfaceStatus { name: "eth0".into(), ..InterfaceStatus::default() }])
    }

    /// Returns a journal that has stopped.
    fn journal() -> JournalStatus {
        JournalStatus {
            state: State::Stopped,
            disk_bytes: 16,
            round_age_s: Some(61),
            restored: 3,
            figures: Figures { bytes: [7, 9, 0, 0], ..Figures::default() },
            ..JournalStatus::default()
        }
    }

    pub(crate) fn sources() -> MetricSources {
        let subsystems = Subsystems::default();
        subsystems.add("xdp", xdp);
        subsystems.add("journal", journal);
        MetricSources {
            tracker: Arc::new(tracker()),
            registry: Arc::default(),
            status: Status::default(),
            process: || ProcessStats {
                started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
                uptime_s: 5.0,
                cpu_s: 0.5,
                resident_bytes: 4096,
                open_fds: 3,
            },
            clock: Box::new(|| Tick(100_000)),
            subsystems,
            site: std::sync::OnceLock::new(),
            receive_losses: std::sync::OnceLock::new(),
            certificates: Box::new(|| {
                let names = ["t.example", "a\"b"].map(String::from);
                let end = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
                names.map(|name| (name, SystemTime::UNIX_EPOCH..end)).into()
            }),
            acme: AcmeAttempts::default(),
            version: "1.2.3",
        }
    }

    #[test]
    fn renders_counts_under_their_labels() {
        let sources = sources();
        let rate = Rate { per_s: 5, burst: 9 };
        sources.tracker.limiter().replace(Limits { scrapes: rate, ..Limits::default() });
        // A new process inherits the tracker's clock, while its uptime starts at 0.
        let view = sources.tracker.view(Tick(100_000));
        let from = [192, 0, 2, 1].into();
        view.authorize(ListenerPolicyId(0), from, RequestKind::Scrape, None).unwrap();
        let registry: &MetricsRegistry = &sources.registry;
        let address: std::net::SocketAddr = "[::1]:6969".parse().unwrap();
        let mut metrics = registry.register(Listener {
            protocol: Protocol::Udp,
            address,
            listener_policy: ListenerPolicyId(0),
        });
        metrics.counters.request(Family::V6, RequestKind::Announce);
        metrics.counters.drop(DropReason::BadConnectionId);
        metrics.counters.latency.observe(Duration::from_micros(15), 3);
        let id = types::PeerId(*b"-qB5010-abcdefghijkl");
        metrics.counters.announced(64, || Some((id, address.ip())));
        metrics.publish();
        let page = render(&sources, None);
        for line in [
            "tidegate_requests_total{listener=\"[::1]:6969\",protocol=\"udp\",family=\"v6\",kind=\"announce\"} 1",
            "tidegate_drops_total{listener=\"[::1]:6969\",protocol=\"udp\",reason=\"bad_connection_id\"} 1",
            "tidegate_request_duration_seconds_bucket{listener=\"[::1]:6969\",protocol=\"udp\",le=\"0.00001\"} 0",
            "tidegate_request_duration_seconds_bucket{listener=\"[::1]:6969\",protocol=\"udp\",le=\"0.00002\"} 3",
            "tidegate_request_duration_seconds_bucket{listener=\"[::1]:6969\",protocol=\"udp\",le=\"+Inf\"} 3",
            "tidegate_request_duration_seconds_sum{listener=\"[::1]:6969\",protocol=\"udp\"} 0.000045",
            "tidegate_clients_sampled{client=\"qBittorrent\"} 64",
            "tidegate_clients_sampled{client=\"other\"} 0",
            "tidegate_rate_limit_buckets{kind=\"scrape\"} 65536",
            "tidegate_rate_limit_buckets_used{kind=\"scrape\"} 1",
            "tidegate_build_info{version=\"1.2.3\"} 1",
            "tidegate_journal_bytes_total{kind=\"walk\"} 9",
            "tidegate_journal_disk_bytes 16",
            "tidegate_journal_round_age_seconds 61",
            "tidegate_journal_restored_peers 3",
            "tidegate_peers{family=\"v4\",role=\"seeder\"} 0",
            "tidegate_certificate_expiry_timestamp_seconds{name=\"t.example\"} 7",
            "tidegate_certificate_expiry_timestamp_seconds{name=\"a\\\"b\"} 7",
            "tidegate_acme_attempts_total{result=\"refused\"} 0",
            "process_start_time_seconds 1700000000",
            "process_open_fds 3",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn every_family_and_series_is_rendered_once() {
        let sources = sources();
        let address = "1.2.3.4:5".parse().unwrap();
        for protocol in [Protocol::Udp, Protocol::Http] {
            sources.registry.register(Listener {
                protocol,
                address,
                listener_policy: ListenerPolicyId(0),
            });
        }
        sources.subsystems.add("cluster", partition);
        let page = render(&sources, None);
        let mut seen = HashSet::new();
        let mut family = "";
        let mut has_parts = false;
        for line in page.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                family = head.split(' ').next().unwrap();
                has_parts = head.ends_with(" histogram") || head.ends_with(" summary");
                assert!(seen.insert(head), "{head} twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let of =
                    ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                assert_eq!(of.filter(|_| has_parts).unwrap_or(name), family);
                assert!(seen.insert(series), "{series} twice");
                assert!(value.parse::<f64>().is_ok());
            }
        }
        assert!(page.ends_with('\n'));
    }

    /// The documentation lists exactly the metrics rendered: dashboards and alerts depend on their names.
    #[test]
    fn docs_list_every_metric() {
        let text = include_str!("../../../docs/metrics.md");
        let (own, with_api) = text.split_once("## Records and API").unwrap();
        let documented = |text: &'static str| {
            let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
            let rows =
                rows.filter(|row| ["tidegate_", "process_"].iter().any(|it| row.starts_with(it)));
            rows.map(|row| {
                let (name, rest) = row.split_once('`').unwrap();
                let kind = rest.trim_start_matches([' ', '|']).split(' ').next().unwrap();
                format!("{name} {kind}")
            })
        };
        let mut sources = sources();
        let tracker = Arc::get_mut(&mut sources.tracker).unwrap();
        *tracker = tracker_with(Some(1 << 20));
        sources.subsystems.add("cluster", partition);
        sources.subsystems.add("site", || site::SiteStatus {
            probes: Some(Default::default()),
            ..site::SiteStatus::default()
        });
        sources.subsystems.add("geo", || {
            let file = |kind| geo::NetworkFile { kind, r#type: String::new(), built: None };
            let files = ["asn", "country"].map(file).into();
            geo::NetworkStatus { files, ..geo::NetworkStatus::default() }
        });
        sources.subsystems.add("load", pace::PaceStatus::default);
        sources.subsystems.add("lists", lists::ListsStatus::default);
        let page = render(&sources, None);
        let heads = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let there: std::collections::BTreeSet<String> = heads.map(String::from).collect();
        assert_eq!(there, documented(own).collect());
        assert!(documented(with_api).count() > 5);
    }
}
