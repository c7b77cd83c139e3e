//! `tidegate-trials cluster`: nodes that are one tracker under load, on hosts of a network of their own.

mod agreement;
mod browsers;
mod stage;
mod steps;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::ProgramArgs;
use bench::cluster::{ClusterPlan, TestCluster};
use bench::figures::count;
use bench::session::print_line;
use bench::table::{Cell, Table};
use clap::{Args, value_parser};
use harness::network::sites::Backbone;
use primitives::Random;

use stage::{Outcome, Stage};
use steps::{STEPS, Step};

/// Let nodes, servers, links and clocks fail under load, and check that all nodes agree afterwards (needs root).
#[derive(Args)]
pub(crate) struct ClusterCheck {
    /// Only steps whose names contain one of these [default: all].
    steps: Vec<String>,
    /// Let every failure last longer: partitions of two lifetimes of peers, and two lifetimes without NATS.
    #[arg(long)]
    full: bool,
    /// Decides on the order of the steps [default: another one each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds after which a peer that another node does not know is counted as not seen.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = value_parser!(u32).range(1..=600))]
    unseen_after: u32,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Little room, so that what an hour without NATS does to an operator's cluster happens in seconds.
const PLAN: ClusterPlan = ClusterPlan { backbone: Backbone::Switch, stream_mib: 256, queue_mib: 1 };

impl ClusterCheck {
    /// Plays the steps, and prints what was seen.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let wanted = |step: &&Step| {
            let names = &self.steps;
            names.is_empty() || names.iter().any(|name| step.name.contains(name.as_str()))
        };
        let mut steps: Vec<&Step> = STEPS.iter().filter(wanted).collect();
        let names = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
        ensure!(!steps.is_empty(), "no such step: expected some of {}", names());
        let seed = self.seed.unwrap_or_else(|| u64::from(std::process::id()));
        shuffle(&mut steps, seed);
        print_line(&format!("the order of --seed {seed}"));
        let began = Instant::now();
        let cluster = TestCluster::start(&self.program, PLAN)?;
        let clients = std::sync::Arc::clone(cluster.sites.clients());
        let _inside = clients.enter()?;
        let unseen_after = Duration::from_secs(self.unseen_after.into());
        let mut stage = Stage::new(cluster, unseen_after, self.full)?;
        let mut rows = Vec::new();
        let mut failed = Vec::new();
        for step in steps {
            match play(&mut stage, step) {
                Ok(outcome) => rows.push(row(step, &outcome)),
                Err(error) => {
                    let logs = stage.cluster.logs();
                    print_line(&format!("{}: failed: {error:#}\n{logs}", step.name));
                    failed.push(step.name);
                    if stage.repair().is_err() {
                        break;
                    }
                }
            }
        }
        let mut head = HEAD.map(str::to_owned).to_vec();
        head.push(format!("not in {} s", self.unseen_after));
        print_line(&format!("\n{}", Table { head, rows }));
        print_line(&format!("in {:.0} s", began.elapsed().as_secs_f64()));
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(ExitCode::SUCCESS)
    }
}

/// Puts steps into the order that a seed decides on.
fn shuffle(steps: &mut [&Step], seed: u64) {
    let mut random = Random::new(seed);
    for end in (1..steps.len()).rev() {
        steps.swap(end, random.below(end as u32 + 1) as usize);
    }
}

/// The last column is of the peers that were not seen in time.
const HEAD: [&str; 7] = ["step", "what was seen", "requests", "lost", "seen p50, ms", "p99", "max"];

fn play(stage: &mut Stage, step: &Step) -> Result<Outcome> {
    let outcome = stage.play(step)?;
    let Outcome { agreement, text, took, .. } = &outcome;
    print_line(&format!("{}: {text}; {agreement} ({:.0} s)", step.name, took.as_secs_f64()));
    outcome.check(step.allowed).context("after the step")?;
    Ok(outcome)
}

fn row(step: &Step, outcome: &Outcome) -> Vec<Cell> {
    let Outcome { counters, seen, unseen, agreement, text, .. } = outcome;
    let ms = |part: f64| {
        let ms = seen.quantile(part).map(|time| format!("{:.0}", time.as_secs_f64() * 1e3));
        Cell::number(ms)
    };
    vec![
        Cell::Text(step.name.into()),
        Cell::Text(format!("{text}; {agreement}")),
        Cell::Number(count(counters.sent as f64)),
        Cell::Number(count(counters.lost as f64)),
        ms(0.5),
        ms(0.99),
        ms(1.0),
        Cell::Number(unseen.to_string()),
    ]
}
