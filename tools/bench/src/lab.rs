//! Code that measurements of trackers share: definitions, programs, processors, and how trackers and load testers are
//! started, observed and stopped.
//!
//! Trackers and loads are defined in a folder of TOML files. No other module names a tracker, except
//! for tidegate in the benchmarks of tidegate alone.

mod api;
mod certificate;
mod cores;
mod definition;
mod machine;
mod noise;
mod program;
mod template;
mod tester;
mod tracker;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use harness::Directory;

pub use api::Api;
pub(crate) use api::TOKEN_VARIABLES;
pub(crate) use certificate::Certificate;
pub(crate) use cores::{Split, default_counts, on};
pub(crate) use definition::{Definitions, Fill, Load, Loads, Protocol};
pub(crate) use machine::{commit, machine, now};
pub(crate) use noise::{NOISE_MAX, NoiseMonitor, children_cpu_s};
pub(crate) use program::Subject;
pub(crate) use tester::{LoadRun, figures};
pub(crate) use tracker::{Place, RunningTracker, free_address};

#[cfg(test)]
pub(crate) use tester::tests::FIGURES;

use cores::Processor;

/// Where definitions and programs are.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabArgs {
    /// Path of a tracker's program; repeatable.
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    pub(crate) program: Vec<(String, PathBuf)>,
    /// Directory into which other trackers have been installed.
    #[arg(long, value_name = "DIR", default_value = "target/rivals")]
    pub(crate) rivals: PathBuf,
    /// Directory with the definitions of trackers and loads.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    pub(crate) definitions: PathBuf,
}

/// A place to measure trackers.
pub(crate) struct Lab {
    pub(crate) definitions: Definitions,
    /// This program, which is also the load tester. Trackers are looked for beside it first.
    own: PathBuf,
    /// The folder of definitions.
    pub(crate) bench: PathBuf,
    rivals: PathBuf,
    /// Paths from the command line, by name.
    given: BTreeMap<String, PathBuf>,
    processors: Vec<Processor>,
    /// The files of runs.
    pub(crate) folder: Directory,
    certificate: Certificate,
}

impl Lab {
    /// Reads the definitions and creates the folder.
    pub(crate) fn new(arguments: &LabArgs) -> Result<Self> {
        let own = std::env::current_exe().context("cannot determine this program's path")?;
        Self::with_tester(arguments, own)
    }

    /// The same with another load tester: tests have none.
    pub(crate) fn with_tester(arguments: &LabArgs, own: PathBuf) -> Result<Self> {
        let LabArgs { program, rivals, definitions } = arguments;
        let absolute =
            |path: &Path| std::path::absolute(path).context("there is no current folder");
        let all = Definitions::read(definitions)?;
        let processors = cores::allowed()?;
        let folder = Directory::new()?;
        // Some trackers read their files as another user.
        fs::set_permissions(folder.root(), Permissions::from_mode(0o755))?;
        let certificate = Certificate::make(folder.root())?;
        Ok(Self {
            definitions: all,
            own,
            bench: absolute(definitions)?,
            rivals: absolute(rivals)?,
            given: program.iter().cloned().collect(),
            processors,
            folder,
            certificate,
        })
    }

    pub(crate) fn loads(&self, protocol: Protocol) -> Result<Loads> {
        Loads::read(&self.bench, protocol)
    }

    /// Adds the paths of more programs.
    pub(crate) fn give(&mut self, programs: &[(String, PathBuf)]) {
        self.given.extend(programs.iter().cloned());
    }

    /// Assigns processors to a tracker with this number of cores, and to the load.
    pub(crate) fn split(&self, count: usize) -> Result<Split> {
        let there_are = self.processors.len();
        Split::of(&self.processors, count).with_context(|| {
            format!("{count} cores leave no processor for the load; this machine has {there_are}")
        })
    }

    /// Returns the numbers of tracker cores to measure unless others are asked for.
    pub(crate) fn default_counts(&self) -> Vec<usize> {
        default_counts(&self.processors)
    }
}

/// Parses an argument such as `chihaya=/opt/chihaya`.
pub(crate) fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
    Ok((name.to_owned(), path.into()))
}
