//! Definitions of trackers and loads: `trackers.toml` and `PROTOCOL.toml` of a folder,
//! `bench/` in the repository. The comments at the top of those files explain each key.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A tracker protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// UDP (BEP 15).
    Udp,
    /// HTTP (BEP 3).
    Http,
    /// HTTP over TLS.
    Https,
    /// WebTorrent over a WebSocket.
    Ws,
    /// WebTorrent over a WebSocket with TLS.
    Wss,
}

impl Protocol {
    /// Returns the URL scheme.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Returns the load tester's name for the protocol, which also names its definitions: TLS is in
    /// the URL.
    pub(crate) fn without_tls(self) -> Self {
        match self {
            Self::Https => Self::Http,
            Self::Wss => Self::Ws,
            plain => plain,
        }
    }

    /// Returns whether the protocol runs over TLS.
    pub(crate) fn is_secure(self) -> bool {
        self != self.without_tls()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A program to start: a tracker or a TLS front.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) speaks: Vec<Protocol>,
    /// Program name; `None` if only `--program` can name it.
    pub(crate) program: Option<String>,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) version: Vec<String>,
    #[serde(default)]
    pub(crate) variables: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) configuration: String,
    pub(crate) configuration_tls: Option<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) start: Vec<String>,
    /// True if it serves only listed torrents.
    #[serde(default)]
    pub(crate) allow_list: bool,
    /// True if it is measured only behind a TLS front, though it speaks TLS.
    #[serde(default)]
    pub(crate) behind_front: bool,
    /// True if it is measured only if the command line names it.
    #[serde(default)]
    pub(crate) by_name: bool,
    /// Names of loads that it cannot handle.
    #[serde(default)]
    pub(crate) not_for: Vec<String>,
    #[serde(default)]
    pub(crate) limitations: String,
    /// A command that installs it, or what `--program` must name.
    #[serde(default)]
    pub(crate) install: String,
}

/// A tracker that differs from another one in few keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Variant {
    of: String,
    name: String,
    variables: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    behind_front: bool,
    by_name: bool,
    limitations: Option<String>,
}

/// A load: arguments of `tidegate-bench load PROTOCOL URL`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) name: String,
    /// Description for the report: a sentence.
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Requests per second at which latencies are measured.
    #[serde(default)]
    pub(crate) rates: Vec<u32>,
}

/// A known number of peers, to measure the memory of each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fill {
    pub(crate) name: String,
    /// Number of peers; each announce draws one of them at random unless `all` is set.
    pub(crate) peers: u64,
    /// True if each peer announces.
    #[serde(default)]
    pub(crate) all: bool,
    /// Duration of the load in seconds.
    pub(crate) seconds: u32,
    pub(crate) words: Vec<String>,
}

/// All trackers. The first one is tidegate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definitions {
    #[serde(rename = "tracker")]
    pub(crate) trackers: Vec<Definition>,
    #[serde(default, rename = "variant")]
    variants: Vec<Variant>,
    pub(crate) front: Option<Definition>,
}

/// The loads of a protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Loads {
    #[serde(rename = "load")]
    pub(crate) loads: Vec<Load>,
    #[serde(default, rename = "fill")]
    pub(crate) fills: Vec<Fill>,
}

impl Definitions {
    /// Reads `trackers.toml`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let (path, mut all) = read::<Self>(folder, "trackers.toml")?;
        for variant in std::mem::take(&mut all.variants) {
            all.add_variant(variant).context(path.clone())?;
        }
        for one in &all.trackers {
            one.check().with_context(|| format!("{path}: {}", one.name))?;
        }
        ensure!(!all.trackers.is_empty(), "{path}: expected at least one [[tracker]]");
        Ok(all)
    }

    /// Adds a tracker behind the one that it is a variant of.
    fn add_variant(&mut self, variant: Variant) -> Result<()> {
        let Variant { of, name, variables, environment, .. } = variant;
        ensure!(
            self.trackers.iter().all(|one| one.name != name),
            "{name}: a tracker has this name"
        );
        let at = self.trackers.iter().position(|one| one.name == of);
        let at = at.with_context(|| format!("{name}: no tracker {of}"))?;
        let mut one = self.trackers[at].clone();
        one.name = name;
        one.variables.extend(variables);
        one.environment.extend(environment);
        one.behind_front |= variant.behind_front;
        one.by_name |= variant.by_name;
        one.limitations = variant.limitations.unwrap_or(one.limitations);
        self.trackers.insert(at + 1, one);
        Ok(())
    }

    /// Adds other builds of the first tracker behind it. Returns the names of the trackers to
    /// measure: `only`, or all builds if there are several and `only` is empty.
    pub(crate) fn add_builds(
        &mut self,
        builds: &[(String, PathBuf)],
        only: &[String],
    ) -> Result<Vec<String>> {
        let first = self.trackers.first().context("there is no tracker")?.name.clone();
        for (name, _) in builds.iter().rev() {
            let (of, name) = (first.clone(), name.clone());
            self.add_variant(Variant { of, name, ..Variant::default() }).context("--beside")?;
        }
        let builds = builds.iter().map(|(name, _)| name.clone());
        Ok(match only {
            [] if builds.len() > 0 => std::iter::once(first).chain(builds).collect(),
            only => only.iter().cloned().chain(builds).collect(),
        })
    }
}

impl Loads {
    /// Reads `PROTOCOL.toml`.
    pub(crate) fn read(folder: &Path, protocol: Protocol) -> Result<Self> {
        let (path, all) = read::<Self>(folder, &format!("{}.toml", protocol.without_tls()))?;
        ensure!(!all.loads.is_empty(), "{path}: expected at least one [[load]]");
        Ok(all)
    }

    pub(crate) fn find(&self, name: Option<&str>) -> Result<&Load> {
        let found = self.loads.iter().find(|load| name.is_none_or(|name| load.name == name));
        found.with_context(|| {
            let names: Vec<_> = self.loads.iter().map(|load| load.name.as_str()).collect();
            format!("unknown load {}: expected one of {}", name.unwrap_or(""), names.join(", "))
        })
    }
}

impl Definition {
    fn check(&self) -> Result<()> {
        ensure!(!self.start.is_empty(), "`start` is empty");
        ensure!(!self.speaks.is_empty(), "`speaks` is empty");
        ensure!(
            self.program.is_some() || !self.install.is_empty(),
            "expected `program`, or `install` with what to name"
        );
        Ok(())
    }
}

/// Reads a file. Returns its content, and its path for error messages.
fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<(String, T)> {
    let path = folder.join(name).display().to_string();
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {path}: --definitions names the folder, which is bench/ in the repository"
        )
    })?;
    let content = parse(&path, &text)?;
    Ok((path, content))
}

fn parse<T: DeserializeOwned>(path: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        anyhow!("{path}:{line}: {}", error.message().lines().collect::<Vec<_>>().join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trackers(text: &str) -> Result<Definitions> {
        parse("t.toml", text)
    }

    #[test]
    fn names_the_line_of_an_error() {
        for (text, line, what) in [
            ("[[tracker]]\nname = \"a\"\nstart = [\"a\"]\nstrat = 1\n", 4, "strat"),
            ("[[tracker]]\nname = 7\n", 2, "string"),
            ("[[tracker]]\nstart = [\"a\"\n\n", 2, "unclosed"),
            ("[[tracker]]\nname = \"a\"\nspeaks = [\"tcp\"]\n", 3, "tcp"),
        ] {
            let error = trackers(text).err().unwrap().to_string();
            assert!(error.starts_with(&format!("t.toml:{line}: ")), "{text}: {error}");
            assert!(error.contains(what) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn the_repository_s_definitions_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
        let definitions = Definitions::read(&folder).unwrap();
        assert!(definitions.front.is_some());
        for &protocol in Protocol::value_variants() {
            let able = |tracker: &&Definition| tracker.speaks.contains(&protocol);
            assert!(definitions.trackers.iter().filter(able).count() >= 2, "{protocol}");
            let loads = Loads::read(&folder, protocol).unwrap();
            assert_eq!(loads.find(None).unwrap().name, loads.loads[0].name);
            assert!(loads.find(Some("no such")).is_err());
        }
        let error = Definitions::read(Path::new("/nowhere")).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/trackers.toml"), "{error:#}");
    }

    #[test]
    fn variants_stand_behind_what_they_are_variants_of() {
        let text = "[[tracker]]\nname = 'a'\nspeaks = ['udp']\nstart = ['a']\nvariables = { x = '1', y = '1' }
                    [[tracker]]\nname = 'b'\nspeaks = ['udp']\nstart = ['b']
                    [[variant]]\nof = 'a'\nname = 'a2'\nvariables = { x = '2' }\nenvironment = { E = '3' }\nby_name = true\n";
        let mut all = trackers(text).unwrap();
        let variant = all.variants.remove(0);
        all.add_variant(variant.clone()).unwrap();
        let names =
            |all: &Definitions| all.trackers.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["a", "a2", "b"]);
        assert_eq!(all.trackers[1].variables.values().collect::<Vec<_>>(), ["2", "1"]);
        assert_eq!(all.trackers[1].environment["E"], "3");
        assert_eq!(
            all.trackers.iter().map(|one| one.by_name).collect::<Vec<_>>(),
            [false, true, false]
        );
        assert!(all.add_variant(variant).unwrap_err().to_string().contains("has this name"));
        let builds = [("old".to_owned(), PathBuf::from("/x"))];
        assert_eq!(all.add_builds(&builds, &[]).unwrap(), ["a", "old"]);
        assert_eq!(names(&all), ["a", "old", "a2", "b"]);
    }
}
