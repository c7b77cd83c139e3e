//! The trackers of a comparison: those whose programs are installed, with their versions.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::definition::{Definitions, Protocol, Tracker};
use crate::template::TemplateVars;

/// Where to look for programs.
#[derive(Clone, Debug)]
pub(crate) struct ProgramPaths {
    /// The `tidegate` program, measured and used as load tester.
    pub(crate) own: PathBuf,
    pub(crate) bench: PathBuf,
    pub(crate) rivals: PathBuf,
    /// Paths from `--program`, by tracker name.
    pub(crate) given: BTreeMap<String, PathBuf>,
}

/// An installed program.
#[derive(Clone, Debug)]
pub(crate) struct InstalledProgram {
    pub(crate) definition: Tracker,
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

/// A tracker that can be measured over a protocol.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) tracker: InstalledProgram,
    /// The TLS front, if the tracker needs one.
    pub(crate) front: Option<InstalledProgram>,
}

impl Subject {
    /// Returns the name for tables.
    pub(crate) fn name(&self) -> String {
        match &self.front {
            Some(front) => format!("{} + {}", self.tracker.definition.name, front.definition.name),
            None => self.tracker.definition.name.clone(),
        }
    }

    /// Returns the versions of all its programs.
    pub(crate) fn version(&self) -> String {
        let parts = std::iter::once(&self.tracker).chain(&self.front);
        parts.map(|part| part.version.as_str()).collect::<Vec<_>>().join(" + ")
    }
}

impl ProgramPaths {
    /// Returns all trackers that can be measured over `protocol` with the named load, in the order
    /// of their
    /// definitions, and a sentence for each that cannot. `only` selects trackers; empty selects
    /// all.
    pub(crate) fn subjects(
        &self,
        definitions: &Definitions,
        (protocol, load): (Protocol, &str),
        only: &[String],
    ) -> Result<(Vec<Subject>, Vec<String>)> {
        let known = |name: &String| definitions.trackers.iter().any(|one| one.name == *name);
        if let Some(name) = only.iter().chain(self.given.keys()).find(|name| !known(name)) {
            let names: Vec<_> = definitions.trackers.iter().map(|one| &*one.name).collect();
            bail!("unknown tracker {name}: expected one of {}", names.join(", "));
        }
        let wanted = |one: &&Tracker| only.is_empty() || only.contains(&one.name);
        let (mut here, mut missing) = (Vec::new(), Vec::new());
        for tracker in definitions.trackers.iter().filter(wanted) {
            match self.subject(definitions, tracker, protocol) {
                Ok(Some(_)) if tracker.not_for.iter().any(|name| name == load) => {
                    missing.push(format!("{} cannot handle the load {load}", tracker.name));
                }
                Ok(Some(subject)) => here.push(subject),
                Ok(None) if only.is_empty() => {}
                Ok(None) => missing.push(format!("{} does not speak {protocol}", tracker.name)),
                Err(error) => missing.push(format!("skipping {}: {error:#}", tracker.name)),
            }
        }
        Ok((here, missing))
    }

    /// Returns a tracker, with a front if it needs one; `None` if it does not speak the protocol.
    fn subject(
        &self,
        definitions: &Definitions,
        tracker: &Tracker,
        protocol: Protocol,
    ) -> Result<Option<Subject>> {
        let speaks = |protocol: Protocol| tracker.speaks.contains(&protocol);
        let front = match &definitions.front {
            _ if speaks(protocol) => None,
            Some(front) if speaks(protocol.without_tls()) => Some(self.find(front)?),
            _ => return Ok(None),
        };
        Ok(Some(Subject { tracker: self.find(tracker)?, front }))
    }

    fn find(&self, definition: &Tracker) -> Result<InstalledProgram> {
        let program = self.program(definition)?;
        let words = self.words().with_path("program", &program);
        for need in &definition.needs {
            let need = words.fill(need)?;
            ensure!(Path::new(&need).exists(), "{need} does not exist");
        }
        let version = match &*words.fill_all(&definition.version)? {
            [] => "of unknown version".to_owned(),
            command => ask_version(command)?,
        };
        Ok(InstalledProgram { definition: definition.clone(), program, version })
    }

    /// Returns the template variables that do not depend on a run.
    pub(crate) fn words(&self) -> TemplateVars {
        TemplateVars::default().with_path("rivals", &self.rivals).with_path("bench", &self.bench)
    }

    fn program(&self, definition: &Tracker) -> Result<PathBuf> {
        let name = &definition.name;
        if let Some(path) = self.given.get(name) {
            ensure!(path.is_file(), "{} is not a file", path.display());
            return Ok(path.clone());
        }
        match definition.program.as_deref() {
            Some("tidegate") => Ok(self.own.clone()),
            Some(program) => self.look_for(program).with_context(|| {
                let how = match &*definition.install.by_path {
                    "" => "cargo xtask rivals installs it, or".to_owned(),
                    leads_to => format!("it is {leads_to};"),
                };
                format!(
                    "cannot find the program {program}: {how} name it with --program {name}=PATH"
                )
            }),
            None => bail!("--program {name}=PATH must name {}", definition.install.by_path),
        }
    }

    /// Looks for a program without an explicit path.
    fn look_for(&self, program: &str) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        // Folders for servers are not on every user's path.
        let servers = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
        let folders = [self.rivals.join("bin"), self.rivals.clone()].into_iter();
        let mut folders = folders.chain(env::split_paths(&path)).chain(servers);
        folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
    }
}

/// Runs a version command and returns the version: the first word of digits and dots.
fn ask_version(command: &[String]) -> Result<String> {
    let [program, arguments @ ..] = command else { bail!("`version` is empty") };
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program} to get its version"))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(version_in(&String::from_utf8_lossy(&text)))
}

fn version_in(text: &str) -> String {
    let trim = |word: &str| word.trim_matches([',', ':', ';', '(', ')', '"']).to_owned();
    let is_version = |word: &String| {
        let figures = word.strip_prefix('v').unwrap_or(word);
        figures.starts_with(|c: char| c.is_ascii_digit()) && figures.contains('.')
    };
    let found = text.split_whitespace().map(trim).find(is_version);
    found.unwrap_or_else(|| "of unknown version".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_in_output() {
        assert_eq!(version_in("0.9.0\n"), "0.9.0");
        assert_eq!(version_in("tidegate 0.1.0\n"), "0.1.0");
        assert_eq!(version_in("torrust-tracker v3.0.0:\n    torrust-tracker"), "v3.0.0");
        assert_eq!(version_in("0.0~git20210823.110868e-3"), "0.0~git20210823.110868e-3");
        assert_eq!(version_in("error: unknown flag\n"), "of unknown version");
    }

    fn places() -> ProgramPaths {
        ProgramPaths {
            own: "/proc/self/exe".into(),
            bench: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench"),
            rivals: "/nowhere".into(),
            given: BTreeMap::new(),
        }
    }

    fn definitions(text: &str) -> Definitions {
        let trackers = toml::from_str::<BTreeMap<String, Vec<Tracker>>>(text).unwrap();
        let front = trackers.get("front").map(|front| front[0].clone());
        let trackers = trackers["tracker"].clone();
        Definitions { trackers, front, loads: Vec::new(), fills: Vec::new() }
    }

    const TEXT: &str = "
        [[tracker]]
        name = 'plain'
        speaks = ['http', 'ws']
        program = 'sh'
        not_for = ['odd']
        start = ['sh']
        version = ['echo', '1.2']
        [[tracker]]
        name = 'elsewhere'
        speaks = ['https']
        start = ['{program}']
        install.by_path = 'its program'
        [[tracker]]
        name = 'needy'
        speaks = ['http']
        program = 'sh'
        needs = ['{rivals}/x']
        start = ['sh']
        [[front]]
        name = 'tls'
        program = 'sh'
        start = ['sh']
        version = ['echo', '3.4']";

    fn subjects(
        places: &ProgramPaths,
        protocol: Protocol,
        only: &[&str],
    ) -> (Vec<Subject>, Vec<String>) {
        let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
        places.subjects(&definitions(TEXT), (protocol, "usual"), &only).unwrap()
    }

    #[test]
    fn trackers_without_tls_get_a_front() {
        let (here, missing) = subjects(&places(), Protocol::Https, &[]);
        assert_eq!(here.iter().map(Subject::name).collect::<Vec<_>>(), ["plain + tls"]);
        assert_eq!(here[0].version(), "1.2 + 3.4");
        assert_eq!(missing.len(), 2);
        assert!(missing[0].contains("--program elsewhere=PATH"), "{missing:?}");
        assert!(missing[1].contains("/nowhere/x"), "{missing:?}");
        let (here, missing) =
            places().subjects(&definitions(TEXT), (Protocol::Ws, "odd"), &[]).unwrap();
        assert!(here.is_empty() && missing == ["plain cannot handle the load odd"], "{missing:?}");
        let (here, _) = subjects(&places(), Protocol::Ws, &[]);
        assert_eq!(here.iter().map(Subject::name).collect::<Vec<_>>(), ["plain"]);
    }

    #[test]
    fn accepts_paths_and_rejects_unknown_names() {
        let mut places = places();
        places.given.insert("elsewhere".into(), "/bin/sh".into());
        let (here, _) = subjects(&places, Protocol::Https, &["elsewhere"]);
        assert_eq!(here[0].tracker.program, Path::new("/bin/sh"));
        assert_eq!(here[0].version(), "of unknown version");
        assert!(here[0].front.is_none());
        let (here, missing) = subjects(&places, Protocol::Udp, &["plain"]);
        assert!(here.is_empty() && missing == ["plain does not speak udp"]);
        let error = places.subjects(&definitions(TEXT), (Protocol::Udp, "usual"), &["pain".into()]);
        assert!(error.unwrap_err().to_string().contains("plain, elsewhere"));
        places.given.insert("elsewhere".into(), "/no/file".into());
        let (_, missing) = subjects(&places, Protocol::Https, &["elsewhere"]);
        assert!(missing[0].contains("/no/file is not a file"), "{missing:?}");
    }
}
