//! Benchmarks: `cargo xtask bench NAME [--runs N] [--seconds N] [--rivals FOLDER] [--write]`.
//!
//! `udp`, `udp-announce`, `http`, `http-close`, `https`, `https-handshake`, `ws` and `wss` measure the
//! throughput of tidegate and of other trackers; `ws-idle` and `wss-idle` measure idle connections. The
//! tracker is pinned to core 0 and the load to core 1. Runs are interleaved (A B A B), because machines
//! drift. The result is responses per second of the tracker's own CPU time. Trackers that are not in
//! the folder are skipped; npm's is searched in its `node_modules`.
//!
//! - `udp-testers`, `http-testers`, `wss-testers`: throughput of the load testers, see [`testers`]
//! - `latency`: the latencies that the load tester reports, see [`latency`]
//! - `private`: the cost of passkeys, lists, bans, metrics and records, see [`private`]
//! - `api`: the management API, see [`api`]
//! - `flood`: rate limits, see [`flood`]
//!
//! These use packaged load testers where possible. `tidegate compare` uses tidegate's own, and
//! `tidegate bench store` measures the store.

mod api;
mod api_client;
mod certificate;
pub(crate) mod flood;
mod idle;
mod latency;
mod load;
mod machine;
mod plan;
mod private;
mod subject;
mod testers;

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::{command, run as run_command};
use load::{Load, Seen};
use plan::{Plan, median};
use subject::{Subject, Used};
use testers::Testers;

/// One run of one subject.
struct Run {
    subject: &'static str,
    responses_s: f64,
    used: Used,
    seconds: f64,
}

impl Run {
    fn responses(&self) -> f64 {
        self.responses_s * self.seconds
    }

    fn per_cpu_s(&self) -> f64 {
        self.responses() / self.used.cpu_s()
    }
}

/// Runs the benchmark named first in `arguments`.
pub(crate) fn bench(arguments: &[&str]) -> Result<()> {
    if let ["flood", options @ ..] = arguments {
        return flood::flood(options);
    }
    let (name, plan) = parse(arguments)?;
    // Check the name before building.
    let bench = Bench::parse(name)?;
    let mut build = command(&["cargo", "build", "--release", "--package", "tidegate"]);
    build.env("CARGO_TERM_QUIET", "true");
    run_command(build)?;
    match bench {
        Bench::Throughput(load) => throughput(&plan, load),
        Bench::Idle(subjects) => idle::bench(&plan, name, subjects),
        Bench::Testers(testers) => testers.bench(&plan, name),
        Bench::Latency => latency::bench(&plan),
        Bench::Private => private::bench(&plan),
        Bench::Api => api::bench(&plan),
    }
}

/// A benchmark.
#[derive(Debug)]
enum Bench {
    /// Trackers under load.
    Throughput(Load),
    /// Trackers with idle WebSocket connections.
    Idle(&'static [Subject]),
    /// Load testers.
    Testers(Testers),
    /// The latencies of a load tester and of a packet capture.
    Latency,
    /// A private tracker and a bare one.
    Private,
    /// The management API.
    Api,
}

impl Bench {
    /// Parses a name of the command line.
    fn parse(name: &str) -> Result<Self> {
        match name {
            "latency" => return Ok(Self::Latency),
            "private" => return Ok(Self::Private),
            "api" => return Ok(Self::Api),
            _ => {}
        }
        let other = idle::subjects(name).map(Self::Idle);
        match other.or_else(|| Testers::parse(name).map(Self::Testers)) {
            Some(bench) => Ok(bench),
            None => Load::parse(name).map(Self::Throughput),
        }
    }
}

/// Measures responses per second of each subject.
fn throughput(plan: &Plan, load: Load) -> Result<()> {
    let subjects = plan.available(load.subjects());
    let mut runs = Vec::new();
    for round in 1..=plan.runs {
        for subject in &subjects {
            let run = measure(plan, load, *subject)
                .with_context(|| format!("{} in round {round}", subject.name()))?;
            println!("round {round} {}", line(&run));
            runs.push(run);
        }
    }
    println!("\n{}", report(plan, load, &runs));
    if plan.write {
        plan.write_record(load.name(), &subjects, &table(&runs))?;
    }
    Ok(())
}

fn parse<'a>(arguments: &[&'a str]) -> Result<(&'a str, Plan)> {
    let mut words = arguments.iter().copied();
    let name =
        words.next().with_context(|| format!("expected a benchmark: {} or flood", load::NAMES))?;
    let (runs, seconds) = if idle::subjects(name).is_some() { (1, 150) } else { (5, 10) };
    let mut plan = Plan {
        runs,
        seconds,
        rivals: PathBuf::from(env::var_os("CARGO_HOME").unwrap_or_default()).join("bin"),
        write: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word {
            "--runs" => plan.runs = value()?.parse()?,
            "--seconds" => plan.seconds = value()?.parse()?,
            "--rivals" => plan.rivals = value()?.into(),
            "--write" => plan.write = true,
            _ => bail!("unknown option {word}: expected --runs, --seconds, --rivals or --write"),
        }
    }
    Ok((name, plan))
}

fn measure(plan: &Plan, load: Load, subject: Subject) -> Result<Run> {
    let tracker = subject.start(&plan.rivals)?;
    // A tracker's tables grow after its start. Every subject starts empty, so this is part of every
    // result.
    let before = tracker.used()?;
    let seen = load.run(subject, tracker.pid(), &plan.rivals, plan.seconds)?;
    let mut used = tracker.used()?.since(&before);
    if let Some(cpu_s) = seen.cpu_s {
        (used.user_s, used.system_s) = cpu_s;
    }
    let Seen { responses_s, seconds, .. } = seen;
    Ok(Run { subject: subject.name(), responses_s, used, seconds })
}

fn line(run: &Run) -> String {
    format!(
        "{:<22} {:>9.0} responses/s {:>9.0} per CPU-s  user {:.2} sys {:.2} us each  peak {:>4} MiB",
        run.subject,
        run.responses_s,
        run.per_cpu_s(),
        run.used.user_s / run.responses() * 1e6,
        run.used.system_s / run.responses() * 1e6,
        run.used.peak_kib / 1024,
    )
}

/// Formats the medians of each subject, and the ratio of the first subject to each.
fn report(plan: &Plan, load: Load, runs: &[Run]) -> String {
    let mut text = format!(
        "{}: medians of {} runs of {} s\n| tracker | responses/s | per CPU-s | user us | sys us | ratio |\n|---|---|---|---|---|---|\n",
        load.name(),
        plan.runs,
        plan.seconds
    );
    let mut first = None;
    for subject in load.subjects() {
        let own: Vec<&Run> = runs.iter().filter(|run| run.subject == subject.name()).collect();
        if own.is_empty() {
            continue;
        }
        let of = |figure: &dyn Fn(&Run) -> f64| median(own.iter().map(|run| figure(run)).collect());
        let per_cpu_s = of(&Run::per_cpu_s);
        let first = *first.get_or_insert(per_cpu_s);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} |",
            subject.name(),
            of(&|run| run.responses_s),
            per_cpu_s,
            of(&|run| run.used.user_s / run.responses() * 1e6),
            of(&|run| run.used.system_s / run.responses() * 1e6),
            first / per_cpu_s,
        );
    }
    text
}

/// Formats every run, for the record.
fn table(runs: &[Run]) -> String {
    let head = "tracker,responses_s,responses_per_cpu_s,user_us,sys_us,cpu_s,peak_kib\n";
    let mut text = head.to_owned();
    for run in runs {
        let _ = writeln!(
            text,
            "{},{:.0},{:.0},{:.3},{:.3},{:.2},{}",
            run.subject,
            run.responses_s,
            run.per_cpu_s(),
            run.used.user_s / run.responses() * 1e6,
            run.used.system_s / run.responses() * 1e6,
            run.used.cpu_s(),
            run.used.peak_kib
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_options_and_names() {
        let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        let (name, plan) = parse(&words("http --runs 3 --seconds 7 --write")).unwrap();
        assert!(name == "http" && plan.runs == 3 && plan.seconds == 7 && plan.write);
        let (name, plan) = parse(&words("ws-idle")).unwrap();
        assert!(name == "ws-idle" && plan.runs == 1 && plan.seconds == 150 && !plan.write);
        assert!(parse(&words("udp --fast")).is_err());
        assert!(Bench::parse("tcp").is_err());
        for name in load::NAMES.split(", ") {
            assert!(Bench::parse(name).is_ok(), "{name}");
        }
    }
}
