//! The configuration files of trackers that run on this machine, by their command lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::{Command, CommandLine};

/// Where Linux shows processes. Elsewhere no tracker is found.
const PROCESSES: &str = "/proc";
const PROGRAM: &str = env!("CARGO_PKG_NAME");

/// Returns the configuration files of the running trackers, each with the id of a process that has read it.
pub(crate) fn files() -> BTreeMap<PathBuf, u32> {
    files_in(Path::new(PROCESSES))
}

fn files_in(processes: &Path) -> BTreeMap<PathBuf, u32> {
    let entries = fs::read_dir(processes).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut files = BTreeMap::new();
    for id in ids {
        let process = processes.join(id.to_string());
        if let Some(file) = file_of(&process) {
            // A tracker and its launcher have the same command line.
            let first = files.entry(file).or_insert(id);
            *first = id.min(*first);
        }
    }
    files
}

/// Returns the configuration file of a process, if it is a tracker with one.
fn file_of(process: &Path) -> Option<PathBuf> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let words: Vec<_> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
    let words: Vec<&str> =
        words.into_iter().map(|word| std::str::from_utf8(word).ok()).collect::<Option<_>>()?;
    let program = Path::new(words.first()?);
    if program.file_name()? != PROGRAM {
        return None;
    }
    let command_line = CommandLine::try_parse_from(words).ok()?;
    if !matches!(command_line.command, None | Some(Command::Serve(_))) {
        return None;
    }
    let file = command_line.config?;
    if file.is_absolute() {
        return Some(file);
    }
    // Of other users' processes, only root may see the directory.
    fs::read_link(process.join("cwd")).ok().map(|dir| dir.join(file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn finds_trackers_by_their_command_lines() {
        let processes = harness::Directory::new().unwrap();
        for (id, words) in [
            (7, "/usr/bin/tidegate serve --config /etc/tidegate/tidegate.toml"),
            (8, "/usr/bin/tidegate serve --config /etc/tidegate/tidegate.toml"),
            (9, "tidegate --config=own.toml"),
            (10, "tidegate config check --config /other.toml"),
            (11, "tidegate serve --memory"),
            (12, "tidegated serve --config /other.toml"),
            (13, "tidegate-bench serve --config /other.toml"),
        ] {
            fs::create_dir(processes.path(&id.to_string())).unwrap();
            let line = format!("{}\0", words.replace(' ', "\0"));
            processes.write(&format!("{id}/cmdline"), &line).unwrap();
        }
        symlink("/srv/u", processes.path("9/cwd")).unwrap();
        fs::create_dir(processes.path("self")).unwrap();
        let found: Vec<_> = files_in(processes.root()).into_iter().collect();
        let expected = [("/etc/tidegate/tidegate.toml", 7), ("/srv/u/own.toml", 9)];
        assert_eq!(found, expected.map(|(file, id)| (PathBuf::from(file), id)));
        assert!(files_in(&processes.path("absent")).is_empty());
    }
}
