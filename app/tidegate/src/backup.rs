//! `tidegate backup` and `restore`: archives of the state directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admin::records::{ArchiveParts, ArchiveSummary, restore_archive, write_archive};
use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::cli;
use crate::permissions::create_state_directory;
use config::Config;

const STREAM: &str = "-";

/// Write an archive of the state directory, while the tracker runs or not.
///
/// It has the records (keys, lists, bans, tokens, webhooks, settings, counts and history), the installation's secrets and
/// the certificates of ACME. It is a tar file with secrets in it, and only its owner can read it.
#[derive(Args)]
pub(crate) struct Backup {
    /// The new file; `-` = standard output.
    file: PathBuf,
    /// Add the journal of swarms: peers and their torrents, which clients announce anew within an interval.
    #[arg(long)]
    swarms: bool,
    /// Leave out the secret of users' sessions, the first token and the certificates' keys. Users' keys and the
    /// secrets of webhooks are in the records nevertheless.
    #[arg(long)]
    no_secrets: bool,
}

/// Put an archive of `tidegate backup` into the state directory. No tracker may run there.
///
/// Files that are there are put aside, with .replaced at the ends of their names. A node of a cluster fetches the changes
/// that other nodes have made since the archive, when it starts.
#[derive(Args)]
pub(crate) struct Restore {
    /// The archive; `-` = standard input.
    file: PathBuf,
}

impl Backup {
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        end(self.write(config), self.file == Path::new(STREAM))
    }

    fn write(&self, config: Option<&Path>) -> Result<String> {
        let folder = folder(&load(config)?)?;
        let parts = ArchiveParts { secrets: !self.no_secrets, swarms: self.swarms };
        if self.file == Path::new(STREAM) {
            let mut out = io::stdout().lock();
            let summary = write_archive(&folder, parts, &folder, &mut out)?;
            return Ok(describe("backed up", "standard output", &summary));
        }
        let file = &self.file;
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(file);
        let mut archive = made.with_context(|| format!("cannot create {}", file.display()))?;
        let written = write_file(&folder, parts, file, &mut archive);
        if written.is_err() {
            // A part of an archive is none.
            let _ = fs::remove_file(file);
        }
        Ok(describe("backed up to", &file.display().to_string(), &written?))
    }
}

fn write_file(
    folder: &Path,
    parts: ArchiveParts,
    file: &Path,
    archive: &mut File,
) -> Result<ArchiveSummary> {
    // The disk of the backup has room for it; that of a tracker may not.
    let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let summary = write_archive(folder, parts, beside.unwrap_or_else(|| Path::new(".")), archive)?;
    archive.sync_all().with_context(|| format!("cannot write {}", file.display()))?;
    Ok(summary)
}

impl Restore {
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        end(self.read(config), false)
    }

    fn read(&self, config: Option<&Path>) -> Result<String> {
        let config = load(config)?;
        let folder = folder(&config)?;
        let name = self.file.display();
        let mut from: Box<dyn Read> = match self.file == Path::new(STREAM) {
            true => Box::new(io::stdin().lock()),
            false => {
                Box::new(File::open(&self.file).with_context(|| format!("cannot open {name}"))?)
            }
        };
        if !folder.exists() {
            create_state_directory(&config)?;
        }
        let summary = restore_archive(&mut from, &folder)?;
        let mut text = describe("restored", &name.to_string(), &summary);
        if let Some(replaced) = summary.replaced {
            let before =
                replaced.counts.map_or_else(|| "damaged".into(), |counts| counts.to_string());
            text +=
                &format!("the records from before are in {}: {before}\n", replaced.file.display());
        }
        if config.cluster.is_some() {
            text += "when the node starts, it fetches what other nodes have changed since: of each row, the later \
                     change holds\n";
        }
        Ok(text)
    }
}

fn describe(verb: &str, place: &str, summary: &ArchiveSummary) -> String {
    let mut text = format!("{verb} {place}: {}", summary.counts);
    if !summary.others.is_empty() {
        text += &format!("; {}", summary.others.join(", "));
    }
    text.push('\n');
    text
}

fn load(file: Option<&Path>) -> Result<Config> {
    let (_, config) =
        crate::load(file).map_err(|problems| anyhow!(problems.join("\ntidegate: ")))?;
    Ok(config)
}

fn folder(config: &Config) -> Result<PathBuf> {
    let folder = config.state_dir.clone();
    folder.context("state.dir is empty: name the configuration of the tracker by --config")
}

fn end(done: Result<String>, is_archive_on_stdout: bool) -> ExitCode {
    match done {
        // The archive ends where it ends.
        Ok(text) if is_archive_on_stdout => {
            eprint!("{text}");
            ExitCode::SUCCESS
        }
        Ok(text) => cli::exit(cli::print(&text)),
        Err(error) => {
            cli::print_error(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
