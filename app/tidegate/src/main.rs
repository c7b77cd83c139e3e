//! tidegate: a BitTorrent tracker.
//!
//! `main` reads the command line; [`config`] reads the configuration; [`serve`] builds everything and
//! keeps it running; [`mod@load`] puts a tracker under load, [`mod@compare`] several in turn;
//! [`announce`], [`scrape`] and [`check`] ask trackers what a client would; [`mod@admin`] and [`top`] ask
//! a tidegate over its management API.
#![forbid(unsafe_code)]

mod access;
mod acme;
mod admin;
mod announce;
mod bench;
mod certificates;
mod check;
mod cli;
mod compare;
mod config;
mod dates;
mod load;
mod scrape;
mod serve;
mod top;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use config::{Config, Problem, Settings};

/// A BitTorrent tracker: UDP and HTTP over one swarm store.
#[derive(Parser)]
#[command(version, arg_required_else_help = false)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Task>,
    /// The configuration file; without one the defaults are in force.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Serve (what happens without a command, too).
    Serve,
    /// Write, look at or check a configuration.
    Config {
        #[command(subcommand)]
        task: ConfigTask,
    },
    /// Announce a torrent to a tracker, whichever it is, and print the answer.
    Announce(announce::Announce),
    /// Ask a tracker, whichever it is, for the figures of torrents.
    Scrape(scrape::Scrape),
    /// Is a tracker, whichever it is, alive, and does it do what it should?
    Check(check::Check),
    /// Put a tracker, whichever it is, under load and say what it did.
    Load {
        #[command(subcommand)]
        load: load::Load,
    },
    /// Compare trackers: throughput, latency, memory.
    Compare(compare::Compare),
    /// The management API of a tidegate that serves.
    Admin(admin::Admin),
    /// The figures of a tidegate that serves, live in a terminal.
    Top(top::Top),
    /// Measure a part of tidegate by itself.
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
}

#[derive(Subcommand)]
enum ConfigTask {
    /// Write a configuration with every key, its default and what it does.
    Init {
        /// Where to; standard output without it.
        file: Option<PathBuf>,
        /// Replace the file if there is one.
        #[arg(long)]
        force: bool,
    },
    /// Print every value in force, and where it comes from.
    Show,
    /// Check all that serving would need, without serving.
    Check,
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let file = command_line.config.as_deref();
    let done = match command_line.command.unwrap_or(Task::Serve) {
        Task::Serve => load(file).and_then(|(settings, config)| {
            serve::serve(file.map(Path::to_owned), settings, config)
                .map_err(|error| vec![format!("{error:#}")])
        }),
        Task::Config { task: ConfigTask::Init { file, force } } => init(file.as_deref(), force),
        Task::Config { task: ConfigTask::Show } => {
            load(file).and_then(|(settings, _)| print(&config::show(&settings)))
        }
        Task::Config { task: ConfigTask::Check } => check_config(file),
        Task::Announce(announce) => return cli::exit(announce.run()),
        Task::Scrape(scrape) => return cli::exit(scrape.run()),
        Task::Check(check) => return cli::exit(check.run()),
        Task::Load { load } => return with_code(load::run(&load)),
        Task::Compare(compare) => return with_code(compare::run(&compare)),
        Task::Admin(admin) => return admin::run(&admin, file),
        Task::Top(top) => return top::run(&top, file),
        Task::Bench { bench } => return with_code(bench::run(&bench)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => print_error(&problems),
    }
}

/// Of what tells its exit code itself.
fn with_code(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| print_error(&[format!("{error:#}")]))
}

fn print_error(problems: &[String]) -> ExitCode {
    problems.iter().for_each(cli::print_error);
    ExitCode::FAILURE
}

/// The configuration that `file` and the environment make.
fn load(file: Option<&Path>) -> Result<(Settings, Config), Vec<String>> {
    load_with(file, &[])
}

/// The same with what the management API has set.
fn load_with(
    file: Option<&Path>,
    api: &[(String, serde_json::Value)],
) -> Result<(Settings, Config), Vec<String>> {
    let texts =
        |problems: Vec<Problem>| problems.iter().map(Problem::to_string).collect::<Vec<_>>();
    let environment = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    let mut settings = config::load(file, environment).map_err(texts)?;
    let problems = settings.apply_overrides(api);
    if !problems.is_empty() {
        return Err(texts(problems));
    }
    let config = Config::from_settings(&settings).map_err(texts)?;
    Ok((settings, config))
}

fn init(file: Option<&Path>, force: bool) -> Result<(), Vec<String>> {
    let Some(file) = file else { return print(&config::init()) };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(force).create_new(!force).truncate(force);
    let written = options.open(file).and_then(|mut file| file.write_all(config::init().as_bytes()));
    written.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => " (--force replaces it)",
            _ => "",
        };
        vec![format!("cannot write {}: {error}{hint}", file.display())]
    })
}

fn check_config(file: Option<&Path>) -> Result<(), Vec<String>> {
    let (_, config) = load(file)?;
    let problems = serve::check(&config);
    if problems.is_empty() { print("the configuration is good\n") } else { Err(problems) }
}

fn print(text: &str) -> Result<(), Vec<String>> {
    match io::stdout().write_all(text.as_bytes()) {
        // A reader such as `head` has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(vec![error.to_string()]),
        _ => Ok(()),
    }
}
