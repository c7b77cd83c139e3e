//! What is measured and sampled, beside what is counted.

use std::collections::BTreeMap;

use tracker::counters::{Clients, Counters, Latency, Listener};
use types::Tick;

use super::{MetricSources, Page};
use crate::clients;

/// How long answers take, by listener.
pub(super) fn render_latency(page: &mut Page, listeners: &[(Listener, Counters)]) {
    let help = "From taking a request in to its answer being ready. TCP: of one turn in sixteen.";
    page.head("request_duration_seconds", "histogram", help);
    for (listener, Counters { latency, .. }) in listeners {
        let mut sum = 0;
        let bounds = Latency::BOUNDS_US.map(|us| (f64::from(us) / 1e6).to_string());
        let bounds = bounds.into_iter().chain([String::from("+Inf")]);
        for (bound, answers) in bounds.zip(latency.buckets) {
            sum += answers;
            page.line("request_duration_seconds_bucket", listener, &[("le", &bound)], sum);
        }
        let sum_s = latency.sum_ns as f64 / 1e9;
        page.line("request_duration_seconds_sum", listener, &[], sum_s);
        page.line("request_duration_seconds_count", listener, &[], latency.count());
    }
}

/// Which software announces.
pub(super) fn render_clients(page: &mut Page, listeners: &[(Listener, Counters)]) {
    page.head(
        "clients_sampled",
        "gauge",
        "Announces among the latest samples, by client software.",
    );
    for (name, count) in by_name(listeners) {
        page.plain("clients_sampled", &format!("client=\"{name}\""), count);
    }
}

/// How often each software was met lately: versions together, and all that is not known as `other`.
pub(crate) fn by_name(listeners: &[(Listener, Counters)]) -> BTreeMap<&'static str, u64> {
    let mut all = Clients::default();
    listeners.iter().for_each(|(_, counters)| all.add(&counters.clients));
    let (known, others) = all.counts();
    let mut names = BTreeMap::from([("other", u64::from(others))]);
    for (prefix, count) in known {
        let name = clients::name(prefix).map_or("other", |(name, _)| name);
        *names.entry(name).or_default() += u64::from(*count);
    }
    names
}

/// How the store fares.
pub(super) fn render_store(page: &mut Page, sources: &MetricSources, now: Tick) {
    if let Some(budget) = sources.tracker.memory_budget() {
        let help = "Memory that torrents and peers may take.";
        page.single("swarm_memory_budget_bytes", "gauge", help, budget);
    }
    let help = "Seconds by which peers may be forgotten late.";
    page.single("expiry_lag_seconds", "gauge", help, sources.tracker.expiry_lag_s(now));
    let frozen = sources.tracker.frozen().len();
    page.single("frozen_torrents", "gauge", "Torrents whose announces are refused.", frozen);
    let help = "User keys in force.";
    page.single("user_keys", "gauge", help, sources.tracker.passkeys().len());
    page.single("bans", "gauge", "Networks that are not served.", sources.tracker.bans().len());
}
