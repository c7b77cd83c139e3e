//! Benchmarks the rate limits, their cost and their effect: `cargo xtask bench flood [--runs N]
//! [--seconds N]`.
//!
//! In a network namespace, one address announces as fast as it can. This measures the capacity of the
//! tracker (one worker, on core 0), without limits and with limits that are not reached. Then the
//! address announces at five times that rate, while forty other addresses send few requests. Without
//! limits they lose most of their requests; with limits they must lose less than one in a hundred.

mod traffic;

use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use super::plan::median;
use super::subject::{Running, spawn};
use crate::clients::{metric, namespace};
use crate::command::{command, output, run as run_command};
use crate::workspace::root;
use traffic::{Crowd, Flood};

const ADDRESS: &str = "127.0.0.1:6969";
const ADMIN: &str = "127.0.0.1:6970";
const FLOOD_RATIO: f64 = 5.0;
const LOST_MAX: f64 = 0.01;

/// Disables the default exemptions, since all hosts are on the loopback device.
const UNLIMITED: &str = "exempt = []";
const NOT_REACHED: &str = "exempt = []\nannounces_per_s = 1000000\nscrapes_per_s = 1000000\n\
                           connects_per_s = 1000000\n";
/// Limits like those of an operator.
const LIMITED: &str = "exempt = []\nannounces_per_s = 1000\nscrapes_per_s = 1000\n\
                       connects_per_s = 1000\n";

/// Builds tidegate, and runs the measurement in its own namespace.
pub(super) fn flood(arguments: &[&str]) -> Result<()> {
    let mut build = command(&["cargo", "build", "--release", "--package", "tidegate"]);
    build.env("CARGO_TERM_QUIET", "true");
    run_command(build)?;
    let (mut runs, mut seconds) = ("3", "5");
    for pair in arguments.chunks(2) {
        match pair {
            ["--runs", number] => runs = number,
            ["--seconds", number] => seconds = number,
            _ => bail!("unknown option {}: expected --runs N or --seconds N", pair.join(" ")),
        }
    }
    let program = std::env::current_exe().context("this program has no path")?;
    let mut inside = namespace(&program);
    let status = inside.args(["flood-case", runs, seconds]).status().context("setpriv")?;
    ensure!(status.success(), "the flood affected other clients, or the measurement failed");
    Ok(())
}

/// Measures. The process must be the first of its namespaces.
pub(crate) fn measure(runs: u32, seconds: u64) -> Result<()> {
    output(command(&["ip", "link", "set", "lo", "up"]))?;
    pin_to_core_1()?;
    let time = Duration::from_secs(seconds);
    let (mut capacities, mut ratios) = (Vec::new(), Vec::new());
    for round in 1..=runs {
        let free = capacity(UNLIMITED, time)?;
        println!("round {round}, without limits:    {free}");
        let checked = capacity(NOT_REACHED, time)?;
        println!("round {round}, limits not reached: {checked}");
        capacities.push(free.per_s);
        ratios.push(checked.per_cpu_s / free.per_cpu_s);
    }
    let capacity = median(capacities);
    println!(
        "\nmedians of {runs} rounds: capacity {capacity:.0} announces/s; with limits {:+.1} % per CPU-s",
        (median(ratios) - 1.0) * 100.0
    );
    let harmed = under_flood("without limits", UNLIMITED, capacity, time)?;
    let spared = under_flood("with limits", LIMITED, capacity, time)?;
    ensure!(harmed > LOST_MAX, "the flood affects no other client even without limits");
    ensure!(spared < LOST_MAX, "{:.2} % of other clients' requests were lost", spared * 100.0);
    Ok(())
}

/// Measures the announces a second that the tracker serves under overload.
struct Capacity {
    per_s: f64,
    per_cpu_s: f64,
    offered_s: f64,
}

impl std::fmt::Display for Capacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_s, per_cpu_s, offered_s } = self;
        write!(f, "served {per_s:>8.0}/s of {offered_s:>8.0}/s, {per_cpu_s:>8.0} per CPU-s")
    }
}

fn capacity(limits: &str, time: Duration) -> Result<Capacity> {
    let _tracker = start(limits)?;
    let mut flood = Flood::new(ADDRESS, f64::INFINITY)?;
    let run = |flood: &mut Flood, time| -> Result<u64> {
        let (before, end) = (flood.sent, Instant::now() + time);
        while Instant::now() < end {
            flood.step()?;
        }
        Ok(flood.sent - before)
    };
    // Counters are published a few times a second.
    run(&mut flood, time / 4)?;
    let before = (Instant::now(), served()?, cpu_s()?);
    let offered = run(&mut flood, time)?;
    let (wall_s, served_now, cpu) = (before.0.elapsed().as_secs_f64(), served()?, cpu_s()?);
    let answered = (served_now - before.1) as f64;
    Ok(Capacity {
        per_s: answered / wall_s,
        per_cpu_s: answered / (cpu - before.2),
        offered_s: offered as f64 / wall_s,
    })
}

/// Returns the share of other clients' requests that is lost while one address floods.
fn under_flood(name: &str, limits: &str, capacity: f64, time: Duration) -> Result<f64> {
    let _tracker = start(limits)?;
    let mut crowd = Crowd::new(ADDRESS)?;
    let mut flood = Flood::new(ADDRESS, FLOOD_RATIO * capacity)?;
    let (start, cpu_before) = (Instant::now(), cpu_s()?);
    while start.elapsed() < time {
        // Often enough that none of them has to wait for the core of the flood.
        for _ in 0..16 {
            flood.step()?;
        }
        crowd.step()?;
    }
    let offered_s = flood.sent as f64 / start.elapsed().as_secs_f64();
    let taken_in = taken_in()?;
    let per_cpu_s = taken_in as f64 / (cpu_s()? - cpu_before);
    crowd.finish()?;
    let lost = crowd.lost();
    println!(
        "{name}: flooded with {offered_s:.0}/s ({:.1} x capacity), others lost {lost} of {} requests \
         ({:.2} %), {per_cpu_s:.0} taken in per CPU-s, median answer after {:.2} ms, 99th of 100 after {:.2} ms",
        offered_s / capacity,
        crowd.asked(),
        lost as f64 / crowd.asked() as f64 * 100.0,
        crowd.latency_ms(0.5),
        crowd.latency_ms(0.99),
    );
    Ok(lost as f64 / crowd.asked() as f64)
}

fn start(limits: &str) -> Result<Running> {
    let configuration = format!(
        "[udp]\nlisten = [\"{ADDRESS}\"]\nworkers = 1\n[http]\nlisten = []\n\
         [admin]\nlisten = [\"{ADMIN}\"]\n[log]\nlevel = \"warn\"\n[limits]\n{limits}"
    );
    let program = root().join("target/release/tidegate");
    let tracker = spawn(&program, &["serve", "--config"], &configuration)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while served().is_err() {
        ensure!(Instant::now() < deadline, "tidegate does not serve: {}", log());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(tracker)
}

fn log() -> String {
    fs::read_to_string(root().join("target/bench/tracker.log")).unwrap_or_default()
}

/// Returns the number of announces answered so far.
fn served() -> Result<u64> {
    metric(ADMIN, "tidegate_responses_total", &[("kind", "announce")]).map(|sum| sum as u64)
}

/// Returns the number of announces received so far, answered or not.
fn taken_in() -> Result<u64> {
    metric(ADMIN, "tidegate_requests_total", &[("kind", "announce")]).map(|sum| sum as u64)
}

fn cpu_s() -> Result<f64> {
    metric(ADMIN, "process_cpu_seconds_total", &[])
}

/// The tracker has core 0.
fn pin_to_core_1() -> Result<()> {
    let own = std::process::id().to_string();
    output(command(&["taskset", "-p", "-c", "1", &own])).map(drop)
}
