//! The program `tidegate-trials`: trials that judge trackers under load. `cargo xtask` builds it, and runs its commands.
//!
//! They stand on the library of `tools/bench`: its clusters, and its records and reports.
#![forbid(unsafe_code)]

mod cluster;
mod crash;
mod restart;
mod swarms;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Judges trackers under load.
#[derive(Parser)]
#[command(version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Crash(crash::Crash),
    Restart(restart::Restart),
    Cluster(cluster::ClusterCheck),
}

fn main() -> ExitCode {
    bench::raise_descriptor_limit();
    let done = match CommandLine::parse().command {
        Command::Crash(command) => command.run(),
        Command::Restart(command) => command.run(),
        Command::Cluster(command) => command.run(),
    };
    done.unwrap_or_else(|error| {
        // If standard error is closed, only the exit code tells.
        let _ = writeln!(io::stderr(), "tidegate-trials: {error:#}");
        ExitCode::FAILURE
    })
}
