//! `tidegate check`: its verdicts on tidegate and on faulty trackers.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc::channel;

use super::fake_trackers::{answers, ok, reply, request, tcp, udp};
use super::{HASH, lines, urls};
use crate::clients::u32_at;
use crate::process::{Directory, run, start, stderr, stdout, tidegate, unused_address};

/// Returns the exit code and, for each URL, the items with verdict and text.
fn check(arguments: &[&str]) -> (Option<i32>, Vec<Vec<[String; 3]>>) {
    check_within("60", arguments)
}

/// The same for a tracker that lets some requests wait in vain.
fn check_within(timeout_s: &str, arguments: &[&str]) -> (Option<i32>, Vec<Vec<[String; 3]>>) {
    let output = run(&[&["check", "--json", "--timeout", timeout_s], arguments].concat());
    let item = |item: &serde_json::Value| {
        ["item", "verdict", "text"].map(|key| item[key].as_str().unwrap().to_owned())
    };
    let report = |line: &serde_json::Value| -> Vec<[String; 3]> {
        line["items"].as_array().unwrap().iter().map(item).collect()
    };
    (output.status.code(), lines(&output).iter().map(report).collect())
}

/// Returns verdict and text of an item. Panics unless there is exactly one of that name.
fn item<'a>(items: &'a [[String; 3]], name: &str) -> (&'a str, &'a str) {
    let mut same = items.iter().filter(|it| it[0] == name);
    let found = same.next().unwrap_or_else(|| panic!("no {name} in {items:?}"));
    assert!(same.next().is_none(), "{items:?}");
    (&found[1], &found[2])
}

#[track_caller]
fn expect(items: &[[String; 3]], expected: &[(&str, &str, &str)]) {
    for (name, verdict, part) in expected {
        let (found, text) = item(items, name);
        assert!(found == *verdict && text.contains(part), "{name}: {found}: {text}");
    }
}

#[test]
fn passes_our_own_tracker() {
    let tracker = start("");
    let urls = urls(&tracker);
    let arguments: Vec<&str> = urls.iter().map(String::as_str).chain(["--thorough"]).collect();
    let (code, reports) = check(&arguments);
    assert_eq!((code, reports.len()), (Some(0), 6), "{reports:?}");
    let common =
        ["connect", "announce", "interval", "re-announce", "introduction", "scrape", "stopped"];
    for (url, report) in urls.iter().zip(&reports) {
        for name in common {
            assert_eq!(item(report, name).0, "ok", "{url} {name}: {}", item(report, name).1);
        }
        assert_eq!(item(report, "name").0, "n/a");
        assert_eq!(item(report, if url.contains('[') { "ipv4" } else { "ipv6" }).0, "n/a");
    }
    let text =
        |report: usize, name| (item(&reports[report], name).0, item(&reports[report], name).1);
    assert_eq!(text(0, "connection-id"), ("ok", "received; wrong ids are ignored"));
    assert_eq!(text(1, "own-address"), ("ok", "the client's own address is left out"));
    assert_eq!(text(2, "keep-alive"), ("ok", "7 responses on one connection"));
    assert!(text(5, "keep-alive").1.contains("pong in"));
    assert!(text(4, "introduction").1.contains("offer relayed in"));
    assert_eq!(text(3, "stopped"), ("ok", "the swarm is empty"));
    // Two clients a visit, none of which is left; WebTorrent's have no address to be told.
    assert_eq!(text(0, "keep-alive").0, "n/a");
}

#[test]
fn reports_names_and_address_families() {
    let tracker = start("");
    // The other family listens on another port.
    let url = format!("http://localhost:{}/announce", tracker.http4().port());
    let (code, reports) = check(&[&url, "-4"]);
    assert_eq!(code, Some(0), "{reports:?}");
    assert!(item(&reports[0], "name").1.contains("127.0.0.1"));
    let (code, reports) = check(&[&urls(&tracker)[0], "-6"]);
    assert_eq!(code, Some(1));
    expect(&reports[0], &[("ipv6", "failed", "127.0.0.1 has no IPv6 address")]);
    let (code, reports) = check(&["udp://tracker.invalid:1"]);
    assert_eq!(code, Some(1));
    expect(&reports[0], &[("name", "failed", "cannot resolve tracker.invalid")]);
}

/// Returns a DNS response with one TXT record.
fn txt_response(query: &[u8], text: &str) -> Vec<u8> {
    let mut response =
        [&query[..2], &[0x81, 0x80], &[0, 1, 0, 1, 0, 0, 0, 0], &query[12..]].concat();
    let length = u8::try_from(text.len()).unwrap();
    // The name is the question's; type TXT, class IN, 60 seconds.
    response.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, length + 1, length]);
    response.extend(text.as_bytes());
    response
}

#[test]
fn compares_the_dns_record_with_listeners() {
    let tracker = start("");
    let (served, gone) = (tracker.http4().port(), unused_address().port());
    let url = format!("http://localhost:{served}/announce");
    let udp_port = tracker.udp4().port();
    for (record, verdict, part) in [
        (
            format!("BITTORRENT UDP:{udp_port} TCP:{served}"),
            "ok",
            format!("UDP:{udp_port} TCP:{served}"),
        ),
        (
            format!("BITTORRENT TCP:{served} UDP:{gone}"),
            "warning",
            format!("no tracker answers at UDP:{gone}"),
        ),
        (
            format!("BITTORRENT UDP:{udp_port}"),
            "warning",
            format!("add TCP:{served} to the record"),
        ),
        ("BITTORRENT DENY ALL".to_owned(), "failed", "runs no tracker".to_owned()),
        ("v=spf1 -all".to_owned(), "n/a", "localhost has none (BEP 34)".to_owned()),
    ] {
        let resolver = udp(move |query| vec![txt_response(query, &record)]).to_string();
        let (code, reports) = check(&[&url, "-4", "--resolver", &resolver]);
        expect(&reports[0], &[("dns-record", verdict, &part), ("announce", "ok", "")]);
        assert_eq!(code, Some(i32::from(verdict == "failed")));
    }
}

#[test]
fn fails_unreachable_trackers_only() {
    let tracker = start("");
    let directory = Directory::new();
    let gone = unused_address();
    let good = &urls(&tracker)[2];
    let list = format!("# ours\n{good}\n\nudp://{gone}/announce # gone\n");
    let list = directory.write("list.txt", &list);
    let (code, reports) = check(&["--file", list.to_str().unwrap()]);
    assert_eq!((code, reports.len()), (Some(1), 2));
    assert_eq!(item(&reports[0], "announce").0, "ok");
    expect(&reports[1], &[("connect", "failed", &format!("cannot reach {}", gone.ip()))]);
    // The output for people, and with --quiet that for cron.
    let output = run(&["check", "--file", list.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains(&format!("{good}: ok\n")), "{text}");
    assert!(text.contains("  failed   connect        cannot reach"), "{text}");
    let output = run(&["check", "-q", "--file", list.to_str().unwrap()]);
    assert!(!stdout(&output).contains(&format!("{good}: ok")), "{}", stdout(&output));
    assert!(stdout(&output).contains("failed   connect"), "{}", stdout(&output));
    let output = run(&["check", "--quiet", good]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
}

#[test]
fn passes_a_tracker_with_an_allow_list() {
    let directory = Directory::new();
    let allow = directory.write("allow.txt", HASH);
    let more = format!("[access]\nmode = \"allow\"\nallow = \"{}\"\n", allow.display());
    let tracker = crate::process::Tracker::start(directory, &more);
    for url in urls(&tracker) {
        let (code, reports) = check(&[&url]);
        assert_eq!(code, Some(0), "{reports:?}");
        let expected =
            [("announce", "warning", "refused: "), ("scrape", "n/a", "announces are refused")];
        expect(&reports[0], &expected);
        let (code, reports) = check(&[&url, "--torrent", HASH]);
        assert_eq!(code, Some(0), "{reports:?}");
        let alone = ("introduction", "n/a", "other clients share this torrent");
        expect(&reports[0], &[("announce", "ok", ""), ("stopped", "ok", ""), alone]);
        let (code, _) = check(&[&url, "--torrent", &"f".repeat(40)]);
        assert_eq!(code, Some(1), "{url}");
    }
}

#[test]
fn finds_faults_of_a_udp_tracker() {
    const MAGIC: u64 = 0x417_2710_1980;
    let mut leechers = 0_u32;
    let bad = udp(move |it| {
        let answer = match u32_at(it, 8) {
            0 => MAGIC.to_be_bytes().to_vec(),
            1 => {
                leechers += 1;
                // It lists the client itself, and a peer list that is cut short.
                let figures = [0, leechers, 0].map(u32::to_be_bytes);
                let peers = [&[127, 0, 0, 1], &it[96..98], &[9]].concat();
                [figures.as_flattened(), &peers].concat()
            }
            _ => [5_u32, 6, 7].map(u32::to_be_bytes).as_flattened().to_vec(),
        };
        vec![reply(it, u32_at(it, 8), &answer)]
    });
    let (code, reports) = check(&[&format!("udp://{bad}/announce")]);
    assert_eq!(code, Some(1));
    expect(
        &reports[0],
        &[
            ("connection-id", "failed", "the protocol's constant"),
            ("announce", "warning", "the peer list ends within a peer"),
            ("interval", "failed", "0 s"),
            ("own-address", "warning", "the client's own address, 127.0.0.1:"),
            ("re-announce", "failed", "counts as another peer: 2 leechers instead of 1"),
            ("introduction", "failed", "a second client does not receive the first one's address"),
            ("scrape", "warning", "5 seeders, 7 leechers, expected 2 leechers"),
            ("stopped", "warning", "12 peers are still counted after they stopped"),
        ],
    );
}

#[test]
fn tries_a_wrong_connection_id_only_if_thorough() {
    let serve = |it: &[u8]| match u32_at(it, 8) {
        0 => vec![reply(it, 0, &7_u64.to_be_bytes())],
        1 => vec![reply(it, 1, &[0, 0, 7, 8, 0, 0, 0, 1, 0, 0, 0, 0])],
        _ => vec![reply(it, 2, &[0; 12])],
    };
    let careless = format!("udp://{}/", udp(serve));
    let (_, reports) = check(&[&careless]);
    expect(&reports[0], &[("connection-id", "ok", "received")]);
    let (_, reports) = check(&[&careless, "--thorough"]);
    expect(&reports[0], &[("connection-id", "failed", "wrong ids are accepted")]);
    let careful = udp(move |it| match u32_at(it, 8) {
        0 => serve(it),
        _ if it[..8] != 7_u64.to_be_bytes() => vec![reply(it, 3, b"who?")],
        _ => serve(it),
    });
    let (_, reports) = check(&[&format!("udp://{careful}/"), "--thorough"]);
    expect(&reports[0], &[("connection-id", "ok", "wrong ids are refused: who?")]);
}

#[test]
fn finds_faults_of_an_http_tracker() {
    let body = "d5:peers0:8:intervali5e12:min intervali9e10:incompletei1ee";
    let closing = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let bad = answers(closing, true);
    let (code, reports) = check(&[&format!("http://{bad}/announce")]);
    assert_eq!(code, Some(1));
    expect(
        &reports[0],
        &[
            ("announce", "warning", "not strict bencoding: byte 10: key out of order"),
            ("interval", "warning", "5 s is less than the minimum interval, 9 s"),
            ("re-announce", "ok", ""),
            (
                "introduction",
                "failed",
                "a second client does not receive the first one's address, only 0 others",
            ),
            ("scrape", "failed", "the expected keys are missing"),
            ("keep-alive", "warning", "each announce needs a new one"),
        ],
    );
    // It closes without announcing it.
    let bad = answers(ok("d8:intervali1800e5:peers0:e"), true);
    let (_, reports) = check(&[&format!("http://{bad}/a")]);
    expect(
        &reports[0],
        &[
            ("announce", "warning", "no leecher count"),
            ("scrape", "warning", "has no scrape URL"),
            ("keep-alive", "warning", "closed a connection without announcing it"),
        ],
    );
}

#[test]
fn repeats_announces_at_the_interval_of_the_tracker() {
    let (message, received) = channel();
    let server = tcp(move |mut stream| {
        while let Some(target) = request(&mut stream) {
            let _ = message.send(target);
            let _ = stream.write_all(ok("d8:intervali1e5:peers0:e").as_bytes());
        }
    });
    let url = format!("http://{server}/announce?a=b");
    let words =
        ["announce", &url, HASH, "--count", "2", "--port", "7", "--left", "9", "--key", "ab"];
    let output = run(&[words.as_slice(), &["--numwant", "3", "--uploaded", "4"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let received: Vec<String> = received.try_iter().collect();
    let event = |target: &String| {
        let event = target.split('&').find_map(|it| it.strip_prefix("event="));
        event.unwrap_or_default().to_owned()
    };
    assert_eq!(received.iter().map(event).collect::<Vec<_>>(), ["started", "", "stopped"]);
    for part in
        ["a=b&", "port=7&", "left=9&", "numwant=3", "uploaded=4", "key=000000AB", "compact=1"]
    {
        assert!(received[0].contains(part), "{part}: {}", received[0]);
    }
    let id = |target: &String| target.split("peer_id=").nth(1).unwrap()[..20].to_owned();
    assert!(
        received.iter().all(|it| id(it) == id(&received[0])) && id(&received[0]).starts_with("-TG")
    );
}

#[test]
fn prints_changes_while_watching() {
    let tracker = start("");
    let url = urls(&tracker)[2].clone();
    let mut child = tidegate(&["check", "--watch", "1", "--timeout", "60", &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut message = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut round = || -> Vec<String> {
        let mut lines = Vec::new();
        for line in message.by_ref() {
            let is_end = line.ends_with(" of 1 failed");
            lines.push(line);
            if is_end {
                break;
            }
        }
        lines
    };
    let first = round();
    assert_eq!(first[0], format!("{url}: ok"));
    assert!(first.last().unwrap().ends_with("Z: 0 of 1 failed"), "{first:?}");
    assert_eq!(round().len(), 1, "nothing has changed");
    drop(tracker);
    // The tracker may have ended in the middle of a round.
    let mut changed = round();
    while changed.len() == 1 {
        changed = round();
    }
    assert_eq!(changed[0], format!("{url}: failed"));
    assert!(changed.last().unwrap().ends_with("Z: 1 of 1 failed"), "{changed:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}
