//! `tidegate journal`: what the journal of swarms on the disk contains.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use journal::{Inspection, SegmentInfo, inspect};

use crate::admin::{bytes, date};
use crate::cli::{self, UsageError};
use config::SwarmsConfig;

/// Look at the journal of swarms on the disk. Needs no tracker, and does not disturb one.
///
/// Exit code 2 if it cannot be read.
#[derive(Args)]
pub(crate) struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Subcommand)]
enum JournalCommand {
    /// List the files of a journal, with their rounds, peers and damage.
    Show {
        /// The journal's directory, or the one that contains `swarms` [default: that of the configuration].
        dir: Option<PathBuf>,
    },
    /// Read all of a journal. Exit code 1 if it is damaged or empty.
    Check {
        /// The journal's directory, or the one that contains `swarms` [default: that of the configuration].
        dir: Option<PathBuf>,
    },
}

impl JournalArgs {
    pub(crate) fn run(&self, file: Option<&Path>) -> Result<bool, UsageError> {
        let (JournalCommand::Show { dir } | JournalCommand::Check { dir }) = &self.command;
        let dir = match dir {
            Some(dir) => within(dir),
            None => configured(file)?,
        };
        let failed = |error| UsageError(format!("cannot read {}: {error}", dir.display()));
        std::fs::metadata(&dir).map_err(failed)?;
        let found = inspect(&dir).map_err(failed)?;
        let is_check = matches!(self.command, JournalCommand::Check { .. });
        let text = if is_check { checked(&found, &dir) } else { shown(&found) };
        cli::print(&text)?;
        Ok(!is_check || (found.damaged() == 0 && !found.segments.is_empty()))
    }
}

/// Returns the directory of the journal in `dir`, which may be that directory itself.
fn within(dir: &Path) -> PathBuf {
    let inner = SwarmsConfig::directory(dir);
    if inner.is_dir() { inner } else { dir.to_owned() }
}

fn configured(file: Option<&Path>) -> Result<PathBuf, UsageError> {
    let (_, config) = crate::load(file).map_err(|problems| UsageError(problems.join("\n")))?;
    let dir = config.state_dir.ok_or_else(|| {
        UsageError("state.dir is empty, so there is no journal: name a directory".into())
    })?;
    Ok(SwarmsConfig::directory(&dir))
}

fn shown(found: &Inspection) -> String {
    let mut text = format!(
        "{:<21} {:>10}  {:<19} {:>8} {:>10} {:>10}  rounds\n",
        "file", "size", "created (UTC)", "blocks", "changes", "walked"
    );
    for segment in &found.segments {
        let SegmentInfo { file, blocks, changes, walked, .. } = segment;
        let (size, created) = (bytes(segment.bytes as f64), moment(segment.created_ms));
        text += &format!(
            "{file:<21} {size:>10}  {created:<19} {blocks:>8} {changes:>10} {walked:>10}  {}\n",
            rounds(segment)
        );
    }
    let size = bytes(found.bytes() as f64);
    text += &format!("files: {}, {size}\n", found.segments.len());
    text += &last_round(found);
    text += &damage(found);
    text
}

fn checked(found: &Inspection, dir: &Path) -> String {
    if found.segments.is_empty() {
        return format!("{}: empty\n", dir.display());
    }
    let verdict = match found.damaged() {
        0 => "no damage".into(),
        1 => "1 damaged place".into(),
        places => format!("{places} damaged places"),
    };
    let dir = dir.display();
    format!("{}{}{dir}: {verdict}\n", last_round(found), damage(found))
}

fn last_round(found: &Inspection) -> String {
    let Some(round) = found.last_round else {
        return "last complete round: none\n".into();
    };
    format!(
        "last complete round: {} peers in {} groups, from {} to {}\n",
        round.peers,
        round.groups,
        moment(round.began_ms),
        moment(round.ended_ms)
    )
}

fn damage(found: &Inspection) -> String {
    let mut text = String::new();
    for segment in &found.segments {
        let file = &segment.file;
        if let Some(why) = &segment.unreadable {
            text += &format!("{file}: {why}\n");
        }
        for offset in &segment.damage {
            text += &format!("{file}: damaged at byte {offset}\n");
        }
        if let Some(offset) = segment.tail {
            text += &format!("{file}: ends within a block, at byte {offset}, which is no damage\n");
        }
    }
    for pair in found.segments.windows(2) {
        if let [before, after] = pair
            && before.number + 1 < after.number
        {
            text += &format!("files between {} and {} are missing\n", before.file, after.file);
        }
    }
    let first = found.round_segment;
    if first != 0 && !found.segments.iter().any(|segment| segment.number == first) {
        text += "the file in which the last complete round begins is missing\n";
    }
    text
}

/// Lists the rounds that begin and end in a segment.
fn rounds(segment: &SegmentInfo) -> String {
    let ended = segment.ended.iter().map(|round| format!("{round} ends"));
    let begun = segment.begun.iter().map(|round| format!("{round} begins"));
    ended.chain(begun).collect::<Vec<_>>().join(", ")
}

fn moment(unix_ms: u64) -> String {
    if unix_ms == 0 { "-".into() } else { date(unix_ms / 1000) }
}
