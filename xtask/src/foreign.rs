//! `cargo check` for other targets: a system that is not Linux, so that the portable engine keeps compiling, and Linux
//! with musl, whose types of system calls differ from glibc's.

use anyhow::Result;
use std::path::Path;
use trials::command::{command, output, run};

/// Targets, and the packages that are checked for them. Releases are for musl; only these two have what differs.
const TARGETS: &[(&str, &[&str])] = &[
    ("x86_64-unknown-freebsd", &["--package", "tidegate"]),
    ("x86_64-unknown-linux-musl", &["--package", "tidegate-net", "--package", "tidegate-xdp"]),
];

/// Checks the packages. Prints a message about targets that are not installed.
pub(crate) fn check() -> Result<()> {
    for (target, packages) in TARGETS {
        if !is_installed(target) {
            println!("skipped: rustup target add {target}");
            continue;
        }
        let words = ["cargo", "check", "--quiet", "--locked", "--target", target];
        let mut command = command(&[&words[..], packages].concat());
        command.env("RUSTFLAGS", "-D warnings");
        // C code of dependencies cannot be compiled without that system's headers, and a check does not link
        // anything.
        let name = target.replace('-', "_");
        command.envs([(format!("CC_{name}"), "true"), (format!("AR_{name}"), "true")]);
        run(command)?;
    }
    Ok(())
}

/// Adds the targets by rustup. That needs the network, so a failure is not an error: [`check`] skips them then.
pub(crate) fn add_targets() {
    for (target, _) in TARGETS.iter().filter(|(target, _)| !is_installed(target)) {
        let words = ["timeout", "120", "rustup", "target", "add", target];
        if let Err(error) = output(command(&words)) {
            println!("cannot install target {target}: {error:#}");
        }
    }
}

fn is_installed(target: &str) -> bool {
    let words = ["rustc", "--print", "target-libdir", "--target", target];
    output(command(&words)).is_ok_and(|path| Path::new(path.trim()).is_dir())
}
