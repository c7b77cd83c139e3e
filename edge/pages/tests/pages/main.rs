//! Pages through real sockets: a worker of `front` serves, and blocking clients speak to it.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

extern crate tidegate_pages as pages;

mod full_scrape;
mod page;
mod stats;
/// Servers and clients of the tests of `front`.
#[allow(dead_code, unused_imports, reason = "these tests use a part of it")]
#[path = "../../../front/tests/sockets/testing/mod.rs"]
mod testing;

use std::sync::Arc;

use front::http::{HttpOptions, Pages};
use pages::{ListenerPages, PageOptions, PublicUrl, Site, SiteOptions, StatsForm, StatsOptions};
use tracker::counters::{
    DayUptime, DropReason, MetricsRegistry, Protocol, ServiceSummary, ServicesReport,
};
use tracker::{ListenerPolicy, ListenerPolicyId, Networks, Service};
use types::Refusal;

use crate::testing::*;

/// Returns a report of one service that has served since yesterday.
fn services() -> ServicesReport {
    let mut days = vec![DayUptime::default(); 90];
    days[89] = DayUptime { served_s: 600, down_s: 200 };
    ServicesReport {
        since: 1_700_000_000 / 3600 * 3600,
        services: vec![ServiceSummary {
            service: Service::Udp4,
            announces: 12,
            requests: 34,
            bytes_out: 5600,
            days,
        }],
    }
}

/// Starts a worker at 127.0.0.1 with these pages, and some announce URLs, one of which only this machine can use.
fn start(options: HttpOptions, pages: PageOptions) -> HttpServer {
    let tracker = tracker(options.non_compact);
    let registry = Arc::<MetricsRegistry>::default();
    let url = |scheme, port, path: &str, is_loopback| PublicUrl {
        scheme,
        port,
        path: path.into(),
        listener_policy: ListenerPolicyId(0),
        is_loopback,
    };
    let site = Site::new(SiteOptions {
        urls: vec![
            url("udp", 6969, "/announce", false),
            url("udp", 6969, "/announce", false),
            url("http", 80, "/announce", false),
            url("https", 443, "/a&b\"<c>'", false),
            url("wss", 8443, "/", false),
            url("http", 8080, "/announce", true),
        ],
        host: None,
        text: "Run by <Ann>\n&amp; Bob\n\nann@tracker.test".into(),
        services: Box::new(services),
        registry: Arc::clone(&registry),
        uptime_s: Box::new(|| 7265),
        version: "1.2.3",
        node: 0,
    });
    let pages = ListenerPages {
        tracker: Arc::clone(&tracker),
        site: Arc::new(site),
        listener_policy: ListenerPolicyId(0),
        options: pages,
    };
    let pages: Option<Arc<dyn Pages>> = Some(Arc::new(pages));
    HttpServer::set_up(Setup {
        tracker: Some(tracker),
        registry,
        options,
        pages,
        ..Setup::default()
    })
}
