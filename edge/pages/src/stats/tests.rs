//! The texts as tools read them: exporters for Prometheus, the parsers of a Perl module for every mode, a
//! script for Munin, and the tests of bittorrent-tracker.

use tracker::counters::Counters;
use tracker::{FamilyTotals, Totals};
use types::{InfoHash, PeerId};

use super::*;

fn figures() -> Figures {
    let family = |seeders, leechers| FamilyTotals { seeders, leechers };
    let totals = Totals {
        torrents: 12,
        v4: family(5, 6),
        v6: family(7, 8),
        web: family(1, 2),
        downloads: 77,
        ..Totals::default()
    };
    let mut figures = Figures {
        totals,
        uptime_s: 33_275,
        version: "1.2.3",
        node: 4,
        udp: Traffic { opened: 66_550, connects: 40, announces: 20, scrapes: 3, bad_ids: 9 },
        tcp: Traffic { opened: 119, connects: 0, announces: 39, scrapes: 19, bad_ids: 0 },
        full_scrapes: 21,
        full_scrape_bytes: 1701,
        errors: Errors { malformed: 2, bad_parameter: 3, not_modest: 1, denied: 5, not_found: 6 },
        ..Figures::default()
    };
    let mut counters = Counters::default();
    for (name, announces) in [(b"-qB5000-", 640), (b"-TR4000-", 64)] {
        let mut id = [0; 20];
        id[..8].copy_from_slice(name);
        let from = [192, 0, 2, 1].into();
        (0..announces).for_each(|_| counters.announced(1, || Some((PeerId(id), from))));
    }
    figures.clients = counters.clients;
    figures
}

fn overview() -> Overview {
    let by_peers = vec![(44, InfoHash([0xab; 20])), (9, InfoHash([0x0c; 20]))];
    Overview { active: 11, by_peers, by_seeders: vec![(7, InfoHash([0xab; 20]))] }
}

#[test]
fn modes_for_mrtg_have_the_words_that_parsers_look_for() {
    for (mode, expected) in [
        ("peer", "29\n13\nopentracker serving 12 torrents\nopentracker"),
        ("torr", "12\n0\nopentracker serving 12 torrents\nopentracker"),
        (
            "conn",
            "66669\n99\n33275 seconds (9 hours)\n\
             opentracker connections, 2 conns/s :: 0 success/s.",
        ),
        (
            "udp4",
            "66550\n60\n33275 seconds (9 hours)\n\
             opentracker udp4 stats, 2 conns/s :: 0 success/s.",
        ),
        (
            "tcp4",
            "119\n39\n33275 seconds (9 hours)\n\
             opentracker tcp4 stats, 0 conns/s :: 0 success/s.",
        ),
        (
            "scrp",
            "19\n3\n33275 seconds (9 hours)\n\
             opentracker scrape stats, 0 scrape/s (tcp and udp)",
        ),
        (
            "fscr",
            "21000\n1701\n33275 seconds (9 hours)\n\
             opentracker full scrape stats, 0 conns/s :: 0 bytes/s.",
        ),
        ("completed", "77\n0\n33275 seconds (9 hours)\nopentracker, 8 completed/h."),
        ("herr", "302 RED 0\n400 ... 2\n400 PAR 3\n400 COM 0\n403 IP  5\n404 INV 6\n500 SRV 0\n"),
        ("version", "tidegate 1.2.3\n"),
    ] {
        assert_eq!(text(mode.as_bytes(), &figures()).as_deref(), Some(expected), "{mode}");
    }
    // The first second must not divide by zero.
    let young = Figures { uptime_s: 0, ..figures() };
    assert!(text(b"completed", &young).unwrap().contains("77 completed/h"));
}

#[test]
fn everything_has_what_exporters_read() {
    let xml = text(b"everything", &figures()).unwrap();
    assert_eq!(content_type(b"everything"), "text/xml");
    let lines: String = xml.lines().map(str::trim).collect();
    // Some tools take the children of the root by their numbers.
    assert_eq!(
        lines,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><stats><tracker_id>4</tracker_id>\
         <version>tidegate 1.2.3</version><uptime>33275</uptime>\
         <torrents><count_mutex>12</count_mutex><count_iterator>12</count_iterator></torrents>\
         <peers><count>29</count></peers><seeds><count>13</count></seeds>\
         <completed><count>77</count></completed>\
         <connections><tcp><accept>119</accept><announce>39</announce><scrape>19</scrape></tcp>\
         <udp><overall>66550</overall><connect>40</connect><announce>20</announce>\
         <scrape>3</scrape><missmatch>9</missmatch></udp>\
         <livesync><count>0</count></livesync></connections>\
         <debug><renew></renew><http_error>\
         <count code=\"302 Redirect\">0</count><count code=\"400 Parse Error\">2</count>\
         <count code=\"400 Invalid Parameter\">3</count>\
         <count code=\"400 Invalid Parameter (compact=0)\">0</count>\
         <count code=\"400 Not Modest\">1</count><count code=\"403 Access Denied\">5</count>\
         <count code=\"404 Not found\">6</count>\
         <count code=\"500 Internal Server Error\">0</count></http_error>\
         <mutex_stall><count>0</count></mutex_stall></debug></stats>"
    );
}

#[test]
fn top_lists_torrents_by_peers_then_by_seeders() {
    let expected = format!(
        "Top 10 torrents by peers:\n\t44\t{ab}\n\t9\t{oc}\nTop 10 torrents by seeds:\n\t7\t{ab}\n",
        ab = "AB".repeat(20),
        oc = "0C".repeat(20)
    );
    assert_eq!(OverviewForm::Top(10).text(&figures(), &overview()), expected);
    let one = OverviewForm::Top(1).text(&figures(), &overview());
    assert_eq!(one.matches("0C").count(), 0);
}

#[test]
fn page_and_json_have_the_figures_of_bittorrent_tracker() {
    let html = OverviewForm::Page.text(&figures(), &overview());
    // Scripts take the first number of each line, but for digits that follow `v` or `h`.
    assert_eq!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta name=\"color-scheme\" content=\"light dark\">\
         <title>Tracker statistics</title></head><body><h1>12 torrents (11 active)</h1>\n\
         <h2>Connected Peers: 29</h2>\n<h3>Peers Seeding Only: 13</h3>\n\
         <h3>Peers Leeching Only: 16</h3>\n<h3>Peers Seeding &amp; Leeching: 0</h3>\n\
         <h3>IPv4 Peers: 11</h3>\n<h3>IPv6 Peers: 15</h3>\n<h3>Clients:</h3>\n<ul>\n\
         <li><strong>unknown</strong> -qB5000- : 26</li>\n\
         <li><strong>unknown</strong> -TR4000- : 3</li>\n</ul></body></html>\n"
    );
    let json = OverviewForm::Json.text(&figures(), &overview());
    assert_eq!(
        json,
        "{\"torrents\":12,\"activeTorrents\":11,\"peersAll\":29,\"peersSeederOnly\":13,\
         \"peersLeecherOnly\":16,\"peersSeederAndLeecher\":0,\"peersIPv4\":11,\"peersIPv6\":15,\
         \"torrentsCount\":12,\"peersCount\":29,\"clients\":{\"unknown\":{\"-qB5000-\":26,\
         \"-TR4000-\":3}}}"
    );
    let empty = OverviewForm::Json.text(&Figures::default(), &Overview::default());
    assert!(empty.ends_with("\"peersCount\":0,\"clients\":{}}"), "{empty}");
}
