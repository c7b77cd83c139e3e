//! Statistics in the forms of opentracker and bittorrent-tracker. The texts are tested with their writers.

use tracker::Limits;

use super::full_scrape::add_torrents;
use super::*;

fn start_stats() -> HttpServer {
    let networks = Networks::parse(["127.0.0.0/8", "192.0.2.1"]).unwrap();
    let stats = Some(StatsOptions { path: "/stats".into(), form: StatsForm::Page, networks });
    start(behind_proxy(), PageOptions { stats, ..PageOptions::default() })
}

/// A response's status, content type and text.
fn read(server: &HttpServer, target: &str, headers: &str) -> (u16, String, String) {
    let response = server.client().request(get(target, headers));
    let content_type = response.header("Content-Type").unwrap_or_default().to_owned();
    (response.status, content_type, response.text())
}

#[test]
fn forms_of_both_trackers_are_served() {
    let server = start_stats();
    let exempt = Networks::parse(["127.0.0.1"]).unwrap();
    server.tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    add_torrents(&server.tracker, 3);
    server.client().request(get(&announce(1, ""), ""));
    let a = "61".repeat(20);
    let accept = "Accept: application/json\r\n";
    for (target, headers, status, content_type, part) in [
        ("/stats", "", 200, "text/html; charset=utf-8", "<h1>4 torrents (4 active)</h1>"),
        ("/stats", accept, 200, "application/json", "{\"torrents\":4,"),
        ("/stats.json", "", 200, "application/json", "{\"torrents\":4,"),
        ("/stats?format=txt&mode=peer", "", 200, "text/plain", "4\n3\nopentracker serving 4"),
        ("/stats?mode=tpbs&format=txt", "", 200, "text/plain", &format!("{a}:0:1\n")),
        ("/stats?mode=statedump", "", 200, "text/plain", &format!("\n{a}:")),
        ("/stats?mode=top10", "", 200, "text/plain", "Top 10 torrents by peers:\n\t1\t"),
        ("/stats?mode=everything", "", 200, "text/xml", "<count_mutex>4</count_mutex>"),
        ("/stats?mode=busy", "", 404, "text/plain", "no such statistics"),
        ("/stats?mode=tpbs&format=x", "", 404, "text/plain", "no such statistics"),
        ("/stats/x", "", 404, "text/plain", ""),
        ("/stats.jsonx", "", 404, "text/plain", ""),
    ] {
        let (found_status, found_type, text) = read(&server, target, headers);
        assert_eq!((found_status, &*found_type), (status, content_type), "{target}");
        assert!(text.contains(part), "{target}: {text}");
    }
    assert_eq!(server.finish(Protocol::Http).full_scrapes, 2);
}

#[test]
fn all_clients_get_the_same_overview_for_half_a_minute() {
    let server = start_stats();
    let has_active = |count: u32| {
        let part = format!("\"activeTorrents\":{count},");
        read(&server, "/stats.json", "").2.contains(&part)
    };
    assert!(has_active(0));
    server.client().request(get(&announce(1, ""), ""));
    assert!(has_active(0));
    server.advance(30);
    assert!(has_active(1));
}

#[test]
fn only_some_networks_may_read_statistics() {
    let server = start_stats();
    let by = |ip: &str| format!("X-Forwarded-For: {ip}\r\n");
    for target in ["/stats", "/stats.json", "/stats?mode=tpbs", "/stats?mode=nonsense"] {
        assert_eq!(read(&server, target, &by("192.0.2.2")).0, 403, "{target}");
        assert_ne!(read(&server, target, &by("192.0.2.1")).0, 403, "{target}");
    }
}

#[test]
fn lists_of_statistics_count_as_full_scrapes() {
    let server = start_stats();
    assert_eq!(read(&server, "/stats?mode=tpbs", "").0, 200);
    let (status, _, text) = read(&server, "/stats?mode=statedump", "");
    assert_eq!(status, 503);
    assert!(text.starts_with(Refusal::FullScrapeTooSoon { wait_min: 0 }.text()), "{text}");
    // A pass over the torrents that lists none does not.
    assert_eq!(read(&server, "/stats?mode=top100", "").0, 200);
    assert_eq!(read(&server, "/stats.json", "").0, 200);
}
