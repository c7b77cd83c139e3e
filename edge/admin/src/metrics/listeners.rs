//! Metrics of listeners: traffic, latency, and sampled client software.

use std::fmt::Display;

use subsystem::Page;
use tracker::RequestKind;
use tracker::counters::{Counters, DropReason, Latency, Listener};
use types::{Family, Refusal};

use crate::clients::samples_by_name;

pub(super) fn render_traffic(page: &mut Page, listeners: &[(Listener, Counters)]) {
    type ByKind = fn(&Counters) -> &[[u64; RequestKind::ALL.len()]; 2];
    let families: [(&str, &str, ByKind); 2] = [
        ("tidegate_requests_total", "Requests received.", |c| &c.requests),
        ("tidegate_responses_total", "Responses sent; refusals have the kind other.", |c| {
            &c.responses
        }),
    ];
    for (name, help, by_kind) in families {
        page.family(name, "counter", help);
        for (listener, counters) in listeners {
            for (family, row) in Family::ALL.into_iter().zip(by_kind(counters)) {
                for (kind, value) in RequestKind::ALL.into_iter().zip(row) {
                    let labels = [("family", family.label()), ("kind", kind.label())];
                    listener_sample(page, name, listener, &labels, value);
                }
            }
        }
    }
    let name = "tidegate_refusals_total";
    page.family(name, "counter", "Requests refused, by the reason sent to the client.");
    for (listener, counters) in listeners {
        for (refusal, value) in Refusal::ALL.into_iter().zip(&counters.refusals) {
            listener_sample(page, name, listener, &[("reason", refusal.label())], value);
        }
    }
    let name = "tidegate_drops_total";
    page.family(name, "counter", "Datagrams dropped and connections closed, by reason.");
    for (listener, counters) in listeners {
        for (drop, value) in DropReason::ALL.into_iter().zip(&counters.drops) {
            listener_sample(page, name, listener, &[("reason", drop.label())], value);
        }
    }
}

pub(super) fn render_connections(page: &mut Page, listeners: &[(Listener, Counters)]) {
    type Value = fn(&Counters) -> u64;
    let families: [(&str, &str, &str, Value); 10] = [
        ("tidegate_received_bytes_total", "counter", "Payload bytes received.", |c| c.bytes_in),
        ("tidegate_sent_bytes_total", "counter", "Payload bytes sent.", |c| c.bytes_out),
        ("tidegate_peers_sent_total", "counter", "Peers sent in responses.", |c| c.peers_sent),
        ("tidegate_full_scrapes_total", "counter", "Full scrapes sent completely.", |c| {
            c.full_scrapes
        }),
        ("tidegate_full_scrape_bytes_total", "counter", "Bytes of full scrapes sent.", |c| {
            c.full_scrape_bytes
        }),
        ("tidegate_not_found_total", "counter", "HTTP requests for unknown paths.", |c| {
            c.not_found
        }),
        (
            "tidegate_kernel_blocks_total",
            "counter",
            "Prefixes that were blocked in the kernel.",
            |c| c.kernel_blocks,
        ),
        ("tidegate_tls_handshakes_total", "counter", "TLS handshakes completed.", |c| {
            c.tls_handshakes
        }),
        ("tidegate_connections_total", "counter", "Connections accepted.", |c| {
            c.connections_opened
        }),
        ("tidegate_connections_open", "gauge", "Open connections.", |c| c.connections_open),
    ];
    for (name, kind, help, value) in families {
        page.family(name, kind, help);
        for (listener, counters) in listeners {
            listener_sample(page, name, listener, &[], value(counters));
        }
    }
}

pub(super) fn render_latency(page: &mut Page, listeners: &[(Listener, Counters)]) {
    let name = "tidegate_request_duration_seconds";
    let help = "Time from receiving a request to having its response ready, without kernel and \
                network. TCP: one turn of the event loop in sixteen is measured.";
    page.family(name, "histogram", help);
    for (listener, Counters { latency, .. }) in listeners {
        let mut count = 0;
        let bounds = Latency::BOUNDS_US.map(|us| (f64::from(us) / 1e6).to_string());
        let bounds = bounds.into_iter().chain([String::from("+Inf")]);
        for (bound, responses) in bounds.zip(latency.buckets) {
            count += responses;
            listener_sample(page, &format!("{name}_bucket"), listener, &[("le", &bound)], count);
        }
        let sum_s = latency.sum_ns as f64 / 1e9;
        listener_sample(page, &format!("{name}_sum"), listener, &[], sum_s);
        listener_sample(page, &format!("{name}_count"), listener, &[], latency.count());
    }
}

pub(super) fn render_clients(page: &mut Page, listeners: &[(Listener, Counters)]) {
    let help = "Recent announces, by client software.";
    let samples = samples_by_name(listeners);
    page.by_label("tidegate_clients_sampled", "gauge", help, "client", samples);
}

/// Writes a sample of a listener, with further labels.
pub(super) fn listener_sample(
    page: &mut Page,
    name: &str,
    listener: &Listener,
    labels: &[(&str, &str)],
    value: impl Display,
) {
    let address = listener.address.to_string();
    let own = [("listener", &*address), ("protocol", listener.protocol.label())];
    page.labelled_sample(name, &[&own, labels].concat(), value);
}
