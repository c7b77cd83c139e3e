//! `tidegate-bench store`: the swarm store beside a simple alternative.

mod case;
mod contender;
mod report;
mod work;

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum, value_parser};

use case::{Scenario, Size, measure};
use contender::{NAMES, contender};

use crate::record::Figures;
use crate::session::{ResultArgs, RunKey, Session};

pub(crate) use report::report;
#[cfg(target_os = "linux")]
pub(crate) use work::{hash as info_hash, skewed};

/// Measure the store of torrents and peers beside an alternative: throughput, latency, memory.
///
/// Each case runs in its own process. Ctrl-C stops and reports what was measured so far.
#[derive(Args)]
pub(crate) struct Store {
    /// Measure only this scenario; repeatable.
    #[arg(long = "scenario", value_enum, value_name = "NAME")]
    scenarios: Vec<Scenario>,
    /// Measure only this store; repeatable.
    #[arg(long = "store", value_name = "NAME", value_parser = NAMES)]
    stores: Vec<String>,
    /// Numbers of threads to measure [default: 1, 2, 4, … up to all processors].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Number of torrents in the larger scenarios.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = value_parser!(u32).range(1000..=50_000_000))]
    torrents: u32,
    /// Operations per thread.
    #[arg(long, value_name = "N", default_value_t = 300_000,
          value_parser = value_parser!(u32).range(100..=100_000_000))]
    operations: u32,
    /// Interleaved runs per case; the report shows medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    output: ResultArgs,
    /// Measure one case in this process and print its figures as JSON.
    #[arg(long, hide = true)]
    inside: bool,
}

/// A case to measure.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    scenario: Scenario,
    threads: u32,
    store: &'static str,
}

impl Store {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if self.inside {
            return self.run_inside();
        }
        let cases = self.cases();
        let mut session = Session::start("store", &self.output, Path::new("."))?;
        for round in 1..=self.runs {
            for case in &cases {
                if session.is_stopped() {
                    break;
                }
                let measured = self.ask(case);
                // An interrupt ends the other process, too.
                if session.is_stopped() {
                    break;
                }
                let key = RunKey {
                    subject: case.store,
                    version: env!("CARGO_PKG_VERSION"),
                    case: case.scenario.title(),
                    cores: case.threads as usize,
                    round,
                };
                session.add(key, measured?, &format!("{} threads", case.threads))?;
            }
        }
        session.finish(Vec::new())
    }

    /// Returns all cases to measure, with stores next to each other.
    fn cases(&self) -> Vec<Case> {
        let threads = if self.threads.is_empty() { usual_threads() } else { self.threads.clone() };
        let scenarios: &[Scenario] =
            if self.scenarios.is_empty() { Scenario::value_variants() } else { &self.scenarios };
        let is_wanted =
            |name: &&str| self.stores.is_empty() || self.stores.iter().any(|one| one == name);
        let mut cases = Vec::new();
        for scenario in scenarios.iter().copied() {
            let threads = if scenario.has_threads() { &*threads } else { &[1] };
            for threads in threads.iter().copied() {
                let fits = |name: &&str| scenario.fits(name);
                let stores = NAMES.into_iter().filter(is_wanted).filter(fits);
                cases.extend(stores.map(|store| Case { scenario, threads, store }));
            }
        }
        cases
    }

    /// Measures a case in another process.
    fn ask(&self, case: &Case) -> Result<Figures> {
        let program = std::env::current_exe().context("cannot determine this program's path")?;
        let scenario = case.scenario.to_possible_value().context("every scenario has a name")?;
        let mut command = Command::new(program);
        command.args(["store", "--inside", "--scenario", scenario.get_name()]);
        command.args(["--store", case.store, "--threads", &case.threads.to_string()]);
        command.args(["--torrents", &self.torrents.to_string()]);
        command.args(["--operations", &self.operations.to_string()]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.context("cannot start this program again")?;
        let status = output.status;
        ensure!(status.success(), "{}, {} failed: {status}", case.scenario.title(), case.store);
        serde_json::from_slice(&output.stdout).context("a case printed no figures")
    }

    fn run_inside(&self) -> Result<ExitCode> {
        let ([scenario], [name], [threads]) = (&*self.scenarios, &*self.stores, &*self.threads)
        else {
            anyhow::bail!("--inside requires one scenario, one store and one number of threads");
        };
        let name = NAMES.iter().find(|known| *known == name).context("unknown store")?;
        let make = || contender(name).expect("every name has a store");
        let size = Size { torrents: self.torrents, operations: self.operations };
        let measured = measure(*scenario, &make, *threads, size);
        serde_json::to_writer(io::stdout(), &measured).context("cannot print the figures")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn usual_threads() -> Vec<u32> {
    let all = std::thread::available_parallelism().map_or(1, |all| all.get() as u32);
    std::iter::successors(Some(1), |threads| Some(threads * 2))
        .take_while(|threads| *threads <= all)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::contender::BATCHES;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        store: Store,
    }

    fn store(line: &str) -> Result<Store, String> {
        let words = ["store"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.store)
    }

    #[test]
    fn runs_all_stores_in_all_scenarios() {
        let all = store("--threads 1,2").unwrap().cases();
        for name in NAMES {
            let own = all.iter().filter(|case| case.store == name).count();
            // Batches are for re-announces, and memory does not depend on threads.
            let expected = if name == BATCHES { 4 } else { 2 * 4 + 2 };
            assert_eq!(own, expected, "{name}");
        }
        let few = store("--scenario grow --store DashMap --threads 3").unwrap().cases();
        let expected = Case { scenario: Scenario::Grow, threads: 3, store: "DashMap" };
        assert_eq!(few, [expected]);
        assert!(!usual_threads().is_empty());
    }

    #[test]
    fn invalid_options_are_rejected() {
        for (line, what) in [
            ("--store HashMap", "possible values: tidegate"),
            ("--scenario fast", "possible values: torrents"),
            ("--threads 0", "0 is not in 1..="),
            ("--torrents 1", "1 is not in 1000..="),
        ] {
            let error = store(line).err().unwrap();
            assert!(error.contains(what), "{line}: {error}");
        }
        assert!(store("--inside").unwrap().run_inside().is_err());
    }
}
