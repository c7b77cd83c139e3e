//! Log levels by area.
//!
//! An area is a part of the program with a log level of its own. The area of a line follows from its target,
//! the module that logged it: the longest matching prefix counts.

use std::fmt;
use std::str::FromStr;

use tracing::Level;

/// A part of the program with a log level of its own.
#[derive(Debug)]
pub(crate) struct Area {
    /// Its name, as in `records=debug`.
    pub(crate) name: &'static str,
    /// Prefixes of the targets of its lines.
    pub(crate) targets: &'static [&'static str],
}

const fn area(name: &'static str, targets: &'static [&'static str]) -> Area {
    Area { name, targets }
}

/// All areas; every target belongs to one. docs/operate/observe.md describes them.
pub(crate) const AREAS: [Area; 13] = [
    area("serve", &["tidegate::"]),
    area("reload", &["tidegate::serve::reload", "tidegate::serve::lists", "tidegate::access"]),
    area("acme", &["tidegate::acme"]),
    area("front", &["tidegate_front::"]),
    area("api", &["tidegate_admin::"]),
    area("audit", &[AUDIT]),
    area("webhooks", &["tidegate_admin::webhooks"]),
    area(
        "records",
        &["tidegate_admin::records", "tidegate_admin::restore", "tidegate::serve::state"],
    ),
    area("journal", &["tidegate_journal", "tidegate::serve::swarms"]),
    area("cluster", &["tidegate_cluster", "tidegate::serve::cluster", "tidegate::cluster"]),
    area("site", &["site", "tidegate_site", "tidegate::site"]),
    // Nothing logs here; levels in configurations of 1.0.0 may name it.
    area("traces", &[]),
    area("libraries", &[""]),
];

/// The target of audit lines, which say who changed what. They are never suppressed.
pub const AUDIT: &str = "tidegate::audit";

/// The levels by their names in the configuration.
pub(crate) const LEVELS: [(&str, Level); 5] = [
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
];

/// Returns the area of a target.
pub fn area_of(target: &str) -> &'static str {
    let prefix = |area: &Area| {
        let fits = area.targets.iter().filter(|prefix| target.starts_with(**prefix));
        fits.map(|prefix| prefix.len() + 1).max().unwrap_or(0)
    };
    AREAS.iter().max_by_key(|area| prefix(area)).map_or("libraries", |area| area.name)
}

/// A log level for every area: `info`, or `info,front=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    /// The level of all other areas.
    rest: Level,
    named: [Option<Level>; AREAS.len()],
}

impl LogLevels {
    /// Returns every target prefix with the level of its area.
    pub fn targets(&self) -> impl Iterator<Item = (&'static str, Level)> {
        let level = |named: Option<Level>| named.unwrap_or(self.rest);
        let areas = AREAS.iter().zip(self.named);
        areas.flat_map(move |(area, named)| {
            area.targets.iter().map(move |target| (*target, level(named)))
        })
    }
}

impl Default for LogLevels {
    fn default() -> Self {
        Self { rest: Level::INFO, named: [None; AREAS.len()] }
    }
}

impl FromStr for LogLevels {
    type Err = String;

    /// Parses levels separated by commas. Later ones override earlier ones.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Self::default();
        for part in text.split(',') {
            let Some((name, level)) = part.split_once('=') else {
                levels.rest = parse_level(part)?;
                continue;
            };
            let name = name.trim();
            let known = AREAS.iter().position(|area| area.name == name);
            let slot = known.and_then(|at| levels.named.get_mut(at)).ok_or_else(|| {
                let all = AREAS.map(|area| area.name).join(", ");
                format!("expected a log area ({all}), found `{name}`")
            })?;
            *slot = Some(parse_level(level)?);
        }
        Ok(levels)
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let text = text.trim();
    let found = LEVELS.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, level)| level).ok_or_else(|| {
        let all = LEVELS.map(|(name, _)| name).join(", ");
        format!("expected a log level ({all}), found `{text}`")
    })
}

/// Returns the name of a level in the configuration.
fn level_name(level: Level) -> &'static str {
    LEVELS.into_iter().find(|(_, known)| *known == level).map_or("", |(name, _)| name)
}

impl fmt::Display for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(level_name(self.rest))?;
        for (area, level) in AREAS.iter().zip(self.named) {
            if let Some(level) = level {
                write!(f, ",{}={}", area.name, level_name(level))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_writes_levels() {
        for (text, expected) in [
            ("info", "info"),
            ("warn,front=debug", "warn,front=debug"),
            (" front = trace , error ", "error,front=trace"),
            ("api=debug", "info,api=debug"),
            ("info,api=debug,api=warn,debug", "debug,api=warn"),
        ] {
            let levels: LogLevels = text.parse().unwrap();
            assert_eq!(levels.to_string(), expected, "{text}");
            assert_eq!(levels.to_string().parse(), Ok(levels));
        }
    }

    #[test]
    fn errors_list_the_valid_names() {
        let problem = |text: &str| text.parse::<LogLevels>().unwrap_err();
        assert!(problem("loud").contains("expected a log level (error, warn"));
        assert!(problem("info,frnot=debug").contains("expected a log area (serve"));
        for bad in ["", "info,", "=debug", "front=", "front=debug=info", "INFO", "off"] {
            assert!(bad.parse::<LogLevels>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_target_has_an_area() {
        for (target, expected) in [
            ("tidegate::serve::upgrade", "serve"),
            ("tidegate::serve::reload", "reload"),
            ("tidegate::serve::state", "records"),
            ("tidegate::acme::order", "acme"),
            ("tidegate::audit", "audit"),
            ("tidegate_admin::api::auth", "api"),
            ("tidegate_admin::webhooks", "webhooks"),
            ("tidegate_admin::records::writer", "records"),
            ("tidegate_front::tell", "front"),
            ("tidegate_cluster::nats::driver", "cluster"),
            ("site", "site"),
            ("instant_acme", "libraries"),
        ] {
            assert_eq!(area_of(target), expected, "{target}");
        }
    }

    #[test]
    fn targets_have_the_levels_of_their_areas() {
        let levels: LogLevels = "warn,records=debug".parse().unwrap();
        let all: Vec<_> = levels.targets().collect();
        assert!(all.contains(&("", Level::WARN)) && all.contains(&("tidegate::", Level::WARN)));
        assert!(all.contains(&("tidegate::serve::state", Level::DEBUG)));
    }
}
