//! `cargo check` for a system other than Linux, so that the portable engine keeps compiling.

use crate::command::{Tally, command, output, run};
use anyhow::Result;
use std::path::Path;

const TARGET: &str = "x86_64-unknown-freebsd";

/// Checks the binaries. Prints a message if the target is not installed.
pub(crate) fn check() -> Result<Tally> {
    if !is_installed() {
        println!("skipped: rustup target add {TARGET}");
        return Ok(Tally::default());
    }
    let words = ["cargo", "check", "--quiet", "--locked", "--target", TARGET];
    let packages = ["--package", "tidegate", "--package", "tidegate-bench"];
    let mut command = command(&[words.as_slice(), &packages].concat());
    command.env("RUSTFLAGS", "-D warnings");
    // C code of dependencies cannot be compiled without that system's headers, and a check does not link
    // anything.
    let name = TARGET.replace('-', "_");
    command.envs([(format!("CC_{name}"), "true"), (format!("AR_{name}"), "true")]);
    run(command)
}

/// Adds the target by rustup. That needs the network, so a failure is not an error: [`check`] is skipped then.
pub(crate) fn add_target() {
    if !is_installed()
        && let Err(error) = output(command(&["timeout", "120", "rustup", "target", "add", TARGET]))
    {
        println!("cannot install target {TARGET}: {error:#}");
    }
}

fn is_installed() -> bool {
    let words = ["rustc", "--print", "target-libdir", "--target", TARGET];
    output(command(&words)).is_ok_and(|path| Path::new(path.trim()).is_dir())
}
