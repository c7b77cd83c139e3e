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

/// Matches a text with a pattern in which `#` stands for a number. Returns the numbers.
fn numbers(text: &str, pattern: &str) -> Vec<u64> {
    let mut rest = text;
    let mut found = Vec::new();
    for (at, literal) in pattern.split('#').enumerate() {
        if at > 0 {
            let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
            found.push(rest[..end].parse().unwrap_or_else(|_| panic!("{rest}")));
            rest = &rest[end..];
        }
        rest = rest.strip_prefix(literal).unwrap_or_else(|| panic!("{literal}: {rest}"));
    }
    found
}

#[test]
fn modes_for_mrtg_have_the_words_that_parsers_look_for() {
    let uptime = "# seconds (# hours)\n";
    for (mode, pattern, expected) in [
        ("peer", "#\n#\nopentracker serving # torrents\nopentracker", vec![29, 13, 12]),
        ("torr", "#\n#\nopentracker serving # torrents\nopentracker", vec![12, 0, 12]),
        (
            "conn",
            &format!("#\n#\n{uptime}opentracker connections, # conns/s :: # success/s."),
            vec![66_669, 99, 33_275, 9, 2, 0],
        ),
        (
            "udp4",
            &format!("#\n#\n{uptime}opentracker udp4 stats, # conns/s :: # success/s."),
            vec![66_550, 60, 33_275, 9, 2, 0],
        ),
        (
            "tcp4",
            &format!("#\n#\n{uptime}opentracker tcp4 stats, # conns/s :: # success/s."),
            vec![119, 39, 33_275, 9, 0, 0],
        ),
        (
            "scrp",
            &format!("#\n#\n{uptime}opentracker scrape stats, # scrape/s (tcp and udp)"),
            vec![19, 3, 33_275, 9, 0],
        ),
        (
            "fscr",
            &format!("#\n#\n{uptime}opentracker full scrape stats, # conns/s :: # bytes/s."),
            vec![21_000, 1701, 33_275, 9, 0, 0],
        ),
        (
            "completed",
            &format!("#\n#\n{uptime}opentracker, # completed/h."),
            vec![77, 0, 33_275, 9, 8],
        ),
        (
            "herr",
            "302 RED #\n400 ... #\n400 PAR #\n400 COM #\n403 IP  #\n404 INV #\n500 SRV #\n",
            vec![0, 2, 3, 0, 5, 6, 0],
        ),
    ] {
        let text = text(mode.as_bytes(), &figures()).unwrap();
        assert_eq!(numbers(&text, pattern), expected, "{mode}");
    }
    assert_eq!(text(b"version", &figures()).unwrap(), "tidegate 1.2.3\n");
    // The first second must not divide by zero.
    let young = Figures { uptime_s: 0, ..figures() };
    assert!(text(b"completed", &young).unwrap().contains("77 completed/h"));
}

/// Elements of a document without attributes but for those of `count`, as paths with their texts.
fn elements(xml: &str) -> Vec<(String, String)> {
    let (mut path, mut found) = (Vec::new(), Vec::new());
    let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
    while let Some(start) = rest.find('<') {
        let text = rest[..start].trim().to_owned();
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        match tag.strip_prefix('/') {
            Some(name) => {
                found.push((path.join("/"), text));
                assert_eq!(path.pop().and_then(|open: &str| open.split(' ').next()), Some(name));
            }
            None => path.push(tag),
        }
    }
    assert!(path.is_empty() && rest.is_empty(), "{rest}");
    found
}

#[test]
fn everything_has_what_exporters_read() {
    let xml = text(b"everything", &figures()).unwrap();
    assert_eq!(content_type(b"everything"), "text/xml");
    let elements = elements(&xml);
    let value = |path: &str| {
        let path = format!("stats/{path}");
        let found = elements.iter().find(|(known, _)| *known == path);
        found.unwrap_or_else(|| panic!("{path}")).1.parse::<u64>().unwrap()
    };
    for (path, expected) in [
        ("tracker_id", 4),
        ("uptime", 33_275),
        ("torrents/count_mutex", 12),
        ("torrents/count_iterator", 12),
        ("peers/count", 29),
        ("seeds/count", 13),
        ("completed/count", 77),
        ("connections/tcp/accept", 119),
        ("connections/tcp/announce", 39),
        ("connections/tcp/scrape", 19),
        ("connections/udp/overall", 66_550),
        ("connections/udp/connect", 40),
        ("connections/udp/announce", 20),
        ("connections/udp/scrape", 3),
        ("connections/udp/missmatch", 9),
        ("connections/livesync/count", 0),
        ("debug/http_error/count code=\"400 Parse Error\"", 2),
        ("debug/http_error/count code=\"403 Access Denied\"", 5),
        ("debug/http_error/count code=\"404 Not found\"", 6),
        ("debug/mutex_stall/count", 0),
    ] {
        assert_eq!(value(path), expected, "{path}");
    }
    // Some tools take the children of the root by their numbers.
    let children: Vec<&str> = elements
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("stats/").filter(|rest| !rest.contains('/')))
        .collect();
    assert_eq!(
        children,
        [
            "tracker_id",
            "version",
            "uptime",
            "torrents",
            "peers",
            "seeds",
            "completed",
            "connections",
            "debug"
        ]
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

/// Reads the page as the tests of bittorrent-tracker do: of each line the first number that follows
/// another character than `v`, `^` or `h`.
fn read_page(html: &str) -> Vec<Option<u64>> {
    let split = html.replacen("torrents", "\n", 1);
    let lines = split.split('\n').filter(|line| !line.trim().is_empty());
    let number = |line: &str| {
        let bytes = line.as_bytes();
        let start = (1..bytes.len()).find(|at| {
            bytes[*at].is_ascii_digit() && !matches!(bytes[*at - 1], b'v' | b'^' | b'h')
        })?;
        let digits = line[start..].chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().ok()
    };
    lines.map(number).collect()
}

#[test]
fn page_and_json_have_the_figures_of_bittorrent_tracker() {
    let html = OverviewForm::Page.text(&figures(), &overview());
    let expected = [12, 11, 29, 13, 16, 0, 11, 15].map(Some);
    assert_eq!(read_page(&html)[..8], expected, "{html}");
    assert!(html.contains("<li><strong>unknown</strong> -qB5000- : 26</li>"), "{html}");
    let json = OverviewForm::Json.text(&figures(), &overview());
    assert_eq!(
        json,
        "{\"torrents\":12,\"activeTorrents\":11,\"peersAll\":29,\"peersSeederOnly\":13,\
         \"peersLeecherOnly\":16,\"peersSeederAndLeecher\":0,\"peersIPv4\":11,\"peersIPv6\":15,\
         \"torrentsCount\":12,\"peersCount\":29,\"clients\":{\"unknown\":{\"-qB5000-\":26,\
         \"-TR4000-\":2}}}"
    );
    let empty = OverviewForm::Json.text(&Figures::default(), &Overview::default());
    assert!(empty.ends_with("\"peersCount\":0,\"clients\":{}}"), "{empty}");
}

#[test]
fn modes_and_formats_are_read() {
    fn read<'a>(mode: &'a str, format: Option<&str>) -> StatsRequest<'a> {
        read_mode(mode.as_bytes(), format.map(str::as_bytes), 120)
    }
    assert_eq!(read("everything", Some("txt")), StatsRequest::Text(b"everything"));
    assert_eq!(read("top100", None), StatsRequest::Overview(OverviewForm::Top(100)));
    assert_eq!(read("statedump", None), StatsRequest::List(TorrentList::State { minutes: 2 }));
    assert_eq!(read("tpbs", None), StatsRequest::List(TorrentList::Bencoded));
    assert_eq!(read("tpbs", Some("txtp")), StatsRequest::List(TorrentList::TextWithDownloads));
    for mode in ["", "busy", "s24s", "renew", "syncs", "fulllog", "woodpeckers", "peers", "x"] {
        assert_eq!(read(mode, None), StatsRequest::Text(mode.as_bytes()));
        assert_eq!(text(mode.as_bytes(), &figures()), None, "{mode}");
    }
    assert_eq!(read("tpbs", Some("")), StatsRequest::Unknown);
}
