//! The steps of `test` and `check`, run one after the other, with a final count.

use crate::command::{Tally, command, run as run_command, run_tests};
use crate::{api, clients, deny, foreign, fuzz, setup, spec, tidy};
use anyhow::{Context, Result};
use std::time::Instant;

/// A step's name and function.
pub(crate) type Step = (&'static str, fn() -> Result<Tally>);

/// All of CI. Steps that are quick or break often come first. Clippy, tests and the release build each
/// compile the workspace once in a profile of their own; other steps reuse one of these.
pub(crate) const TEST: &[Step] = &[
    ("setup", setup::run_setup),
    ("fmt", fmt),
    ("tidy", tidy::run),
    ("spec", spec::run),
    ("dependencies", deny::check),
    ("clippy", clippy),
    ("docs", docs),
    ("tests", tests),
    ("fuzz corpora", fuzz::replay),
    ("foreign target", foreign::check),
    ("release build", release),
    ("management API", || api::try_everything(&[])),
    ("real clients", || clients::run(&[])),
];

/// The steps to run before every commit.
pub(crate) const CHECK: &[Step] =
    &[("fmt", fmt), ("tidy", tidy::run), ("clippy", clippy), ("unit tests", unit_tests)];

/// Single steps that are also tasks.
pub(crate) const SETUP: &[Step] = &[("setup", setup::run_setup)];
/// See [`SETUP`].
pub(crate) const TIDY: &[Step] = &[("tidy", tidy::run)];
/// See [`SETUP`].
pub(crate) const SPEC: &[Step] = &[("spec", spec::run)];

/// Runs steps until one fails. The last line has the number of passed and failed checks.
pub(crate) fn run(steps: &[Step]) -> Result<()> {
    let started = Instant::now();
    let mut total = Tally::default();
    let mut outcome = Ok(());
    for (name, step) in steps {
        println!("\n== {name}");
        let step_started = Instant::now();
        let result = step().and_then(|tally| {
            total.add(tally);
            tally.verdict()
        });
        let seconds = step_started.elapsed().as_secs_f32();
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("== {name}: {word}, {seconds:.1} s");
        if let Err(error) = result {
            total.failed = total.failed.max(1);
            outcome = Err(error).context(*name);
            break;
        }
    }
    println!("\nin {:.0} s", started.elapsed().as_secs_f32());
    println!("{} passed, {} failed", total.passed, total.failed);
    outcome
}

fn fmt() -> Result<Tally> {
    run_command(command(&["cargo", "fmt", "--all", "--check"]))
}

fn clippy() -> Result<Tally> {
    let words = ["cargo", "clippy", "--quiet", "--locked", "--workspace", "--all-targets"];
    run_command(command(&[words.as_slice(), &["--", "-D", "warnings"]].concat()))
}

fn docs() -> Result<Tally> {
    let words = ["cargo", "doc", "--quiet", "--locked", "--workspace", "--no-deps"];
    let mut command = command(&words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_command(command)
}

fn tests() -> Result<Tally> {
    run_tests(command(&["cargo", "test", "--locked", "--workspace", "--no-fail-fast"]))
}

fn unit_tests() -> Result<Tally> {
    run_tests(command(&["cargo", "test", "--locked", "--workspace", "--lib", "--bins"]))
}

fn release() -> Result<Tally> {
    run_command(command(&["cargo", "build", "--locked", "--release", "--package", "tidegate"]))
}
