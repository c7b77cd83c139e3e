//! The trackers whose programs are installed, with their versions.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::Lab;
use super::definition::{Definition, Protocol};
use super::template::TemplateVars;

/// An installed program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) definition: Definition,
    pub(crate) path: PathBuf,
    pub(crate) version: String,
}

/// A tracker that can be measured over a protocol.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) tracker: Program,
    /// The TLS front, if the tracker needs one.
    pub(crate) front: Option<Program>,
}

impl Subject {
    /// Returns the name for tables.
    pub(crate) fn name(&self) -> String {
        match &self.front {
            Some(front) => format!("{} + {}", self.tracker.definition.name, front.definition.name),
            None => self.tracker.definition.name.clone(),
        }
    }

    pub(crate) fn version(&self) -> String {
        let parts = std::iter::once(&self.tracker).chain(&self.front);
        parts.map(|part| part.version.as_str()).collect::<Vec<_>>().join(" + ")
    }
}

impl Lab {
    /// Returns tidegate: the first tracker.
    pub(crate) fn tidegate(&self) -> Result<Subject> {
        let definition = self.definitions.trackers.first().context("there is no tracker")?;
        Ok(Subject { tracker: self.find(definition)?, front: None })
    }

    /// Returns all trackers that can be measured over `protocol` with the named load, in the order
    /// of their definitions, and a sentence for each that cannot. `only` selects trackers; empty
    /// selects all.
    pub(crate) fn subjects(
        &self,
        (protocol, load): (Protocol, &str),
        only: &[String],
    ) -> Result<(Vec<Subject>, Vec<String>)> {
        let trackers = &self.definitions.trackers;
        let is_known = |name: &String| trackers.iter().any(|one| one.name == *name);
        if let Some(name) = only.iter().chain(self.given.keys()).find(|name| !is_known(name)) {
            let names: Vec<_> = trackers.iter().map(|one| &*one.name).collect();
            bail!("unknown tracker {name}: expected one of {}", names.join(", "));
        }
        let wanted = |one: &&Definition| match only {
            [] => !one.by_name,
            only => only.contains(&one.name),
        };
        let (mut here, mut missing) = (Vec::new(), Vec::new());
        for tracker in trackers.iter().filter(wanted) {
            match self.subject(tracker, protocol) {
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
    fn subject(&self, tracker: &Definition, protocol: Protocol) -> Result<Option<Subject>> {
        let speaks = |protocol: Protocol| tracker.speaks.contains(&protocol);
        let behind = tracker.behind_front;
        let front = match &self.definitions.front {
            _ if speaks(protocol) && !behind => None,
            Some(front) if protocol.is_secure() && speaks(protocol.without_tls()) => {
                Some(self.find(front)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(Subject { tracker: self.find(tracker)?, front }))
    }

    /// Returns an installed program.
    pub(crate) fn find(&self, definition: &Definition) -> Result<Program> {
        let path = self.path(definition)?;
        let mut vars = self.vars().with("program", path.display());
        for (name, value) in &definition.variables {
            vars = vars.with(name, value);
        }
        for need in &definition.needs {
            let need = vars.fill(need)?;
            ensure!(Path::new(&need).exists(), "{need} does not exist");
        }
        let version = match &*vars.fill_all(&definition.version)? {
            [] => "of unknown version".to_owned(),
            command => version_in(&ask(command)?),
        };
        Ok(Program { definition: definition.clone(), path, version })
    }

    /// Returns the template variables that do not depend on a run.
    pub(crate) fn vars(&self) -> TemplateVars {
        let vars = TemplateVars::default().with("rivals", self.rivals.display());
        vars.with("bench", self.bench.display())
    }

    fn path(&self, definition: &Definition) -> Result<PathBuf> {
        let name = &definition.name;
        if let Some(path) = self.given.get(name) {
            ensure!(path.is_file(), "{} is not a file", path.display());
            return std::path::absolute(path).context("there is no current folder");
        }
        let install = &definition.install;
        let Some(program) = definition.program.as_deref() else {
            bail!("--program {name}=PATH must name {install}")
        };
        self.look_for(program).with_context(|| {
            format!("cannot find the program {program} ({install}): --program {name}=PATH names it")
        })
    }

    fn look_for(&self, program: &str) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        // Folders for servers are not on every user's path.
        let servers = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
        let beside = self.own.parent().map(Path::to_owned);
        let folders = beside.into_iter().chain([self.rivals.join("bin"), self.rivals.clone()]);
        let mut folders = folders.chain(env::split_paths(&path)).chain(servers);
        folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
    }
}

/// Returns the output of a command.
fn ask(command: &[String]) -> Result<String> {
    let [program, arguments @ ..] = command else { bail!("an empty command") };
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Returns the version in a command's output: the first word of digits and dots.
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
    use crate::lab::LabArgs;

    #[test]
    fn finds_versions_in_output() {
        assert_eq!(version_in("0.9.0\n"), "0.9.0");
        assert_eq!(version_in("tidegate 0.1.0\n"), "0.1.0");
        assert_eq!(version_in("torrust-tracker v3.0.0:\n    torrust-tracker"), "v3.0.0");
        assert_eq!(version_in("0.0~git20210823.110868e-3"), "0.0~git20210823.110868e-3");
        assert_eq!(version_in("error: unknown flag\n"), "of unknown version");
    }

    /// A lab with these definitions instead of the repository's.
    fn lab(text: &str) -> Lab {
        let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
        let arguments = LabArgs { program: Vec::new(), rivals: "/nowhere".into(), definitions };
        let mut lab = Lab::new(&arguments).unwrap();
        lab.definitions = toml::from_str(text).unwrap();
        lab
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
        install = 'its program'
        [[tracker]]
        name = 'needy'
        speaks = ['http']
        program = 'sh'
        needs = ['{rivals}/x']
        start = ['sh']
        [front]
        name = 'tls'
        program = 'sh'
        start = ['sh']
        version = ['echo', '3.4']";

    fn subjects(lab: &Lab, protocol: Protocol, only: &[&str]) -> (Vec<Subject>, Vec<String>) {
        let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
        lab.subjects((protocol, "usual"), &only).unwrap()
    }

    fn names(subjects: &[Subject]) -> Vec<String> {
        subjects.iter().map(Subject::name).collect()
    }

    #[test]
    fn trackers_without_tls_get_a_front() {
        let mut lab = lab(TEXT);
        let (here, missing) = subjects(&lab, Protocol::Https, &[]);
        assert_eq!(names(&here), ["plain + tls"]);
        assert_eq!(here[0].version(), "1.2 + 3.4");
        assert_eq!(missing.len(), 2);
        assert!(missing[0].contains("--program elsewhere=PATH"), "{missing:?}");
        assert!(missing[1].contains("/nowhere/x"), "{missing:?}");
        let (here, missing) = lab.subjects((Protocol::Ws, "odd"), &[]).unwrap();
        assert!(here.is_empty() && missing == ["plain cannot handle the load odd"], "{missing:?}");
        assert_eq!(names(&subjects(&lab, Protocol::Ws, &[]).0), ["plain"]);
        lab.definitions.trackers[0].behind_front = true;
        assert_eq!(names(&subjects(&lab, Protocol::Https, &[]).0), ["plain + tls"]);
        assert!(subjects(&lab, Protocol::Ws, &[]).0.is_empty());
    }

    #[test]
    fn accepts_paths_and_rejects_unknown_names() {
        let mut lab = lab(TEXT);
        lab.give(&[("elsewhere".into(), "/bin/sh".into())]);
        let (here, _) = subjects(&lab, Protocol::Https, &["elsewhere"]);
        assert_eq!(here[0].tracker.path, Path::new("/bin/sh"));
        assert_eq!(here[0].version(), "of unknown version");
        assert!(here[0].front.is_none());
        let (here, missing) = subjects(&lab, Protocol::Udp, &["plain"]);
        assert!(here.is_empty() && missing == ["plain does not speak udp"]);
        let error = lab.subjects((Protocol::Udp, "usual"), &["pain".into()]);
        assert!(error.unwrap_err().to_string().contains("plain, elsewhere"));
        lab.definitions.trackers[0].by_name = true;
        assert!(subjects(&lab, Protocol::Http, &[]).0.is_empty());
        assert_eq!(names(&subjects(&lab, Protocol::Http, &["plain"]).0), ["plain"]);
        lab.give(&[("elsewhere".into(), "/no/file".into())]);
        let (_, missing) = subjects(&lab, Protocol::Https, &["elsewhere"]);
        assert!(missing[0].contains("/no/file is not a file"), "{missing:?}");
    }
}
