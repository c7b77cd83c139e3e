//! HTTP endpoints beside announces and scrapes: full scrapes, statistics, the public page.

use std::net::SocketAddr;

use harness::http::get;

use crate::clients::{Udp, has, http, http_announce, upgrade};
use crate::process::{Directory, Tracker, start};

/// A further listener with these settings.
fn listener(settings: &str) -> String {
    format!("[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.9:0\"]\n{settings}")
}

/// Where that listener is.
fn address(tracker: &Tracker) -> SocketAddr {
    tracker.listener("http", [127, 0, 0, 9])
}

/// Returns the texts between `<code>` and `</code>`.
fn urls(html: &str) -> Vec<&str> {
    html.split("<code>").skip(1).map(|part| part.split("</code>").next().unwrap()).collect()
}

#[test]
fn full_scrapes_follow_a_reload() {
    let tracker = start(&listener(""));
    let address = address(&tracker);
    for torrent in [0xaa, 0xbb, 0x11] {
        http_announce(tracker.http4(), torrent, 1001);
    }
    let refused = http(address, "/scrape").1;
    assert!(has(&refused, "info_hash is missing"), "{}", refused.escape_ascii());
    let exempt = "[limits]\nexempt = []\n";
    tracker.configure(&(exempt.to_owned() + &listener("http.full_scrape = true\n")));
    tracker.reload();
    let first = b"d5:filesd20:\x11\x11";
    tracker.wait_until("a list is sent", |_| http(address, "/scrape").1.starts_with(first));
    let body = http(address, "/scrape").1;
    let text = "you scraped all torrents a short time ago";
    assert!(has(&body, text) && body.ends_with(b"8:retry ini5ee"), "{}", body.escape_ascii());
    tracker.wait_until("it is counted", |it| it.sum("tidegate_full_scrapes_total", &[]) == 1.0);
    // The other listener has none.
    assert!(has(&http(tracker.http4(), "/scrape").1, "info_hash is missing"));
}

#[test]
fn statistics_count_all_workers_and_protocols() {
    let tracker = start(&listener("http.stats = \"opentracker\"\nhttp.page = \"figures\"\n"));
    let address = address(&tracker);
    for port in 1001..1009 {
        http_announce(tracker.http4(), 0xaa, port);
    }
    Udp::connect(tracker.udp4()).announce(0xbb, 1001);
    // Workers publish their counters four times a second, and figures are gathered once a second.
    tracker.wait_until("all are counted", |_| {
        let xml = String::from_utf8(http(address, "/stats?mode=everything").1).unwrap();
        let has = |text: &str| xml.contains(text);
        has("<announce>8</announce>")
            && has("<announce>1</announce>")
            && has("<connect>1</connect>")
            && has("<count_mutex>2</count_mutex>")
    });
    let (status, peers) = http(address, "/stats");
    let expected = b"9\n0\nopentracker serving 2 torrents\nopentracker";
    assert_eq!((status, peers.as_slice()), (200, expected.as_slice()));
    let page = String::from_utf8(http(address, "/").1).unwrap();
    assert!(page.contains("<dt>Torrents</dt><dd>2</dd>"), "{page}");
    assert_eq!(http(tracker.http4(), "/stats").0, 404);
}

#[test]
fn public_page_names_the_listeners_and_webtorrent_is_beside_it() {
    let tracker = start("");
    let (http4, udp) = (tracker.http4(), tracker.udp4().port());
    let html = get(http4, "/").unwrap().text();
    for expected in [
        format!("udp://{}:{udp}/announce", http4.ip()),
        format!("http://{http4}/announce"),
        format!("ws://{http4}/"),
    ] {
        assert!(urls(&html).contains(&expected.as_str()), "{expected} {html}");
    }
    assert_eq!(upgrade(http4, "/"), 101);
}

/// Returns the seconds of today in which UDP over IPv4 served, and in which it was down.
fn uptime(tracker: &Tracker) -> (u64, u64) {
    let page = String::from_utf8(http(address(tracker), "/page.json").1).unwrap();
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let services = page["services"].as_array().unwrap();
    let udp = services.iter().find(|it| it["service"] == "udp4");
    let days = udp.map(|udp| udp["days"].as_array().unwrap().iter().rev().take(2));
    let sum =
        |at: usize| days.clone().into_iter().flatten().map(|day| day[at].as_u64().unwrap()).sum();
    // Yesterday, too: midnight may pass.
    (sum(0), sum(1))
}

#[test]
fn uptime_survives_stops_and_kills() {
    let state = Directory::new();
    let config = format!(
        "[state]\ndir = {:?}\nflush_s = 1\n{}",
        state.path("state"),
        listener("http.page = \"figures\"\n")
    );
    let mut tracker = start(&config);
    assert_eq!(http(tracker.http4(), "/page.json").0, 200);
    tracker.wait_until("a second is served", |it| uptime(it).0 >= 1);
    let (served, down) = uptime(&tracker);
    assert_eq!(down, 0, "the time before the first start is unknown");
    tracker.stop();
    assert!(tracker.wait_for_end().success());
    let mut tracker = start(&config);
    tracker.wait_until("more is served", |it| uptime(it).0 > served);
    tracker.kill();
    // The page has whole seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let tracker = start(&config);
    tracker.wait_until("the gap is down", |it| uptime(it).1 >= 1);
    assert!(uptime(&tracker).0 >= served, "{:?} {served}", uptime(&tracker));
}
