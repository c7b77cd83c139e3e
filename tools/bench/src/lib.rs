//! tidegate-bench: everything that measures trackers, and parts of tidegate.
//!
//! `load` puts any tracker under load. All other benchmarks start what they measure (`lab`), in turn, write each run
//! down ([`session`], [`record`]), and report them (`report`). `docs` writes the tables of documents from the records.
//!
//! Trials that judge trackers under load (`testing/trials`) use what is public here: they write the same records.
//!
//! ```text
//! bench/*.toml ─▶ lab ─▶ compare, attacks, xdp, cluster ──┐
//!        testing/trials ─▶ crash, restart ──────────┴▶ session ─▶ record ─▶ report ─▶ docs
//! ```
#![forbid(unsafe_code)]

mod attacks;
pub mod cluster;
mod compare;
mod datagrams;
mod docs;
pub mod figures;
mod lab;
mod load;
mod program;
pub mod record;
mod report;
pub mod session;
pub mod swarms;
pub mod table;
mod xdp;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub use lab::Api;
pub use program::ProgramArgs;

/// Measures BitTorrent trackers.
#[derive(Parser)]
#[command(version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Put any tracker under load and report its throughput.
    Load {
        #[command(subcommand)]
        load: load::LoadCommand,
    },
    Compare(compare::Compare),
    Attacks(attacks::Attacks),
    Xdp(xdp::XdpCommand),
    Cluster(cluster::ClusterCommand),
    Docs(docs::Docs),
}

/// Runs the command of the command line.
pub fn run() -> ExitCode {
    raise_descriptor_limit();
    let done = match CommandLine::parse().command {
        Command::Load { load } => load::run(&load),
        Command::Compare(command) => command.run(),
        Command::Attacks(command) => command.run(),
        Command::Xdp(command) => command.run(),
        Command::Cluster(command) => command.run(),
        Command::Docs(command) => command.run(),
    };
    done.unwrap_or_else(|error| {
        print_error(format_args!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// Prints an error to standard error. If that is closed, only the exit code tells.
fn print_error(text: impl Display) {
    let _ = writeln!(io::stderr(), "tidegate-bench: {text}");
}

/// Returns a flag that SIGINT and SIGTERM set; the second signal ends the process at once.
fn interruption() -> Result<Arc<AtomicBool>> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registered first: while the flag is not yet set, it does not end the process.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&is_interrupted))
            .and_then(|_| flag::register(signal, Arc::clone(&is_interrupted)))
            .context("cannot install signal handlers")?;
    }
    Ok(is_interrupted)
}

/// Raises the limit of open files: the default is too low for many connections. Trackers and load testers inherit it.
/// If it cannot be raised, opening connections reports the error.
pub fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let _ = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
}
