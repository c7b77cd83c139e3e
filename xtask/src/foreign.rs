//! `cargo check` for a system other than Linux, so that the portable engine keeps compiling.

use crate::command::{Tally, command, output, run};
use anyhow::Result;
use std::path::Path;

/// One of these is enough; the first is added if none is installed.
const TARGETS: &[&str] = &["x86_64-unknown-freebsd", "aarch64-apple-darwin"];

/// Checks the binary for every installed target. Prints a message if there is none.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = Tally::default();
    for target in TARGETS.iter().filter(|target| is_installed(target)) {
        let words = ["cargo", "check", "--quiet", "--locked", "--package", "tidegate", "--target"];
        let mut command = command(&[&words, [*target].as_slice()].concat());
        command.env("RUSTFLAGS", "-D warnings");
        // C code of dependencies cannot be compiled without that system's headers, and a check does
        // not link anything.
        let name = target.replace('-', "_");
        command.envs([(format!("CC_{name}"), "true"), (format!("AR_{name}"), "true")]);
        tally.add(run(command)?);
    }
    if tally == Tally::default() {
        println!("skipped: none of {TARGETS:?} is installed (rustup target add {})", TARGETS[0]);
    }
    Ok(tally)
}

/// Adds a target by rustup if none is installed. That needs the network, so a failure is not an error:
/// [`check`] is skipped then.
pub(crate) fn add_target() {
    if !TARGETS.iter().any(|target| is_installed(target))
        && let Err(error) =
            output(command(&["timeout", "120", "rustup", "target", "add", TARGETS[0]]))
    {
        println!("cannot install target {}: {error:#}", TARGETS[0]);
    }
}

fn is_installed(target: &str) -> bool {
    let words = ["rustc", "--print", "target-libdir", "--target", target];
    output(command(&words)).is_ok_and(|path| Path::new(path.trim()).is_dir())
}
