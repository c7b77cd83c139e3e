//! HTTP endpoints beside announces and scrapes, as far as reloads and restarts matter to them. Their responses are
//! tested in edge/pages.

use std::net::SocketAddr;

use crate::clients::{has, http, http_announce};
use crate::process::{Directory, Tracker, start};

/// A further listener with these settings.
fn listener(settings: &str) -> String {
    format!("[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.9:0\"]\n{settings}")
}

/// Where that listener is.
fn address(tracker: &Tracker) -> SocketAddr {
    tracker.listener("http", [127, 0, 0, 9])
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
