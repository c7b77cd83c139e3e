//! `tidegate-bench load` over every protocol, and interrupted.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::{Directory, Signal, Tracker, signal};

/// The tracker, which another package builds.
fn tidegate() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate-bench")).with_file_name("tidegate");
    assert!(program.is_file(), "no {}: cargo build --package tidegate", program.display());
    program
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end, which must come soon.
fn run(arguments: &[&str]) -> Output {
    bench(arguments).output().unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Serves UDP, HTTP and HTTPS on the loopback addresses of both families.
fn start(directory: &Directory) -> Tracker {
    let (chain, key) = (directory.path("chain"), directory.path("key"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&chain, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let listen = "listen = [\"127.0.0.1:0\", \"[::1]:0\"]\n";
    let config = format!(
        "[udp]\n{listen}workers = 2\n[http]\n{listen}workers = 2\n[admin]\nlisten = [\"127.0.0.1:0\"]\n\
         [tls]\n{listen}certificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
    );
    Tracker::start(Command::new(tidegate()), directory.root(), &config).unwrap()
}

fn urls(tracker: &Tracker) -> Vec<(&'static str, String)> {
    let mut urls = Vec::new();
    let families: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for ip in families {
        let udp = tracker.address("udp", ip).unwrap();
        let address = tracker.address("http", ip).unwrap();
        urls.push(("udp", format!("udp://{udp}/")));
        urls.push(("http", format!("http://{address}/announce")));
        urls.push(("ws", format!("ws://{address}/")));
        let address = tracker.address("https", ip).unwrap();
        urls.push(("http", format!("https://{address}/announce")));
        urls.push(("ws", format!("wss://{address}/")));
    }
    urls
}

/// Runs a load with these arguments and returns its JSON report.
fn figures(words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&harness::output(bench(words)).unwrap()).unwrap()
}

#[test]
fn finds_no_fault_with_our_own_tracker() {
    let directory = Directory::new().unwrap();
    let tracker = start(&directory);
    for (seed, (protocol, url)) in urls(&tracker).into_iter().enumerate() {
        // Without optimization, handshakes are slow.
        let seconds = if url.starts_with("https") { "5" } else { "1" };
        let mut words = vec!["load", protocol, &url, "--seconds", seconds, "--check-every", "1"];
        words.extend(["--warm-up", "0", "--churn", "5", "--completes", "5", "--torrents", "40"]);
        // Each run needs torrents of its own: it would not know the peers of the run before.
        let seed = seed.to_string();
        words.extend(["--seed", &seed]);
        words.extend(
            url.starts_with("https").then_some(["--connections", "4"]).into_iter().flatten(),
        );
        words.extend(["--peers", if protocol == "ws" { "32" } else { "2000" }]);
        if protocol == "udp" {
            words.extend(["--mix", "1:9:1"]);
        }
        // Over IPv6 by two threads, and without batches in the stack or with a connection for each request.
        if url.contains("[::1]") {
            words.extend(["--workers", "2"]);
            words.extend((protocol == "udp").then_some("--no-offload"));
            words.extend((protocol == "http").then_some("--close"));
        }
        let figures = figures(&words);
        assert_eq!(
            (figures["protocol"].as_str(), figures["url"].as_str()),
            (Some(protocol), Some(&*url))
        );
        assert!(figures["responses"]["announce"].as_u64() > Some(10), "{figures}");
        if protocol == "udp" {
            assert!(figures["responses"]["connect"].as_u64() > Some(0), "{figures}");
            assert!(figures["responses"]["scrape"].as_u64() > Some(0), "{figures}");
            assert!(figures["peers_per_response"].as_f64() > Some(1.0), "{figures}");
        }
        assert_eq!(figures["errors"], serde_json::json!({}), "{figures}");
        assert_eq!(figures["lost"], 0, "{figures}");
        assert_eq!(figures["late"], 0, "{figures}");
        for check in ["own_address", "duplicates", "unknown_peers", "bad_counts"] {
            assert_eq!(figures["checks"][check], 0, "{check}: {figures}");
        }
        assert!(figures["checks"]["checked"].as_u64() > Some(10), "{figures}");
    }
}

#[test]
fn reports_what_an_interrupted_load_has_measured() {
    let directory = Directory::new().unwrap();
    let tracker = start(&directory);
    for (protocol, url) in urls(&tracker).into_iter().take(3) {
        let mut load = bench(&["load", protocol, &url, "--progress", "--warm-up", "0"])
            .args(["--seconds", "600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first line of progress: something has been measured.
        let mut line = String::new();
        BufReader::new(load.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("responses/s") && line.contains("p99"), "{line}");
        signal(load.id(), Signal::SIGINT).unwrap();
        let mut text = String::new();
        load.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(load.wait().unwrap().success());
        let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(figures["ended"], "interrupted");
        assert!(figures["responses"]["announce"].as_u64() > Some(0), "{figures}");
    }
}

#[test]
fn writes_the_same_info_hashes_for_every_protocol() {
    let directory = Directory::new().unwrap();
    let mut files = Vec::new();
    for url in ["udp://127.0.0.1:1", "http://127.0.0.1:1/announce", "ws://127.0.0.1:1"] {
        let file = directory.path("hashes");
        let protocol = url.split(':').next().unwrap();
        let path = file.to_str().unwrap();
        let output = run(&["load", protocol, url, "--torrents", "5", "--write-hashes", path]);
        assert!(output.status.success(), "{}", stderr(&output));
        files.push(fs::read_to_string(file).unwrap());
    }
    assert!(files[0].lines().count() == 5 && files[0].lines().all(|line| line.len() == 40));
    assert!(files[1] == files[0] && files[2] == files[0]);
    let output = run(&["load", "udp", "udp://127.0.0.1:1", "--write-hashes", "/nowhere/hashes"]);
    assert!(stderr(&output).contains("cannot write /nowhere/hashes"), "{}", stderr(&output));
}

#[test]
fn exits_with_the_code_of_the_mistake() {
    for (words, code, what) in [
        (&["load", "udp"][..], 2, "<URL>"),
        (&["load", "udp", "udp://127.0.0.1:1", "--mix", "x"], 2, "expected weights"),
        (&["load", "udp", "tcp://127.0.0.1:1"], 2, "unknown scheme"),
        (&["load", "udp", "udp://192.0.2.1:1"], 2, "--i-own-this-tracker"),
        (&["load", "http", "http://127.0.0.1:1/announce"], 1, "cannot connect to 127.0.0.1:1"),
        (&["load", "ws", "ws://127.0.0.1:1"], 1, "no peer could join"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(stderr(&output).contains(what), "{words:?}: {}", stderr(&output));
    }
}
