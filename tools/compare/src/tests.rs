//! Whole comparisons with stand-ins: this test program listens as a tracker, and a script prints
//! what the load tester
//! would.

use super::*;
use crate::generator::tests::FIGURES;
use std::process::Command;
use std::sync::atomic::Ordering;

/// A folder with definitions and programs, removed in the end.
struct Set(PathBuf);

impl Set {
    fn new(name: &str, trackers: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("comparison-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("record")).unwrap();
        let set = Self(folder);
        set.write("trackers.toml", trackers);
        set.write(
            "udp.toml",
            "[[load]]\nname = 'usual'\ndescription = 'A load.'\nwords = ['--threads', '{load_cores}']\n\
             paced = ['--rate', '{rate}']\n[[fill]]\nname = 'full'\npeers = 1000\nseconds = 1\nwords = ['--fill']\n",
        );
        let figures = FIGURES.replace('\n', " ");
        // Logs its arguments, and writes info hashes as the load tester does.
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{0}/told'\ncase \"$*\" in *--write-hashes*)\n\
             for file; do :; done; echo 00 > \"$file\"; exit;; esac\necho '{figures}'\n",
            set.0.display()
        );
        // Written by another process: a child started meanwhile by another thread of this one would
        // inherit the file open for
        // writing, and executing it would fail.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]);
        assert!(shell.arg(set.0.join("load")).arg(script).status().unwrap().success());
        set
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn options(&self) -> Options {
        Options {
            protocol: Protocol::Udp,
            load: None,
            definitions: self.0.clone(),
            rivals: self.0.clone(),
            programs: Vec::new(),
            only: Vec::new(),
            cores: vec![1],
            measures: vec![Measure::Throughput],
            runs: 2,
            seconds: 1,
            warm_up: 0,
            out: self.0.join("out"),
            record: Some(self.0.join("record")),
            docs: None,
            own: self.0.join("load"),
            command: "tidegate compare udp".into(),
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A tracker that is this test program.
fn stand_in(name: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[[tracker]]\nname = '{name}'\nspeaks = ['udp']\nprogram = 'sh'\nversion = ['echo', '1.0']\n\
         start = ['{}', '--exact', 'running::tests::a_stand_in']\n\
         environment = {{ STAND_IN_LISTEN = '{{address}}' }}\n{more}\n",
        program.display()
    )
}

fn compare(options: &Options) -> Result<Outcome> {
    run(options, &AtomicBool::new(false), &mut |_| {})
}

#[test]
#[cfg(target_os = "linux")]
fn trackers_take_turns_and_failures_do_not_stop_others() {
    let broken = "[[tracker]]\nname = 'broken'\nspeaks = ['udp']\nprogram = 'sh'\n\
                  start = ['sh', '-c', 'echo no such key; exit 1']\n";
    let set = Set::new("turns", &[&stand_in("a", ""), broken, &stand_in("b", "")].concat());
    let outcome = compare(&set.options()).unwrap();
    let mut turns: Vec<_> = set
        .read("out/runs.jsonl")
        .lines()
        .map(|line| {
            let run: serde_json::Value = serde_json::from_str(line).unwrap();
            (run["round"].as_u64().unwrap(), run["tracker"].as_str().unwrap().to_owned())
        })
        .collect();
    // A noisy run is repeated at once.
    turns.dedup();
    let expected = [(1, "a"), (1, "b"), (2, "a"), (2, "b")];
    assert_eq!(turns, expected.map(|(round, name)| (round, name.to_owned())));
    assert_eq!((outcome.failures, outcome.is_stopped), (2, false));
    assert!(
        outcome.tables.contains("broken, 1 core failed: the tracker exited"),
        "{}",
        outcome.tables
    );
    assert!(outcome.tables.contains("no such key"));
    assert!(outcome.tables.contains("**≥ 100,000**") && outcome.tables.contains("200,000"));
    assert_eq!(set.read("out/report.md"), outcome.tables);
    assert!(set.read("out/report.html").contains("<svg "));
    let record = set.read("record/compare-udp.jsonl");
    assert_eq!(record.lines().count(), 3);
    let first: serde_json::Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    assert_eq!(first["throughput"][0]["per_cpu_s"]["median"], 200_000.0);
    // Another one is added.
    compare(&Options { only: vec!["b".into()], runs: 1, ..set.options() }).unwrap();
    assert_eq!(set.read("record/compare-udp.jsonl").lines().count(), 4);
}

#[test]
#[cfg(target_os = "linux")]
fn passes_the_load_s_arguments() {
    let set = Set::new("told", &stand_in("a", "allow_list = true"));
    let measures = vec![Measure::Latency, Measure::Memory];
    let outcome = compare(&Options { measures, runs: 1, ..set.options() }).unwrap();
    assert_eq!(outcome.failures, 0, "{}", outcome.tables);
    let told = set.read("told");
    let lines: Vec<&str> = told.lines().filter(|line| !line.contains("--write-hashes")).collect();
    let lists = told.lines().filter(|line| line.contains("--write-hashes")).count();
    assert_eq!(lists, lines.len());
    for line in &lines {
        assert!(
            line.starts_with("load udp udp://127.0.0.1:") && line.contains(" --pid "),
            "{line}"
        );
        assert!(line.contains("--seed 1 ") && line.ends_with("--json"), "{line}");
    }
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    // The load answers 100,000 requests a second.
    assert!(count("--rate 50000 ") >= 1 && count("--rate 80000 ") >= 1 && count("--fill") >= 1);
    assert!(count("--threads") > count("--rate"), "the throughput is measured first");
    assert!(outcome.tables.contains("At 80 % of its own throughput"), "{}", outcome.tables);
    assert!(outcome.tables.contains("### full"));
    // What each chart draws is a number.
    let html = set.read("out/report.html");
    assert!(html.matches("<svg ").count() >= 5 && !html.contains("NaN"));
}

#[test]
#[cfg(target_os = "linux")]
fn can_be_stopped() {
    let set = Set::new("stopped", &stand_in("a", ""));
    let stop = AtomicBool::new(false);
    let mut print = |text: &str| {
        if text.starts_with("round 1") {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let outcome = run(&Options { runs: 1000, ..set.options() }, &stop, &mut print).unwrap();
    assert!(outcome.is_stopped && outcome.tables.contains("was interrupted"));
    assert_eq!(set.read("record/compare-udp.jsonl"), "");
    let error = run(&set.options(), &AtomicBool::new(true), &mut |_| {}).unwrap_err().to_string();
    assert_eq!(error, "nothing was measured: interrupted");
}

#[test]
#[cfg(target_os = "linux")]
fn rejects_invalid_options_before_starting_anything() {
    let set = Set::new("cannot", &stand_in("a", ""));
    for (options, what) in [
        (
            Options { cores: vec![4096], ..set.options() },
            "--cores 4096 leaves no processor for the load",
        ),
        (
            Options { load: Some("x".into()), ..set.options() },
            "unknown load x: expected one of usual",
        ),
        (
            Options { only: vec!["x".into()], ..set.options() },
            "unknown tracker x: expected one of a",
        ),
        (Options { protocol: Protocol::Ws, ..set.options() }, "ws.toml"),
    ] {
        let error = format!("{:#}", compare(&options).unwrap_err());
        assert!(error.contains(what), "{error}");
    }
    assert_eq!(set.read("told"), "");
}
