//! `tidegate-bench compare`: each tracker is started with the same number of processors and put under
//! the same load on other processors.

mod comparison;
mod report;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum, value_parser};

use crate::lab::{Lab, LabArgs, Protocol, named_path};
use crate::session::{ResultArgs, RoundArgs, Session, print_line};
use comparison::Comparison;

pub(crate) use report::{overview, report};

/// Compare trackers under the same load: throughput, latency, memory.
///
/// TOML files define the trackers and the loads. Trackers are measured in turn with the same cores,
/// and the load runs on other cores. Ctrl-C stops and reports what was measured so far.
#[derive(Args)]
pub(crate) struct Compare {
    /// Protocol that the trackers speak.
    protocol: Protocol,
    /// Measure only this tracker; repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Another build of tidegate to measure beside the first, such as an earlier one; repeatable.
    /// Without --only, no other trackers are measured.
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    beside: Vec<(String, PathBuf)>,
    /// Name of a load [default: the first one defined].
    #[arg(long, value_name = "NAME")]
    load: Option<String>,
    /// Numbers of tracker cores to measure, such as `1,2,4` or `1-4` [default: 1, 2, 4, … up to
    /// half of all].
    #[arg(long, value_name = "LIST", value_parser = cores)]
    cores: Option<CoreCounts>,
    /// Quantity to measure; repeatable [default: all].
    #[arg(long = "measure", value_enum, value_name = "WHAT")]
    measures: Vec<Measure>,
    /// Seconds of the loads that measure memory, and the CPU time of idle connections [default: as
    /// defined].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=86_400))]
    fill_seconds: Option<u32>,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// A quantity to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Responses per second, and per second of the tracker's CPU time.
    Throughput,
    /// Response times at the rates of the load, if it has any.
    Latency,
    /// Bytes per peer, and the CPU time of idle connections.
    Memory,
}

/// A newtype, so that clap parses a list as one value.
#[derive(Clone, Debug, PartialEq)]
struct CoreCounts(Vec<usize>);

impl Compare {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        self.run_in(Lab::new(&self.lab)?)
    }

    fn run_in(&self, mut lab: Lab) -> Result<ExitCode> {
        let only = lab.definitions.add_builds(&self.beside, &self.only)?;
        lab.give(&self.beside);
        let loads = lab.loads(self.protocol)?;
        let load = loads.find(self.load.as_deref())?;
        let (subjects, missing) = lab.subjects((self.protocol, &load.name), &only)?;
        missing.iter().for_each(|sentence| print_line(sentence));
        ensure!(!subjects.is_empty(), "there is no tracker to measure over {}", self.protocol);
        let name = format!("compare {} {}", self.protocol, load.name);
        let session = Session::start(&name, &self.output, &self.lab.definitions)?;
        let cores = self.cores.clone().map_or_else(|| lab.default_counts(), |CoreCounts(all)| all);
        let comparison = Comparison {
            lab: &lab,
            command: self,
            load,
            fills: &loads.fills,
            cores,
            subjects,
            session,
            failed: Vec::new(),
        };
        comparison.run()?.finish()
    }
}

fn cores(text: &str) -> Result<CoreCounts, String> {
    let wrong = || format!("expected a list such as 1,2,4 or 1-4, found `{text}`");
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=4096).contains(n));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        counts.extend(first..=last);
    }
    counts.sort_unstable();
    counts.dedup();
    if counts.is_empty() { Err(wrong()) } else { Ok(CoreCounts(counts)) }
}
