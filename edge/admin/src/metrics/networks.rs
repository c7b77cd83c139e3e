//! Metrics of networks: peers by system and country, what is refused, and tokens.

use std::sync::atomic::Ordering;

use crate::networks::{NetworkBreakdown, NetworkStats};
use crate::sources::MetricSources;
use subsystem::{Page, escape};

/// Renders counts of peers, of those networks that `geo.metrics_max` leaves. Nothing without files.
pub(super) fn render_networks(page: &mut Page, stats: &NetworkStats) {
    let families = [
        (
            "tidegate_peers_by_system",
            "Peers with an address by autonomous system, those with the most peers.",
            "asn",
            &stats.systems,
        ),
        (
            "tidegate_peers_by_country",
            "Peers with an address by country, those with the most peers.",
            "country",
            &stats.countries,
        ),
    ];
    for (name, help, label, counts) in families {
        let Some(NetworkBreakdown { rows, others, unknown, .. }) = counts else { continue };
        page.family(name, "gauge", help);
        let (named, rest) = rows.split_at(rows.len().min(stats.metrics_max));
        for row in named {
            page.sample(name, (label, &escape(&row.key)), row.peers);
        }
        let others = others + rest.iter().map(|row| row.peers).sum::<u64>();
        page.sample(name, (label, "other"), others);
        page.sample(name, (label, "unknown"), unknown);
    }
}

/// Renders what the configuration refuses, tokens, and names of torrents.
pub(super) fn render_approval(page: &mut Page, sources: &MetricSources) {
    let tracker = &sources.tracker;
    let help = "Ranges of addresses that the configuration refuses.";
    let ranges = tracker.bans().network_ranges();
    page.single("tidegate_refused_network_ranges", "gauge", help, ranges);
    let stats = tracker.tokens().stats();
    let name = "tidegate_jwt_verifications_total";
    page.family(name, "counter", "Tokens of announces that were not remembered, by result.");
    for (result, count) in
        [("valid", stats.valid), ("refused", stats.refused), ("deferred", stats.deferred)]
    {
        page.sample(name, ("result", result), count);
    }
    let help = "Verified tokens that are remembered.";
    page.single("tidegate_jwt_remembered", "gauge", help, stats.remembered);
    let help = "Requests for the keys of tokens that failed.";
    let failures = sources.status.jwt_key_failures.load(Ordering::Relaxed);
    page.single("tidegate_jwt_key_failures_total", "counter", help, failures);
    let help = "Torrents whose name is known.";
    page.single("tidegate_torrent_names", "gauge", help, sources.status.torrent_names.len());
}
