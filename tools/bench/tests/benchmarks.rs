//! Benchmarks of a real tidegate, by the repository's definitions. Figures are not looked at.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use harness::Directory;

/// Runs a benchmark with short runs, whose results go to `directory`.
fn run(words: &str, directory: &Directory) -> Output {
    run_for(words, &["--seconds", "1"], directory)
}

/// The same with other words about the length of runs.
fn run_for(words: &str, length: &[&str], directory: &Directory) -> Output {
    let bench = env!("CARGO_BIN_EXE_tidegate-bench");
    let tidegate = Path::new(bench).with_file_name("tidegate");
    assert!(tidegate.is_file(), "no {}: cargo build --package tidegate", tidegate.display());
    let mut command = Command::new(bench);
    command.args(words.split(' ')).args(length);
    command.arg("--definitions").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench"));
    command.arg("--out").arg(directory.root());
    command.stdin(Stdio::null()).output().unwrap()
}

fn figures(directory: &Directory, case: &str) -> serde_json::Value {
    let runs = fs::read_to_string(directory.path("runs.jsonl")).unwrap();
    let mut runs =
        runs.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    runs.find(|run| run["case"] == case).unwrap()["figures"].clone()
}

#[test]
fn a_comparison_measures_responses_per_cpu_second() {
    let directory = Directory::new().unwrap();
    let words = "compare http --only tidegate --measure throughput --cores 1 --runs 2 --warm-up 1";
    let output = run(words, &directory);
    // On a busy machine one of the runs may fail.
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("# Trackers over http: keep-alive"), "{text}{errors}");
    assert!(figures(&directory, "throughput")["per_cpu_s"].as_f64() > Some(1.0));
}

#[test]
fn a_flood_is_measured_beside_honest_clients() {
    let directory = Directory::new().unwrap();
    let output = run_for("attacks", &["--seconds", "2"], &directory);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // The number of requests of others that are lost depends on the machine.
    for case in ["flood, no limits", "flood, 1,000 per second and address"] {
        assert!(figures(&directory, case)["sends_bytes_s"].as_f64() > Some(1.0), "{case}");
    }
}

/// The program of the shield answers connects, on a network of namespaces.
#[test]
fn engines_are_measured_on_a_veth_pair() {
    if let Some(obstacle) = harness::network::Network::obstacle() {
        println!("skipped: engines_are_measured_on_a_veth_pair {obstacle}");
        return;
    }
    let directory = Directory::new().unwrap();
    let words = "xdp loads --runs 1 --only shield --case V1 --load connects";
    let output = run_for(words, &["--milliseconds", "200"], &directory);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("# Engines and trackers on a veth pair"), "{text}{errors}");
    let figures = figures(&directory, "V1: connects");
    assert!(figures["responses_s"].as_f64() > Some(1.0), "{figures}");
    assert!(figures["verified"].as_f64() >= Some(1.0), "{figures}");
}
