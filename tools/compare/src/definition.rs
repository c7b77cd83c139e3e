//! What there is to measure, and under which load: `trackers.toml` and `PROTOCOL.toml` of a folder,
//! which is `bench/` in the repository. The heads of those files say what each key means.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How a tracker is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3, without TLS.
    Http,
    /// BEP 3 over TLS.
    Https,
    /// WebTorrent, without TLS.
    Ws,
    /// WebTorrent over TLS.
    Wss,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Udp, Self::Http, Self::Https, Self::Ws, Self::Wss];

    /// As in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// The load tester's name for it, which is the definition's as well: TLS is in the URL.
    pub fn without_tls(self) -> Self {
        match self {
            Self::Https => Self::Http,
            Self::Wss => Self::Ws,
            plain => plain,
        }
    }

    /// Whether it is over TLS.
    pub fn is_secure(self) -> bool {
        self != self.without_tls()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| anyhow!("{text} is no protocol: udp, http, https, ws, wss"))
    }
}

/// A program that is started to be measured, or stands before one that is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tracker {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) speaks: Vec<Protocol>,
    /// Nothing: only by a path that the user gives.
    pub(crate) program: Option<String>,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) version: Vec<String>,
    #[serde(default)]
    pub(crate) configuration: String,
    pub(crate) configuration_tls: Option<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) start: Vec<String>,
    /// It serves only torrents that it is told.
    #[serde(default)]
    pub(crate) allow_list: bool,
    /// Names of loads that it cannot take.
    #[serde(default)]
    pub(crate) not_for: Vec<String>,
    #[serde(default)]
    pub(crate) limitations: String,
    #[serde(default)]
    pub(crate) install: Install,
}

/// Words for those that install packages. `cargo xtask rivals` reads them, too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Install {
    #[serde(default)]
    pub(crate) cargo: Vec<String>,
    #[serde(default)]
    pub(crate) npm: Vec<String>,
    #[serde(default)]
    pub(crate) debian: Vec<String>,
    #[serde(default)]
    pub(crate) pypi: Vec<String>,
    /// What the path leads to that the user gives.
    #[serde(default)]
    pub(crate) by_path: String,
}

/// What trackers are put under: words of `tidegate load PROTOCOL URL`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) name: String,
    /// What it is, in a sentence.
    pub(crate) description: String,
    pub(crate) words: Vec<String>,
    /// Words that make it keep to a `{rate}` of requests a second, for latencies.
    #[serde(default)]
    pub(crate) paced: Vec<String>,
}

/// A known number of peers, for what each of them takes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fill {
    pub(crate) name: String,
    /// How many there are, of which the load draws one for every announce.
    pub(crate) peers: u64,
    /// It does not: each of them announces.
    #[serde(default)]
    pub(crate) all: bool,
    /// How long the load goes on.
    pub(crate) seconds: u32,
    pub(crate) words: Vec<String>,
}

/// All of a folder that one protocol needs.
#[derive(Clone, Debug)]
pub(crate) struct Definitions {
    pub(crate) trackers: Vec<Tracker>,
    pub(crate) front: Option<Tracker>,
    pub(crate) loads: Vec<Load>,
    pub(crate) fills: Vec<Fill>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trackers {
    tracker: Vec<Tracker>,
    front: Option<Tracker>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Loads {
    load: Vec<Load>,
    #[serde(default)]
    fill: Vec<Fill>,
}

impl Definitions {
    /// Reads `trackers.toml` and `PROTOCOL.toml`.
    pub(crate) fn read(folder: &Path, protocol: Protocol) -> Result<Self> {
        let (path, Trackers { tracker, front }) = read(folder, "trackers.toml")?;
        for tracker in &tracker {
            tracker.check().with_context(|| format!("{path}: tracker {}", tracker.name))?;
        }
        let name = format!("{}.toml", protocol.without_tls());
        let (path, Loads { load, fill }) = read(folder, &name)?;
        ensure!(!load.is_empty(), "{path}: there is no [[load]]");
        Ok(Self { trackers: tracker, front, loads: load, fills: fill })
    }

    /// The load of this name, or the first.
    pub(crate) fn load(&self, name: Option<&str>) -> Result<&Load> {
        let found = self.loads.iter().find(|load| name.is_none_or(|name| load.name == name));
        found.with_context(|| {
            let names: Vec<_> = self.loads.iter().map(|load| load.name.as_str()).collect();
            format!("no load is called {}: there are {}", name.unwrap_or(""), names.join(", "))
        })
    }
}

impl Tracker {
    fn check(&self) -> Result<()> {
        ensure!(!self.start.is_empty(), "`start` has no words");
        ensure!(!self.speaks.is_empty(), "`speaks` names no protocol");
        let install = &self.install;
        let packages = [&install.cargo, &install.npm, &install.debian, &install.pypi];
        if self.program.is_none() && install.by_path.is_empty() {
            bail!("it has neither a `program` nor an `install.by_path` that says what to name");
        }
        if packages.iter().any(|words| words.iter().any(String::is_empty)) {
            bail!("an empty word in `install`");
        }
        Ok(())
    }
}

/// A file's content, and its path for what is wrong with it.
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

    fn trackers(text: &str) -> Result<Trackers> {
        parse("t.toml", text)
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
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
    fn trackers_must_be_startable() {
        let check =
            |text: &str| trackers(text).unwrap().tracker[0].check().map_err(|e| e.to_string());
        let tracker = |more: &str| {
            check(&format!("[[tracker]]\nname = 'a'\nspeaks = ['udp']\nstart = ['a']\n{more}"))
        };
        assert_eq!(tracker("program = 'a'"), Ok(()));
        assert_eq!(tracker("install.by_path = 'its program'"), Ok(()));
        assert!(tracker("").unwrap_err().contains("by_path"));
        assert!(tracker("program = 'a'\ninstall.npm = ['']").is_err());
        assert!(check("[[tracker]]\nname = 'a'\nstart = []").is_err());
    }

    #[test]
    fn those_of_the_repository_are_good() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
        for protocol in Protocol::ALL {
            let definitions = Definitions::read(&folder, protocol).unwrap();
            let able = |tracker: &&Tracker| tracker.speaks.contains(&protocol);
            assert!(definitions.trackers.iter().filter(able).count() >= 2, "{protocol}");
            assert!(definitions.front.is_some());
            assert_eq!(definitions.load(None).unwrap().name, definitions.loads[0].name);
            assert!(definitions.load(Some("no such")).is_err());
        }
        let error = Definitions::read(Path::new("/nowhere"), Protocol::Udp).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/trackers.toml"), "{error:#}");
    }

    #[test]
    fn protocols_are_known_by_their_names() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse::<Protocol>().unwrap(), protocol);
            assert_eq!(
                protocol.is_secure(),
                protocol.name().ends_with('s') && protocol != Protocol::Ws
            );
        }
        assert!("tcp".parse::<Protocol>().is_err());
    }
}
