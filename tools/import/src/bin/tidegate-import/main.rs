//! tidegate-import: takes over the configuration and data of another tracker, and configurations of earlier versions.
//!
//! The library reads the files. This program writes what it finds: a configuration, which the tracker checks as one
//! that it is to serve, and records, in one transaction.
#![forbid(unsafe_code)]

mod check;
mod manual;
mod removed;
mod render;

use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use admin::records::OfflineCounts;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser};
use tidegate_import::{Draft, ListKind, Options, Records, Report, Rival};

use manual::Texts;
use removed::Rewrite;
use render::Rendered;

/// Take over the configuration and data of another tracker.
///
/// Prints a configuration for tidegate, with a comment for each key, or writes it to --out. With --state, lists, keys
/// and counts become records there; the tracker that uses that directory must not be running. See docs/migrate.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    import: Option<Import>,
    #[command(flatten)]
    texts: Texts,
    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    Config(Rewrite),
}

/// Arguments of an import.
#[derive(Args)]
struct Import {
    /// The tracker whose files these are.
    #[arg(value_name = "TRACKER", value_parser = trackers())]
    tracker: Rival,
    /// Its configuration, its lists, its database or dumps of that, in any order.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the configuration to this file [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite an existing configuration.
    #[arg(long, requires = "out")]
    force: bool,
    /// Directory for records (state.dir); created if it does not exist.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Read and check everything, print the configuration, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// The kind of the lists of info hashes, if no configuration names it.
    #[arg(long, value_parser = ["allow", "deny"])]
    list: Option<String>,
    /// A compile-time option that opentracker was built with, e.g. WANT_FULLSCRAPE. May be repeated.
    #[arg(long, value_name = "OPTION")]
    compiled: Vec<String>,
    /// Address or network of a reverse proxy that may name clients. May be repeated [default: this machine].
    #[arg(long, value_name = "ADDRESS")]
    proxy: Vec<String>,
}

fn trackers() -> impl TypedValueParser<Value = Rival> {
    PossibleValuesParser::new(Rival::ALL.map(Rival::label)).map(|word| {
        let known = Rival::ALL.into_iter().find(|rival| rival.label() == word);
        known.unwrap_or(Rival::Opentracker)
    })
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let done = match (&command_line.command, &command_line.import) {
        (Some(Subcommand::Config(rewrite)), _) => rewrite.run(),
        (None, Some(import)) => import.run(),
        (None, None) => command_line.texts.print(CommandLine::command()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => {
            problems.iter().for_each(print_error);
            ExitCode::FAILURE
        }
    }
}

/// Prints a line to standard error. If that is closed, only the exit code tells.
fn print_error(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "tidegate-import: {text}");
}

/// Prints to standard output. A reader that is gone, such as `head`, is no error.
fn print(text: &str) -> Result<(), Vec<String>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(vec![error.to_string()]),
        _ => Ok(()),
    }
}

impl Import {
    /// Imports. Returns what is wrong, if anything; nothing has been written then.
    fn run(&self) -> Result<(), Vec<String>> {
        self.check_out()?;
        let (draft, report, records) = self.read()?;
        let (text, problems) = checked(self.tracker, &self.sources(), draft)?;
        // Written before the commit: a configuration without its records can be written again.
        match &self.out {
            Some(out) if !self.dry_run => self.write(out, &text)?,
            _ => print(&text)?,
        }
        let counts = records.commit().map_err(|text| vec![text])?;
        self.summarize(&report, &problems, counts);
        Ok(())
    }

    /// Refuses to overwrite a file before anything is read.
    fn check_out(&self) -> Result<(), Vec<String>> {
        match &self.out {
            Some(out) if out.exists() && !self.force && !self.dry_run => {
                Err(vec![format!("{} exists already; --force overwrites it", out.display())])
            }
            _ => Ok(()),
        }
    }

    /// Reads all files. Returns the records, which are not committed.
    fn read(&self) -> Result<(Draft, Report, Records), Vec<String>> {
        let mut records = match &self.state {
            Some(dir) if !self.dry_run => open_records(dir)?,
            _ => Records::discard(),
        };
        let options = self.options();
        let read = tidegate_import::import(self.tracker, &self.files, &options, &mut records);
        let (draft, report) = read.map_err(|error| vec![error.to_string()])?;
        Ok((draft, report, records))
    }

    fn options(&self) -> Options {
        let list = self.list.as_deref();
        Options {
            state: self.state.as_ref().map(|dir| absolute(dir).display().to_string()),
            list: list.map(|list| if list == "deny" { ListKind::Deny } else { ListKind::Allow }),
            compiled: self.compiled.clone(),
            proxies: self.proxy.clone(),
        }
    }

    fn sources(&self) -> String {
        let names = self.files.iter().map(|file| file.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    }

    fn write(&self, out: &Path, text: &str) -> Result<(), Vec<String>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let written = options.open(out).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| vec![format!("cannot write {}: {error}", out.display())])
    }

    /// Prints what was taken and what was not.
    fn summarize(&self, report: &Report, problems: &[String], counts: Option<OfflineCounts>) {
        let say = |text: String| print_error(text);
        for (what, count) in &report.taken {
            say(format!("read: {count} {what}"));
        }
        for (reason, skipped) in &report.skipped {
            let places = skipped.places.iter().map(ToString::to_string).collect::<Vec<_>>();
            let more = if skipped.count > places.len() as u64 { ", …" } else { "" };
            say(format!("skipped: {} ({reason}): {}{more}", skipped.count, places.join(", ")));
        }
        report.notes.iter().for_each(|note| say(format!("note: {note}")));
        problems.iter().for_each(|text| say(format!("not in effect: {text}")));
        match (counts, &self.state) {
            (Some(counts), Some(dir)) => say(format!(
                "recorded in {}: {} new keys, {} new entries of lists, {} higher download counts",
                dir.display(),
                counts.keys,
                counts.entries,
                counts.downloads
            )),
            _ if self.dry_run => say("nothing was written (--dry-run)".into()),
            _ if report.taken.is_empty() => {}
            _ => say("no records were written: --state DIR says where they go".into()),
        }
        if let Some(out) = self.out.as_ref().filter(|_| !self.dry_run) {
            let out = out.display();
            say(format!("wrote {out}: read it, then run `tidegate config check --config {out}`"));
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn open_records(dir: &Path) -> Result<Records, Vec<String>> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| vec![format!("--state: cannot create {}: {error}", dir.display())])?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Records::open(dir, now).map_err(|error| vec![error])
}

/// Writes the draft as text, and has the tracker check that as a configuration. Keys that cannot hold are written as
/// comments; returns why. Keys that protect the tracker are never left out: then the import fails.
fn checked(
    rival: Rival,
    sources: &str,
    mut draft: Draft,
) -> Result<(String, Vec<String>), Vec<String>> {
    let mut left_out = Vec::new();
    loop {
        let Rendered { text, keys } = render::render(rival, sources, &draft);
        let problems = check::problems(&text).map_err(|error| vec![error])?;
        if problems.is_empty() {
            return Ok((text, left_out));
        }
        let before = left_out.len();
        for problem in &problems {
            let key = keys.iter().find(|(line, _)| *line == problem.line).map(|(_, name)| *name);
            let key = draft.keys.iter_mut().find(|it| it.is_active && Some(it.name) == key);
            let Some(key) = key.filter(|key| is_dispensable(key.name)) else { continue };
            key.is_active = false;
            key.comments.push(format!("Not in effect: {}", problem.text));
            left_out.push(format!("{}: {}", key.name, problem.text));
        }
        if left_out.len() == before {
            let texts = problems.iter().map(|problem| problem.within("tidegate.toml"));
            let head =
                "the configuration of the other tracker cannot be used here as it is:".into();
            return Err(std::iter::once(head).chain(texts).collect());
        }
    }
}

/// Returns whether the tracker may be served without this key.
fn is_dispensable(name: &str) -> bool {
    !name.starts_with("access.") && name != "http.websocket_origins_deny"
}
