//! The task runner of developers and CI. There is no make, just or shell script beside it.
//!
//! `main` selects the task, and [`suite`] has the steps of `test` and `check`. Every step has its own
//! module and returns how many checks passed and failed.
#![forbid(unsafe_code)]
// This program writes to the terminal.
#![allow(clippy::print_stdout)]

mod api;
mod bench;
mod clients;
mod command;
mod crash;
mod deny;
mod foreign;
mod fuzz;
mod rivals;
mod served;
mod setup;
mod spec;
mod suite;
mod tidy;
mod tree;
mod workspace;

use anyhow::{Context, Result, bail};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  test                   run all of CI: setup, fmt, clippy, tidy, dependencies, docs, all tests, spec,
                         fuzz corpora, a foreign target, the release build, the API, real clients
  check                  run the quick part: fmt, tidy, clippy, unit tests
  setup                  install what the tests need (Debian packages, npm and Python packages, tools)
  tidy                   check rules that no compiler knows: phrases, names, links, file lengths, ...
  deny                   check dependencies by cargo-deny: crate arrows, licenses, sources
  spec                   list the requirements of spec/ that are met, tested, excepted
  clients [NAME...]      let real clients transfer a torrent with the tracker (default: all clients)
  api [SEED...]          test the management API against its OpenAPI document, by schemathesis
                         (default: three seeds)
  crash [TIMES]          kill a tracker while it is written to, and check its records (default: 50)
  fuzz NAME [SECONDS]    search for inputs that break a parser (needs nightly and cargo-fuzz)
  rivals [NAME...]       install the trackers that `tidegate compare` can measure (default: all)
                         [--into FOLDER]
  bench NAME             run a benchmark
                         [--runs N] [--seconds N] [--rivals FOLDER] [--write]
    udp, udp-announce, http, http-close, https, https-handshake, ws, wss
                         throughput, tidegate and other trackers
    ws-idle, wss-idle    memory and CPU time of 10,000 idle connections
    private              cost of passkeys, access lists, bans, metrics, records and logging
    api                  imports, changes and pages of torrents while the tracker is under load
    flood                cost of rate limits, and loss of other clients while one address floods
    udp-testers, http-testers, wss-testers
                         throughput of the load testers, tidegate's and aquatic's
    latency              latencies of `tidegate load udp`, compared with a packet capture
  help                   print this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    match words {
        ["test"] => suite::run(suite::TEST),
        ["check"] => suite::run(suite::CHECK),
        ["setup"] => suite::run(suite::SETUP),
        ["tidy"] => suite::run(suite::TIDY),
        ["deny"] => deny::check().and_then(|tally| tally.verdict()),
        ["spec"] => suite::run(suite::SPEC),
        ["clients", names @ ..] => clients::run(names).and_then(|tally| tally.verdict()),
        ["api", seeds @ ..] => {
            let seeds: Result<Vec<u64>, _> = seeds.iter().map(|seed| seed.parse()).collect();
            let seeds = seeds.context("expected `api [SEED...]` with whole numbers")?;
            api::try_everything(&seeds).and_then(|tally| tally.verdict())
        }
        ["crash"] => crash::run(50).and_then(|tally| tally.verdict()),
        ["crash", times] => crash::run(times.parse()?).and_then(|tally| tally.verdict()),
        // Internal: `clients` runs this in a network namespace, once for every case.
        ["client-case", name, directory] => clients::run_case(name, directory.as_ref()),
        // Internal: `bench flood` runs this in a network namespace.
        ["flood-case", runs, seconds] => bench::flood::measure(runs.parse()?, seconds.parse()?),
        ["bench", rest @ ..] => bench::bench(rest),
        ["rivals", rest @ ..] => rivals::install(rest).and_then(|tally| tally.verdict()),
        ["fuzz", name] => fuzz::search(name, None),
        ["fuzz", name, seconds] => fuzz::search(name, Some(seconds.parse()?)),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("unknown task {:?}: `cargo xtask help` lists the tasks", other.join(" ")),
    }
}
