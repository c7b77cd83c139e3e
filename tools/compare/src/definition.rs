//! Definitions of trackers and loads: `trackers.toml` and `PROTOCOL.toml` of a folder, `bench/` in
//! the
//! repository. The comments at the top of those files explain each key.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A tracker protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
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
    /// All protocols.
    pub const ALL: [Self; 5] = [Self::Udp, Self::Http, Self::Https, Self::Ws, Self::Wss];

    /// Returns the URL scheme.
    pub fn name(self) -> &'static str {
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
    pub fn without_tls(self) -> Self {
        match self {
            Self::Https => Self::Http,
            Self::Wss => Self::Ws,
            plain => plain,
        }
    }

    /// Returns whether the protocol runs over TLS.
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
        found
            .ok_or_else(|| anyhow!("unknown protocol {text}: expected udp, http, https, ws or wss"))
    }
}

/// A tracker's definition, or that of a TLS front.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tracker {
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
    pub(crate) configuration: String,
    pub(crate) configuration_tls: Option<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) start: Vec<String>,
    /// Whether it serves only listed torrents.
    #[serde(default)]
    pub(crate) allow_list: bool,
    /// Names of loads that it cannot handle.
    #[serde(default)]
    pub(crate) not_for: Vec<String>,
    #[serde(default)]
    pub(crate) limitations: String,
    #[serde(default)]
    pub(crate) install: Install,
}

/// Arguments for package managers; `cargo xtask rivals` reads them, too.
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
    /// What `--program` must name, if no package provides it.
    #[serde(default)]
    pub(crate) by_path: String,
}

/// A load: arguments of `tidegate load PROTOCOL URL`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) name: String,
    /// Description for the report: a sentence.
    pub(crate) description: String,
    pub(crate) words: Vec<String>,
    /// Arguments that limit it to `{rate}` requests per second, to measure latencies.
    #[serde(default)]
    pub(crate) paced: Vec<String>,
}

/// A known number of peers, to measure the memory of each.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fill {
    pub(crate) name: String,
    /// Number of peers; each announce draws one of them at random unless `all` is set.
    pub(crate) peers: u64,
    /// Whether each peer announces.
    #[serde(default)]
    pub(crate) all: bool,
    /// Duration of the load in seconds.
    pub(crate) seconds: u32,
    pub(crate) words: Vec<String>,
}

/// All definitions for one protocol.
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
        ensure!(!load.is_empty(), "{path}: expected at least one [[load]]");
        Ok(Self { trackers: tracker, front, loads: load, fills: fill })
    }

    /// Returns the load with this name, or the first one.
    pub(crate) fn load(&self, name: Option<&str>) -> Result<&Load> {
        let found = self.loads.iter().find(|load| name.is_none_or(|name| load.name == name));
        found.with_context(|| {
            let names: Vec<_> = self.loads.iter().map(|load| load.name.as_str()).collect();
            format!("unknown load {}: expected one of {}", name.unwrap_or(""), names.join(", "))
        })
    }
}

impl Tracker {
    fn check(&self) -> Result<()> {
        ensure!(!self.start.is_empty(), "`start` is empty");
        ensure!(!self.speaks.is_empty(), "`speaks` is empty");
        let install = &self.install;
        let packages = [&install.cargo, &install.npm, &install.debian, &install.pypi];
        if self.program.is_none() && install.by_path.is_empty() {
            bail!("expected `program`, or `install.by_path` with what to name");
        }
        if packages.iter().any(|words| words.iter().any(String::is_empty)) {
            bail!("empty argument in `install`");
        }
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

    fn trackers(text: &str) -> Result<Trackers> {
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
    fn rejects_trackers_that_cannot_be_started() {
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
    fn the_repository_s_definitions_are_valid() {
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
    fn parses_protocol_names() {
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
