//! The steps of `test` and `check`: in which order and beside which others they run.

use crate::{book, bpf, deny, foreign, nextest, release, spec, tidy};
use anyhow::{Context, Result, anyhow, bail};
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use trials::command::{command, run as run_command};
use trials::workspace::{target, test_release};
use trials::{api, clients, cluster, dashboard, generated, library, setup};

/// A part of a run, with checks of its own.
#[derive(Debug)]
pub(crate) struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// Steps that run one after the other.
type Lane = &'static [Step];
/// Lanes that run beside each other. The output of their steps is printed when a step ends; that of a
/// single lane is printed at once.
type Stage = &'static [Lane];

const FMT: Step = Step { name: "fmt", run: fmt };
const TIDY: Step = Step { name: "tidy", run: tidy::run };
const SPEC: Step = Step { name: "spec", run: spec::run };
const SETUP: Step = Step { name: "setup", run: set_up };
const DEPENDENCIES: Step = Step { name: "dependencies", run: deny::check };
const LICENCES: Step = Step { name: "licences", run: release::check_licences };
const BPF: Step = Step { name: "XDP program", run: bpf::check };
const BOOK: Step = Step { name: "book", run: book::build };
const CLIPPY: Step = Step { name: "clippy", run: clippy };
const FEATURES: Step = Step { name: "features", run: features };
const UNIT_TESTS: Step = Step { name: "unit tests", run: unit_tests };
const TESTS: Step = Step { name: "tests", run: tests };
const DASHBOARD: Step = Step { name: "dashboard scripts", run: dashboard::check };
const DOCS: Step = Step { name: "docs", run: docs };
const FOREIGN: Step = Step { name: "foreign target", run: foreign::check };
const API: Step = Step { name: "management API", run: || api::try_everything(&[]) };
const API_CLIENTS: Step = Step { name: "API clients", run: generated::try_clients };
const LIBRARY: Step = Step { name: "client library", run: library::check };
const LIBRARY_PACKAGES: Step =
    Step { name: "client library from its packages", run: library::check_packages };
const CLIENTS: Step = Step { name: "real clients", run: || clients::run(&[]) };
const CLUSTER: Step = Step { name: "cluster", run: cluster::run_short };
const RELEASE: Step = Step { name: "release build", run: release };
const RELEASE_API: Step = Step {
    name: "management API, release build",
    run: || test_release().and_then(|()| api::try_everything(&[])),
};
const RELEASE_CLIENTS: Step = Step {
    name: "real clients, release build",
    run: || test_release().and_then(|()| clients::run(&[])),
};

/// All of CI. Stages that are quick or fail often come first. Beside each other are steps that wait (for
/// the network, for clients) and steps that compile; only one lane of a stage runs cargo, which locks the
/// target folder. The tests run alone. They build the tracker that API and clients use.
pub(crate) const TEST: &[Stage] = &[
    &[&[FMT, TIDY, SPEC]],
    &[&[CLIPPY], &[SETUP, DEPENDENCIES, LICENCES, BPF, BOOK, DASHBOARD]],
    &[&[TESTS]],
    &[&[DOCS, FOREIGN, FEATURES, LIBRARY], &[API, API_CLIENTS, CLUSTER], &[CLIENTS]],
];

/// Stages that `test --all` adds: the release build, under everything that speaks to it.
const RELEASES: &[Stage] =
    &[&[&[RELEASE, LIBRARY_PACKAGES]], &[&[RELEASE_API], &[RELEASE_CLIENTS]]];

/// The steps to run before every commit.
pub(crate) const CHECK: &[Stage] = &[&[&[FMT, TIDY, CLIPPY, UNIT_TESTS]]];

/// Features of the tracker that are checked by themselves. The empty one stands for none.
const FEATURE_SETS: &[&str] =
    &["", "acme", "cluster", "dashboard", "geo", "journal", "jwt", "site", "webhooks", "xdp"];

/// Runs [`TEST`], and then the same checks from outside with the release build.
pub(crate) fn run_all() -> Result<()> {
    run(&[TEST, RELEASES].concat())
}

/// Runs the stages until one fails. The last line has the number of tests that passed, failed, and passed only when
/// repeated.
pub(crate) fn run(stages: &[Stage]) -> Result<()> {
    let started = Instant::now();
    let outcome = stages.iter().try_for_each(|stage| run_stage(stage));
    println!("\nin {:.0} s", started.elapsed().as_secs_f32());
    if let Some(tally) = nextest::last() {
        println!("{tally}");
    }
    outcome
}

/// Runs a single step by its name.
pub(crate) fn run_step(name: &str) -> Result<()> {
    let mut steps = TEST.iter().chain(RELEASES).copied().flatten().copied().flatten();
    (steps.find(|step| step.name == name).context("no such step")?.run)()
}

fn run_stage(stage: Stage) -> Result<()> {
    let is_single = stage.len() == 1;
    if !is_single {
        let names = |lane: &Lane| lane.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
        let lanes: Vec<String> = stage.iter().map(names).collect();
        println!("\n{}: output follows when a step ends", lanes.join(" beside "));
    }
    let has_failed = AtomicBool::new(false);
    let run_lane = |lane: Lane| {
        for step in lane {
            // A failure in one lane ends the others after their step.
            if has_failed.load(Ordering::Relaxed) {
                break;
            }
            let run = if is_single { run_live } else { run_captured };
            let result = run(step);
            if let Err(error) = result {
                has_failed.store(true, Ordering::Relaxed);
                return Err(error).context(step.name);
            }
        }
        Ok(())
    };
    let run_lane = &run_lane;
    thread::scope(|scope| {
        let lanes: Vec<_> = stage.iter().map(|lane| scope.spawn(|| run_lane(lane))).collect();
        let mut outcome = Ok(());
        for lane in lanes {
            let result = lane.join().unwrap_or_else(|_| bail!("a lane panicked"));
            if outcome.is_ok() {
                outcome = result;
            }
        }
        outcome
    })
}

fn run_live(step: &Step) -> Result<()> {
    println!("\n== {}", step.name);
    let started = Instant::now();
    let result = (step.run)();
    println!("{}", verdict(step, started, &result));
    result
}

/// Runs a step in a process of its own, whose output goes to a file, and prints that when it ends.
fn run_captured(step: &Step) -> Result<()> {
    let started = Instant::now();
    let folder = target().join("steps");
    fs::create_dir_all(&folder)?;
    let path = folder.join(step.name.replace([' ', ','], "-")).with_extension("log");
    let log = File::create(&path)?;
    // By this path, because cargo may have replaced the program meanwhile.
    let mut child = command(&["/proc/self/exe", "step", step.name]);
    let status = child.stderr(log.try_clone()?).stdout(log).status()?;
    let output = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    let result = if status.success() { Ok(()) } else { Err(anyhow!("failed: {status}")) };
    println!("\n== {}\n{output}{}", step.name, verdict(step, started, &result));
    result
}

fn verdict(step: &Step, started: Instant, result: &Result<()>) -> String {
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    format!("== {}: {word}, {:.1} s", step.name, started.elapsed().as_secs_f32())
}

/// Installs what tests need, and the foreign targets if they can be had.
pub(crate) fn set_up() -> Result<()> {
    setup::run_setup()?;
    foreign::add_targets();
    Ok(())
}

fn fmt() -> Result<()> {
    run_command(command(&["cargo", "fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    let words = ["cargo", "clippy", "--quiet", "--locked", "--workspace", "--all-targets"];
    run_command(command(&[words.as_slice(), &["--", "-D", "warnings"]].concat()))
}

/// Checks the tracker without any of its features, and with each of them alone: without errors and warnings.
fn features() -> Result<()> {
    for feature in FEATURE_SETS {
        let words = ["cargo", "check", "--quiet", "--locked", "--package", "tidegate"];
        let mut check = command(&words);
        check.args(["--no-default-features", "--features", feature]);
        let found = check.output().context("cannot start cargo")?;
        // Denied by a flag, warnings would have all dependencies compiled again.
        if !found.status.success() || !found.stderr.is_empty() {
            bail!("feature `{feature}` alone:\n{}", String::from_utf8_lossy(&found.stderr));
        }
    }
    Ok(())
}

fn docs() -> Result<()> {
    let words = ["cargo", "doc", "--quiet", "--locked", "--workspace", "--no-deps"];
    let mut command = command(&words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_command(command)
}

fn tests() -> Result<()> {
    if let Some(obstacle) = harness::nats::obstacle() {
        bail!(obstacle);
    }
    // These tests pass then, and nextest does not show what a test that passes prints.
    #[cfg(target_os = "linux")]
    if let Some(obstacle) = harness::network::Network::obstacle() {
        println!("skipped {obstacle}: tests of engines over networks (XDP)");
    }
    nextest::run(&["--workspace"])
}

fn release() -> Result<()> {
    run_command(command(&["cargo", "build", "--locked", "--release", "--package", "tidegate"]))
}

fn unit_tests() -> Result<()> {
    nextest::run(&["--workspace", "--lib", "--bins"])
}
