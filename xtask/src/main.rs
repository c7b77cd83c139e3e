//! What a developer runs: one task runner, no make, just or shell scripts beside it.
//!
//! `main` picks the task; [`suite`] strings the steps of `test` and `check` together; every step
//! lives in a module of its own and says how many things it tried and how many were wrong.
#![forbid(unsafe_code)]
// Talking to the terminal is what this program is for.
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
mod workspace;

use anyhow::{Context, Result, bail};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  test                   everything CI runs: setup, fmt, clippy, tidy, docs, all tests, spec, fuzz
                         corpora, a foreign target, the release build, the API, real clients
  check                  the quick part: fmt, clippy, tidy, unit tests
  setup                  install what the tests need (Debian packages, a foreign target)
  tidy                   the rules that compilers do not know: lengths, arrows, bans, links, leftovers
  spec                   which requirements of spec/ are met, tested, excepted
  clients [NAME...]      real clients transfer a torrent over the tracker; no name: all of them
  api [SEED...]          schemathesis tries the management API against its OpenAPI document; no
                         seed: three of them
  crash [TIMES]          kills a tracker while it is written to (50 times), and what that has cost
  bench NAME [...]       figures beside the rivals: udp, udp-announce, http, http-close, https,
                         https-handshake, ws, wss, ws-idle, wss-idle
                         [--runs N] [--seconds N] [--rivals FOLDER] [--write]
  bench private          what keys, lists, bans, metrics and records cost; and logging
  bench api              imports, changes, and pages of torrents under load
                         [--runs N] [--seconds N] [--write]
  bench flood            what limits cost, and how others fare while one address floods
                         [--runs N] [--seconds N]
  rivals [NAME...]       install the trackers that `tidegate compare` can measure; no name: all of them
                         [--into FOLDER]
  fuzz NAME [SECONDS]    search for inputs that break a parser (needs nightly and cargo-fuzz)
  help                   this text
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
        // Not for hands: what `clients` starts inside a network namespace, once for every case.
        ["client-case", name, directory] => clients::run_case(name, directory.as_ref()),
        // Nor this, which `bench flood` starts there.
        ["flood-case", runs, seconds] => bench::flood::measure(runs.parse()?, seconds.parse()?),
        ["bench", rest @ ..] => bench::bench(rest),
        ["rivals", rest @ ..] => rivals::install(rest).and_then(|tally| tally.verdict()),
        ["fuzz", name] => fuzz::search(name, None),
        ["fuzz", name, seconds] => fuzz::search(name, Some(seconds.parse()?)),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("no task {:?}; `cargo xtask help` lists them", other.join(" ")),
    }
}
