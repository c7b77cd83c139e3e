//! Statistics in the forms of opentracker and bittorrent-tracker.

use tracker::Limits;

use super::full_scrape::add_torrents;
use super::*;

fn start_stats(path: &str, form: StatsForm) -> HttpServer {
    let networks = Networks::parse(["127.0.0.0/8", "192.0.2.1"]).unwrap();
    let stats = Some(StatsOptions { path: path.into(), form, networks });
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let options = HttpOptions { trusted_proxies, ..HttpOptions::default() };
    start(options, PageOptions { stats, ..PageOptions::default() })
}

/// A response's status, content type and text.
fn read(server: &HttpServer, target: &str, headers: &str) -> (u16, String, String) {
    let response = server.client().request(get(target, headers));
    let content_type = response.header("Content-Type").unwrap_or_default().to_owned();
    (response.status, content_type, response.text())
}

#[test]
fn modes_of_opentracker_are_served_whatever_the_form() {
    let peers = "4\n3\nopentracker serving 4 torrents\nopentracker";
    for (form, content_type, first) in [
        (StatsForm::Opentracker, "text/plain", peers),
        (StatsForm::Page, "text/html; charset=utf-8", "<h1>4 torrents (4 active)</h1>"),
    ] {
        let server = start_stats("/stats", form);
        let exempt = Networks::parse(["127.0.0.1"]).unwrap();
        server.tracker.limiter().replace(Limits { exempt, ..Limits::default() });
        add_torrents(&server.tracker, 3);
        server.client().request(get(&announce(1, ""), ""));
        let a = "61".repeat(20);
        for (mode, status, content_type, part) in [
            ("", 200, content_type, first),
            ("?format=txt&mode=peer", 200, "text/plain", peers),
            ("?mode=tpbs&format=txt", 200, "text/plain", &format!("{a}:0:1\n")),
            ("?mode=statedump", 200, "text/plain", &format!("\n{a}:")),
            ("?mode=top10", 200, "text/plain", "Top 10 torrents by peers:\n\t1\t"),
            ("?mode=everything", 200, "text/xml", "<count_mutex>4</count_mutex>"),
            ("?mode=busy", 404, "text/plain", "no such statistics"),
            ("?mode=tpbs&format=x", 404, "text/plain", "no such statistics"),
        ] {
            let (found_status, found_type, text) = read(&server, &format!("/stats{mode}"), "");
            assert_eq!((found_status, &*found_type), (status, content_type), "{mode}");
            assert!(text.contains(part), "{mode}: {text}");
        }
        assert_eq!(server.finish(Protocol::Http).full_scrapes, 2);
    }
}

#[test]
fn json_of_bittorrent_tracker_is_beside_the_page() {
    let server = start_stats("/secret/stats", StatsForm::Page);
    server.client().request(get(&announce(1, ""), ""));
    let json = "{\"torrents\":1,\"activeTorrents\":1,\"peersAll\":1,\"peersSeederOnly\":0,\
                \"peersLeecherOnly\":1,\"peersSeederAndLeecher\":0,\"peersIPv4\":1,\"peersIPv6\":0,";
    for (target, accept) in
        [("/secret/stats.json", ""), ("/secret/stats", "Accept: application/json\r\n")]
    {
        let (status, content_type, text) = read(&server, target, accept);
        assert_eq!((status, &*content_type), (200, "application/json"), "{target}");
        assert!(text.starts_with(json), "{text}");
    }
    for target in ["/stats", "/secret/stats/x", "/secret/statsx", "/secret/stats.jsonx"] {
        assert_eq!(read(&server, target, "").0, 404, "{target}");
    }
    // All clients get the same overview for half a minute.
    server.client().request(get(&announce(1, "").replace("aaaaa", "bbbbb"), ""));
    assert!(read(&server, "/secret/stats.json", "").2.contains("\"activeTorrents\":1,"));
    server.advance(30);
    assert!(read(&server, "/secret/stats.json", "").2.contains("\"activeTorrents\":2,"));
}

#[test]
fn only_some_networks_may_read_statistics() {
    let server = start_stats("/stats", StatsForm::Opentracker);
    let by = |ip: &str| format!("X-Forwarded-For: {ip}\r\n");
    for target in ["/stats", "/stats.json", "/stats?mode=tpbs", "/stats?mode=nonsense"] {
        assert_eq!(read(&server, target, &by("192.0.2.2")).0, 403, "{target}");
        assert_ne!(read(&server, target, &by("192.0.2.1")).0, 403, "{target}");
    }
}

#[test]
fn lists_of_statistics_count_as_full_scrapes() {
    let server = start_stats("/stats", StatsForm::Page);
    assert_eq!(read(&server, "/stats?mode=tpbs", "").0, 200);
    let (status, _, text) = read(&server, "/stats?mode=statedump", "");
    assert_eq!(status, 503);
    assert!(text.starts_with(Refusal::FullScrapeTooSoon { wait_min: 0 }.text()), "{text}");
    // A pass over the torrents that lists none does not.
    assert_eq!(read(&server, "/stats?mode=top100", "").0, 200);
    assert_eq!(read(&server, "/stats.json", "").0, 200);
}
