//! tidegate: a BitTorrent tracker.
//!
//! `main` parses the command line; [`config`] reads the configuration; [`serve`] runs the tracker.
//! [`announce`], [`scrape`] and [`check`] are clients of any tracker; [`mod@admin`] and [`top`] use the
//! management API of a running tidegate; [`mod@journal`] and [`backup`] read its files; [`mod@cluster`] sets up several; [`manual`] and
//! [`version`] describe the program. Other programs measure (tidegate-bench) and read the files of other trackers
//! (tidegate-import).
#![forbid(unsafe_code)]
// A build that lacks subsystems has code that only these use. Systems other than Linux lack the XDP program.
#![cfg_attr(not(all(feature = "default", target_os = "linux")), allow(dead_code))]

mod access;
#[cfg(feature = "acme")]
mod acme;
mod admin;
mod announce;
mod backup;
mod certificates;
mod check;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod dates;
mod errors;
#[cfg(feature = "journal")]
mod journal;
mod manual;
mod mistakes;
mod permissions;
mod running;
mod scrape;
mod serve;
#[cfg(feature = "site")]
mod site;
mod top;
mod version;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{self, ExitCode};

use clap::{Args, CommandFactory, Parser, Subcommand};

use cli::UsageError;
use config::{Config, Problem, Settings};

/// The allocator of the program, for `tidegate version`.
const ALLOCATOR: &str = if cfg!(target_env = "musl") { "musl" } else { "that of the system" };

const STATE_VARIABLE: &str = "TIDEGATE_STATE__DIR";

/// A BitTorrent tracker: UDP, HTTP and WebTorrent in one process.
#[derive(Parser)]
#[command(version, arg_required_else_help = false)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    /// Configuration file [default: none, all keys have their defaults].
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Serve(Serve),
    /// Write, show or check a configuration.
    Config {
        #[command(subcommand)]
        command: ConfigFileCommand,
    },
    Announce(announce::Announce),
    Scrape(scrape::Scrape),
    Check(check::Check),
    #[cfg(feature = "journal")]
    Journal(journal::JournalArgs),
    Admin(admin::Admin),
    Backup(backup::Backup),
    Restore(backup::Restore),
    /// Run tidegate-import, which takes over the configuration and data of another tracker.
    #[command(hide = true, disable_help_flag = true)]
    Import {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    Top(top::Top),
    /// Set up a cluster, look at it and manage it.
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    Completions(manual::Completions),
    Man(manual::Manual),
    Version(version::Version),
}

/// Run the tracker (the default command).
///
/// The tracker's state survives a restart: records, counts and swarms are in state.dir, by default tidegate/ in
/// $XDG_STATE_HOME or ~/.local/state.
#[derive(Args, Default)]
struct Serve {
    /// Keep records, counts and swarms in this directory (state.dir).
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Keep nothing: what the tracker knows is lost when it ends.
    #[arg(long, conflicts_with = "state")]
    memory: bool,
}

/// Where the configuration of a tracker comes from, besides its environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigSource {
    pub(crate) file: Option<PathBuf>,
    state_dir: Option<String>,
}

impl Serve {
    fn source(&self, file: Option<&Path>) -> ConfigSource {
        // In a shell, a relative path is one in the present directory.
        let whole = |dir: &PathBuf| path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let named = self.state.as_ref().map(|dir| whole(dir).display().to_string());
        let state_dir = if self.memory { Some(String::new()) } else { named };
        ConfigSource { file: file.map(Path::to_owned), state_dir }
    }
}

#[derive(Subcommand)]
enum ConfigFileCommand {
    /// Write a configuration file with the documentation of every key, and its default as a comment.
    Init {
        /// File to write [default: standard output].
        file: Option<PathBuf>,
        /// Overwrite an existing file.
        #[arg(long)]
        force: bool,
        /// Write only the keys that most users set.
        #[arg(long)]
        short: bool,
    },
    /// Print every key with its value, and where the value comes from.
    Show,
    /// Check everything that `serve` needs, such as files, certificates and ports, without serving.
    Check,
}

fn main() -> ExitCode {
    let command_line =
        CommandLine::try_parse().unwrap_or_else(|error| mistakes::explain(error).exit());
    let file = command_line.config.as_deref();
    let done = match command_line.command.unwrap_or_else(|| Command::Serve(Serve::default())) {
        Command::Serve(serve) => run(serve.source(file)),
        Command::Config { command: ConfigFileCommand::Init { file, force, short } } => {
            init(file.as_deref(), force, short)
        }
        Command::Config { command: ConfigFileCommand::Show } => {
            load(file).and_then(|(settings, _)| print(&config::show(&settings)))
        }
        Command::Config { command: ConfigFileCommand::Check } => check_config(file),
        Command::Import { arguments } => Err(vec![run_import(&arguments)]),
        Command::Announce(announce) => return cli::exit(announce.run()),
        Command::Scrape(scrape) => return cli::exit(scrape.run()),
        Command::Check(check) => return cli::exit(check.run()),
        #[cfg(feature = "journal")]
        Command::Journal(journal) => return cli::exit(journal.run(file)),
        Command::Admin(admin) => return admin::run(&admin, file),
        Command::Backup(backup) => return backup.run(file),
        Command::Restore(restore) => return restore.run(file),
        Command::Top(top) => return top::run(&top, file),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => return command.run(file),
        Command::Completions(shell) => return cli::exit(shell.run(CommandLine::command())),
        Command::Man(manual) => return cli::exit(manual.run(CommandLine::command())),
        Command::Version(version) => return cli::exit(version.run()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => print_error(&problems),
    }
}

fn run(source: ConfigSource) -> Result<(), Vec<String>> {
    let (settings, config) = load_with(&source, &[])?;
    serve::serve(source, settings, config).map_err(|error| vec![format!("{error:#}")])
}

fn print_error(problems: &[String]) -> ExitCode {
    problems.iter().for_each(cli::print_error);
    ExitCode::FAILURE
}

fn load(file: Option<&Path>) -> Result<(Settings, Config), Vec<String>> {
    load_with(&Serve::default().source(file), &[])
}

/// Reads the configuration from `source`, the environment and settings changed through the API.
fn load_with(
    source: &ConfigSource,
    api: &[(String, serde_json::Value)],
) -> Result<(Settings, Config), Vec<String>> {
    let texts =
        |problems: Vec<Problem>| problems.iter().map(Problem::to_string).collect::<Vec<_>>();
    let environment = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    let state_dir = source.state_dir.clone();
    let environment = environment.chain(state_dir.map(|dir| (STATE_VARIABLE.to_owned(), dir)));
    let mut settings = config::load(source.file.as_deref(), environment).map_err(texts)?;
    let problems = settings.apply_overrides(api);
    if !problems.is_empty() {
        return Err(texts(problems));
    }
    let config = Config::from_settings(&settings).map_err(texts)?;
    Ok((settings, config))
}

/// Replaces this process by the program tidegate-import beside it. Returns an error if that is not there.
fn run_import(arguments: &[OsString]) -> String {
    let program = std::env::current_exe().unwrap_or_default().with_file_name("tidegate-import");
    let error = process::Command::new(&program).args(arguments).exec();
    let program = program.display();
    format!("imports are the program tidegate-import, but {program} cannot be run: {error}")
}

fn init(file: Option<&Path>, force: bool, short: bool) -> Result<(), Vec<String>> {
    let text = config::init(short);
    let Some(file) = file else { return print(&text) };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(force).create_new(!force).truncate(force);
    let written = options.open(file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => "; --force overwrites it",
            _ => "",
        };
        vec![format!("cannot write {}: {error}{hint}", file.display())]
    })
}

/// Where packages put the configuration.
const PACKAGED_FILES: [&str; 2] =
    ["/etc/tidegate/tidegate.toml", "/usr/local/etc/tidegate/tidegate.toml"];

/// A configuration file to check, and where it was found.
struct FileToCheck {
    path: Option<PathBuf>,
    /// The sentence that names the file.
    read: String,
}

/// Returns the file that was named, or else that of the running tracker, or that of a package.
///
/// # Errors
///
/// If several trackers run with different files.
fn file_to_check(named: Option<&Path>) -> Result<FileToCheck, Vec<String>> {
    let found = |path: &Path, note: String| FileToCheck {
        path: Some(path.to_owned()),
        read: format!("Read {}{note}", path.display()),
    };
    if let Some(file) = named {
        return Ok(found(file, String::new()));
    }
    let running: Vec<(PathBuf, u32)> = running::files().into_iter().collect();
    match running.as_slice() {
        [] => {}
        [(file, pid)] => {
            return Ok(found(file, format!(", the file of the running tidegate, pid {pid}")));
        }
        several => {
            let names: Vec<_> =
                several.iter().map(|(file, _)| file.display().to_string()).collect();
            return Err(vec![format!(
                "several trackers run here, with the configuration files {}: name the one to check by --config",
                names.join(", ")
            )]);
        }
    }
    let packaged = PACKAGED_FILES.iter().map(Path::new).find(|file| file.exists());
    let none = || FileToCheck {
        path: None,
        read: "Read no file, only the environment: --config names one".into(),
    };
    Ok(packaged.map_or_else(none, |file| found(file, String::new())))
}

/// Checks a configuration, and prints which file that was.
fn check_config(named: Option<&Path>) -> Result<(), Vec<String>> {
    let FileToCheck { path, read } = file_to_check(named)?;
    let file = path.as_deref();
    let config = check_file(file).inspect_err(|_| {
        cli::print_error(format_args!("note: {read}"));
    })?;
    print(&format!("{read}\nThe configuration is valid\n"))?;
    match file {
        Some(file) if config.has_removed_keys() => print(&format!(
            "Some keys are no longer settings: `tidegate-import config {}` removes them\n",
            file.display()
        )),
        _ => Ok(()),
    }
}

/// Prints what there is to say about the configuration in `file`. Returns it, or what is wrong with it.
fn check_file(file: Option<&Path>) -> Result<Config, Vec<String>> {
    let (_, config) = load(file)?;
    let serve::Findings { problems, warnings, notes } = serve::check(&config, file);
    let warnings = config.warnings().into_iter().chain(warnings);
    warnings.for_each(|text| cli::print_error(format_args!("warning: {text}")));
    notes.iter().for_each(|text| cli::print_error(format_args!("note: {text}")));
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn print(text: &str) -> Result<(), Vec<String>> {
    cli::print(&text).map(drop).map_err(|UsageError(why)| vec![why])
}
