//! `tidegate announce`, `scrape` and `check` against tidegate and against fake trackers.

mod check;
pub(crate) mod fake_trackers;
mod hostile_trackers;

use std::process::Output;

use crate::process::{Directory, Tracker, run, start, stderr, stdout};

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";
/// The info hashes, v1 and truncated v2, of the torrent of [`hybrid`].
const HYBRID_HASHES: [&str; 2] =
    ["7ec7b60ff3bd0c2866d91edbcfa4ef6d6b8ca0e0", "bb3600492eca41d802572f8de2aa9a8e5f812246"];

/// Returns a hybrid torrent of 7 bytes with these trackers. Python's hashlib computed its hashes.
fn hybrid(trackers: &[&str]) -> String {
    let tiers: Vec<String> = trackers.iter().map(|it| format!("l{}:{it}e", it.len())).collect();
    let file = |name, len, letter: &str| {
        format!("1:{name}d0:d6:lengthi{len}e11:pieces root32:{}ee", letter.repeat(32))
    };
    format!(
        "d13:announce-listl{}e4:infod9:file treed1:dd{}{}ee\
         5:filesld6:lengthi3e4:pathl1:aeed6:lengthi4e4:pathl1:beee\
         12:meta versioni2e4:name1:d12:piece lengthi16384e6:pieces20:{}ee",
        tiers.concat(),
        file("a", 3, "r"),
        file("b", 4, "s"),
        "x".repeat(20),
    )
}

/// Returns the lines of an output, each of which must be a JSON object.
fn lines(output: &Output) -> Vec<serde_json::Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn urls(tracker: &Tracker) -> Vec<String> {
    let (v4, v6) = (tracker.http4(), tracker.http6());
    let udp = [tracker.udp4(), tracker.udp6()].map(|it| format!("udp://{it}/announce"));
    let http = [v4, v6].map(|it| format!("http://{it}/announce"));
    [udp, http, [format!("ws://{v4}"), format!("ws://{v6}/")]].concat()
}

#[test]
fn announces_over_every_protocol_and_leaves_no_peer() {
    let tracker = start("");
    for url in urls(&tracker) {
        let output = run(&["announce", &url, HASH]);
        assert_eq!(output.status.code(), Some(0), "{url}: {}", stderr(&output));
        let text = stdout(&output);
        assert!(text.starts_with(&url) && text.contains("0 seeders, 1 leecher"), "{text}");
        let output = run(&["scrape", &url, HASH, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{url}: {}", stderr(&output));
        let [line] = lines(&output).try_into().unwrap();
        let file = &line["files"][0];
        assert_eq!(file["info_hash"], HASH);
        assert_eq!((&file["seeders"], &file["leechers"]), (&0.into(), &0.into()), "{url}");
    }
}

#[test]
fn lists_other_peers() {
    let tracker = start("");
    for url in urls(&tracker).iter().take(4) {
        let stays = ["announce", url, HASH, "--stay", "--port"];
        let [id, seeder] = [["--peer-id", "-XX0001-abcdefghijkl"], ["--left", "0"]];
        let first = run(&[stays.as_slice(), &["4001"], &id, &seeder].concat());
        assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
        let second = run(&[stays.as_slice(), &["4002", "--json", "--numwant", "7"]].concat());
        let [line] = lines(&second).try_into().unwrap();
        let own = if url.contains('[') { "[::1]" } else { "127.0.0.1" };
        let peers: Vec<&str> =
            line["peers"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        assert!(peers.contains(&format!("{own}:4001").as_str()), "{line}");
        assert!(!peers.contains(&format!("{own}:4002").as_str()), "{line}");
        assert_eq!((&line["event"], &line["interval_s"]), (&"started".into(), &1800.into()));
        for port in ["4001", "4002"] {
            let gone = run(&["announce", url, HASH, "--event", "stopped", "--port", port]);
            assert_eq!(gone.status.code(), Some(0), "{}", stderr(&gone));
        }
    }
}

#[test]
fn announces_both_hashes_of_a_hybrid_torrent_to_its_trackers() {
    let tracker = start("");
    let all = urls(&tracker);
    let trackers = [all[0].as_str(), "dht://x", &all[2]];
    let file = tracker.directory.write("hybrid.torrent", &hybrid(&trackers));
    let file = file.to_str().unwrap();
    for words in [["announce", file].as_slice(), &["announce", "-", file]] {
        let output = run(&[words, &["--json", "--stay"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("skipped a tracker: dht://x"), "{}", stderr(&output));
        let lines = lines(&output);
        let told: Vec<_> = lines.iter().map(|it| (&it["tracker"], &it["info_hash"])).collect();
        let hashes = HYBRID_HASHES.map(serde_json::Value::from);
        let trackers = [&all[0], &all[2]].map(|url| serde_json::Value::from(url.as_str()));
        let [a, b] = [&trackers[0], &trackers[1]];
        assert_eq!(told, [(a, &hashes[0]), (a, &hashes[1]), (b, &hashes[0]), (b, &hashes[1])]);
    }
    let output = run(&["scrape", file, "--json"]);
    let [first, second] = lines(&output).try_into().unwrap();
    for line in [first, second] {
        for (file, hash) in line["files"].as_array().unwrap().iter().zip(HYBRID_HASHES) {
            assert_eq!((&file["info_hash"], &file["leechers"]), (&hash.into(), &1.into()));
        }
    }
    let link =
        format!("magnet:?xt=urn:btmh:1220{}{}&tr={}", HYBRID_HASHES[1], "0".repeat(24), all[4]);
    let output = run(&["announce", &link]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains(HYBRID_HASHES[1]), "{}", stdout(&output));
}

#[test]
fn scrapes_more_torrents_than_one_request_holds() {
    let tracker = start("");
    let hashes: Vec<String> = (0..160).map(|n| format!("{n:040x}")).collect();
    let hashes: Vec<&str> = hashes.iter().map(String::as_str).collect();
    for url in urls(&tracker) {
        let output = run(&["announce", &url, hashes[150], "--stay"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let output = run(&[&["scrape", &url], hashes.as_slice(), &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{url}: {}", stderr(&output));
        let [line] = lines(&output).try_into().unwrap();
        let files = line["files"].as_array().unwrap();
        assert_eq!(files.len(), 160);
        for (file, hash) in files.iter().zip(&hashes) {
            assert_eq!(file["info_hash"], *hash);
            let is_known = file["leechers"].as_u64() > Some(0);
            assert_eq!(is_known, *hash == hashes[150], "{url} {file}");
        }
        // A WebTorrent peer leaves with its connection; the others stay.
    }
}

/// More of them are tested with the client's crate.
#[test]
fn exits_with_2_and_one_sentence_on_bad_arguments() {
    let directory = Directory::new();
    let html = directory.write("page.torrent", "<html>");
    let html = html.to_str().unwrap();
    let list = directory.write("list.txt", "udp://h:1 # fine\n\n# none\ngopher://h\n");
    let list = list.to_str().unwrap();
    let url = "udp://127.0.0.1:1";
    for (words, why) in [
        (["announce", url].as_slice(), "missing torrent"),
        (&["announce", "gopher://h", HASH], "gopher://h: unknown scheme"),
        (&["announce", url, html], "page.torrent: not a torrent: byte 0"),
        (&["announce", HASH], "names no tracker"),
        (&["announce", url, HASH, "--ca", "absent.pem"], "--ca: absent.pem: cannot read the file"),
        (&["announce", url, HASH, "--peer-id", "short"], "20 characters or 40 hex digits"),
        (&["announce", url, HASH, "--key", "xyz"], "8 hex digits"),
        (&["announce", url, HASH, "--timeout", "0"], "0 is not in 1..=3600"),
        (&["scrape", url], "missing torrent"),
        (&["check", "localhost:80"], "localhost:80: not a URL"),
        (&["check", "--file", list], "list.txt:4: gopher://h: unknown scheme"),
        (&["check", url, "--torrent", "x"], "--torrent: x: not a torrent"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{words:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}
