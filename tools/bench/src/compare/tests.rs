//! Whole comparisons with stand-ins: this test program listens as a tracker, and a script prints
//! what the load tester would.

use std::fs;
use std::process::Command;

use clap::Parser;
use harness::Directory;
use serde_json::Value;

use super::*;
use crate::lab::FIGURES;

#[derive(Parser)]
enum Line {
    Compare(Compare),
}

/// A folder with definitions and programs.
struct Set(Directory);

impl Set {
    fn new(trackers: &str) -> Self {
        let set = Self(Directory::new().unwrap());
        fs::create_dir(set.0.path("record")).unwrap();
        set.write("trackers.toml", trackers);
        set.write(
            "udp.toml",
            "[[load]]\nname = 'usual'\ndescription = 'A load.'\nwords = ['--threads', '{load_cores}']\n\
             [[fill]]\nname = 'full'\npeers = 1000\nseconds = 1\nwords = ['--fill']\n\
             [[load]]\nname = 'fixed'\ndescription = 'At a rate.'\nrates = [7000]\n\
             words = []\n",
        );
        let figures = FIGURES.replace('\n', " ");
        // Logs its arguments, and writes info hashes as the load tester does.
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{0}/arguments'\ncase \"$*\" in *--write-hashes*)\n\
             for file; do :; done; echo 00 > \"$file\"; exit;; esac\necho '{figures}'\n",
            set.0.root().display()
        );
        // Written by another process: a child started meanwhile by another thread of this one would
        // inherit the file open for writing, and executing it would fail.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]);
        assert!(shell.arg(set.0.path("load")).arg(script).status().unwrap().success());
        set
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path(name)).unwrap_or_default()
    }

    /// Compares with these options. Returns whether nothing failed.
    fn compare(&self, options: &str) -> Result<bool> {
        let line = self.parse(&format!("compare --cores 1 {options}"));
        let Ok(Line::Compare(compare)) = line else { panic!("{:?}", line.err()) };
        let lab = Lab::with_tester(&compare.lab, self.0.path("load"))?;
        Ok(compare.run_in(lab)? == ExitCode::SUCCESS)
    }

    fn parse(&self, line: &str) -> Result<Line, String> {
        let folder = self.0.root().display();
        let line = format!(
            "x {line} --runs 2 --seconds 1 --warm-up 0 --rivals {folder} --definitions {folder} \
             --out {folder}/out"
        );
        Line::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
    }

    /// Returns the value of a key in each line of a file.
    fn values(&self, name: &str, key: &str) -> Vec<Value> {
        let value = |line: &str| serde_json::from_str::<Value>(line).unwrap()[key].clone();
        self.read(name).lines().map(value).collect()
    }
}

/// A tracker that is this test program.
fn stand_in(name: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[[tracker]]\nname = '{name}'\nspeaks = ['udp']\nprogram = 'sh'\nversion = ['echo', '1.0']\n\
         start = ['{}', '--exact', 'lab::tracker::tests::a_stand_in']\n\
         environment = {{ STAND_IN_LISTEN = '{{address}}' }}\n{more}\n",
        program.display()
    )
}

#[test]
fn trackers_take_turns_and_failures_do_not_stop_others() {
    let broken = "[[tracker]]\nname = 'broken'\nspeaks = ['udp']\nprogram = 'sh'\n\
                  start = ['sh', '-c', 'echo no such key; exit 1']\n";
    let set = Set::new(&[&stand_in("a", ""), broken, &stand_in("b", "")].concat());
    let record = format!("--measure throughput --record={}/record", set.0.root().display());
    assert!(!set.compare(&format!("udp {record}")).unwrap());
    let turns = std::iter::zip(
        set.values("out/runs.jsonl", "round"),
        set.values("out/runs.jsonl", "subject"),
    );
    let mut turns: Vec<_> = turns.collect();
    // A noisy run is repeated at once.
    turns.dedup();
    let expected = [(1, "a"), (1, "b"), (2, "a"), (2, "b")];
    assert_eq!(turns, expected.map(|(round, name)| (Value::from(round), Value::from(name))));
    let report = set.read("out/report.md");
    assert!(report.contains("broken, throughput, cores 1: the tracker exited"), "{report}");
    assert!(report.contains("no such key"));
    assert!(report.contains("**≥ 100,000**") && report.contains("200,000"));
    assert_eq!(set.read("record/compare-udp.jsonl"), set.read("out/runs.jsonl"));
    // Another one is added.
    assert!(set.compare(&format!("udp --only b {record}")).unwrap());
    let both = set.read("record/compare-udp.jsonl");
    assert!(both.ends_with(&set.read("out/runs.jsonl")) && both.lines().count() >= 6);
    // Nothing is recorded unless asked for.
    set.compare("udp --only b --measure throughput").unwrap();
    assert_eq!(set.read("record/compare-udp.jsonl"), both);
}

#[test]
fn passes_the_load_s_arguments() {
    let set = Set::new(&stand_in("a", "allow_list = true"));
    assert!(set.compare("udp").unwrap());
    let arguments = set.read("arguments");
    let is_list = |line: &&str| line.contains("--write-hashes");
    let lines: Vec<&str> = arguments.lines().filter(|line| !is_list(line)).collect();
    assert_eq!(arguments.lines().filter(is_list).count(), lines.len());
    for line in &lines {
        let start = "load udp udp://127.0.0.1:";
        assert!(line.starts_with(start) && line.contains(" --pid "), "{line}");
        assert!(line.contains("--seed 1 "), "{line}");
    }
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert!(count("--threads") >= 2 && count("--fill") >= 1 && count("--rate") == 0);
    assert!(set.read("out/report.md").contains("### full"));
}

#[test]
fn a_load_has_rates_of_its_own() {
    let set = Set::new(&stand_in("a", ""));
    assert!(set.compare("udp --load fixed --measure latency").unwrap());
    let arguments = set.read("arguments");
    // The throughput is not measured.
    assert!(arguments.lines().all(|line| line.contains("--rate 7000 ")), "{arguments}");
    let report = set.read("out/report.md");
    assert!(report.contains("## Median response time") && report.contains("| 7,000/s"), "{report}");
}

#[test]
fn other_builds_stand_beside_the_first_tracker() {
    let set = Set::new(&[stand_in("a", ""), stand_in("b", "")].concat());
    set.compare("udp --beside before=/bin/sh --measure throughput").unwrap();
    let report = set.read("out/report.md");
    let rows =
        |name: &str| report.lines().filter(|line| line.starts_with(&format!("| {name} "))).count();
    assert!(rows("a") > 0 && rows("before") > 0 && rows("b") == 0, "{report}");
    // Both answer the same in each round.
    assert!(report.contains("1.000 – 1.000"), "{report}");
    let error = set.compare("udp --beside b=/bin/sh").unwrap_err();
    assert!(format!("{error:#}").contains("b: a tracker has this name"), "{error:#}");
}

#[test]
fn impossible_options_are_rejected_before_anything_is_started() {
    let set = Set::new(&stand_in("a", ""));
    for (options, what) in [
        ("udp --cores 4096", "4096 cores leave no processor for the load"),
        ("udp --load x", "unknown load x: expected one of usual, fixed"),
        ("udp --only x", "unknown tracker x: expected one of a"),
        ("ws", "ws.toml"),
    ] {
        let line = set.parse(&format!("compare {options}"));
        let Ok(Line::Compare(compare)) = line else { panic!("{:?}", line.err()) };
        let lab = Lab::with_tester(&compare.lab, set.0.path("load")).unwrap();
        let error = format!("{:#}", compare.run_in(lab).unwrap_err());
        assert!(error.contains(what), "{error}");
    }
    assert_eq!(set.read("arguments"), "");
}
