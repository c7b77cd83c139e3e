//! The task runner of developers and CI. There is no make, just or shell script beside it.
//!
//! `main` selects the task, and [`suite`] has the steps of `test` and `check`. Every step has its own
//! module.
#![forbid(unsafe_code)]
// This program writes to the terminal.
#![allow(clippy::print_stdout)]

mod book;
mod bpf;
mod deny;
mod foreign;
mod mysql;
mod nextest;
mod release;
mod sim;
mod spec;
mod suite;
mod tidy;
mod tree;

use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use trials::command;
use trials::{api, clients, cluster, generated, packages, screenshots, workspace};

const HELP: &str = "\
cargo xtask TASK

  test                   run all of CI: fmt, tidy, spec, clippy, setup, dependencies, bpf, the book, all tests,
                         docs, a foreign target, fuzz corpora, the API, real clients
  test --all             the same, and the API and real clients once more with the release build
  check                  run the quick part: fmt, tidy, clippy, unit tests (one to two minutes)
  setup                  install what the tests need (Debian packages, npm and Python packages, tools)
  tidy                   check rules that no compiler knows: phrases, names, links, file lengths, ...
  book                   build the book of docs/ to target/book
  bpf                    compile the XDP program (needs clang 14); --check: compare it with what is committed
  deny                   check dependencies by cargo-deny: crate arrows, licenses, sources
  spec                   list the requirements of spec/ that are met, tested, excepted
  clients [NAME...]      let real clients transfer a torrent with the tracker (default: all clients)
  api [SEED...]          test the management API against its OpenAPI document, by schemathesis
                         (default: three seeds)
  api clients            generate clients of the API in Python and PHP, and run a script with each
  mysql                  run the tests of sites with MySQL instead of MariaDB (makes a system of Debian unstable)
  crash [TIMES]          kill a tracker under load, and compare its swarms with what it acknowledged (default: 50)
  restart                stop and start a tracker with ten million peers, and measure how long that takes
  cluster [STEP...]      let nodes, NATS servers, links and clocks of a cluster fail under load, and check that
                         all nodes agree (--full: long failures)
  sim SEED [NAME]        simulate a cluster in virtual time, and print what happens (NAME: a scenario of
                         edge/cluster/tests/simulation/faults.rs, default Mixed)
  sim --seeds N [NAME]   simulate N clusters by a release build, and print those that fail; or, if NAME is a canary
                         of host.rs, the first seed that catches it
  licences               write the list of licences that the dashboard shows
  release                build everything that is published of a version, from the commit that is checked out
                         (--target TARGET, --out DIR; --key FILE: sign the checksums; --verify: build twice, and
                         compare the bytes)
  repository DIR --key KEY [RELEASE]
                         add the Debian packages of a release to a folder that apt reads through any web server,
                         signed by the GPG key
  packages [DIR [NAME...]]
                         install each package of a release in a fresh container, and check the tracker there (NAME:
                         only tests whose names contain it)
  screenshots [SCENE...] take pictures of the dashboard in real states: busy, a full disk, a partition
                         (--docs: also write those of the documentation)
  fuzz NAME [SECONDS]    search for inputs that break a parser (needs nightly and cargo-fuzz)
  fuzz nightly SECONDS   search by all parsers at once, and add CPU time and coverage to bench/record/fuzz.jsonl
  fuzz add NAME FILE...  add inputs to the committed ones of a parser
  fuzz minimize [NAME...] keep the inputs found, as few as reach the same code
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
        ["test", "--all"] => suite::run_all(),
        ["check"] => suite::run(suite::CHECK),
        ["step", name] => suite::run_step(name),
        ["setup"] => suite::set_up(),
        ["tidy"] => tidy::run(),
        ["book"] => book::build(),
        ["bpf"] => bpf::compile(),
        ["bpf", "--check"] => bpf::check(),
        ["deny"] => deny::check(),
        ["licences"] => release::write_licences(),
        ["release", words @ ..] => release::run_task(words),
        ["repository", words @ ..] => release::add_to_repository(words),
        ["packages"] => packages::run(&release::default_out()?, &[]),
        ["packages", folder, names @ ..] => packages::run(&workspace::root().join(folder), names),
        ["spec"] => spec::run(),
        ["clients", names @ ..] => built(|| clients::run(names)),
        ["api", "clients"] => built(generated::try_clients),
        ["api", seeds @ ..] => {
            let seeds: Result<Vec<u64>, _> = seeds.iter().map(|seed| seed.parse()).collect();
            let seeds = seeds.context("expected `api [SEED...]` with whole numbers")?;
            built(|| api::try_everything(&seeds))
        }
        ["mysql"] => mysql::run_tests(),
        ["cluster", words @ ..] => built(|| cluster::run(words)),
        ["crash" | "restart", ..] => under_load(words),
        // Internal: `clients` runs this in a network namespace, once for every case.
        ["client-case", name, directory] => clients::run_case(name, directory.as_ref()),
        ["screenshots", words @ ..] => built(|| screenshots::run(words)),
        // Internal: `screenshots` runs this in a network namespace, once for every scene.
        ["screenshots-scene", name, folder, at] => {
            screenshots::run_scene(name, folder.as_ref(), at.as_ref())
        }
        ["sim", "--seeds", seeds] => sim::run_many(seeds, sim::MIXED),
        ["sim", "--seeds", seeds, name] => sim::run_many(seeds, name),
        ["sim", seed] => sim::run_one(seed, sim::MIXED),
        ["sim", seed, name] => sim::run_one(seed, name),
        ["fuzz", "nightly", seconds] => trials::fuzz::nightly(seconds.parse()?),
        ["fuzz", "add", name, files @ ..] => trials::fuzz::add(name, files),
        ["fuzz", "minimize", names @ ..] => trials::fuzz::minimize(names),
        ["fuzz", name] => trials::fuzz::search(name, None),
        ["fuzz", name, seconds] => trials::fuzz::search(name, Some(seconds.parse()?)),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("unknown task {:?}: `cargo xtask help` lists the tasks", other.join(" ")),
    }
}

/// Builds the tracker, and runs a task that needs it.
fn built(task: impl FnOnce() -> Result<()>) -> Result<()> {
    workspace::build()?;
    task()
}

/// Builds the tracker and the trials under load for release, and runs one of them.
fn under_load(words: &[&str]) -> Result<()> {
    let build = ["cargo", "build", "--release", "--quiet", "--locked", "--package", "tidegate"];
    command::run(command::command(&[&build[..], &["--package", "tidegate-trials"]].concat()))?;
    let program = workspace::target().join("release/tidegate-trials").display().to_string();
    command::run(command::command(&[&[&*program], words].concat()))?;
    Ok(())
}
