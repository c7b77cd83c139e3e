//! Keys of the configuration, the origins of their values, and the problems that these can have.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A key of the configuration. All of them are in [`super::keys`].
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.key`; a subsection has a dot in its name.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// True if a reload applies a new value.
    pub(crate) reloadable: bool,
    /// Permission for a `[[listener]]` table to override it.
    pub(crate) per_listener: PerListener,
    /// True if it is no longer a setting: the value is the default, and only tests can change it.
    pub(crate) constant: bool,
    /// True if it is one of the few that most users set.
    pub(crate) common: bool,
    /// Its documentation, line by line: the comment that `config init` writes above it.
    pub(crate) help: &'static [&'static str],
}

impl Key {
    pub(super) const fn new(name: &'static str, kind: Kind, help: &'static [&'static str]) -> Self {
        Self {
            name,
            kind,
            reloadable: false,
            per_listener: PerListener::No,
            constant: false,
            common: false,
            help,
        }
    }

    pub(super) const fn reloadable(self) -> Self {
        Self { reloadable: true, ..self }
    }

    pub(super) const fn per_listener(self) -> Self {
        Self { per_listener: PerListener::Yes, ..self }
    }

    pub(super) const fn per_listener_deprecated(self) -> Self {
        Self { per_listener: PerListener::Deprecated, ..self }
    }

    pub(super) const fn constant(self) -> Self {
        Self { constant: true, ..self }
    }

    pub(super) const fn common(self) -> Self {
        Self { common: true, ..self }
    }

    pub(crate) fn section(&self) -> &'static str {
        self.name.rsplit_once('.').map_or("", |(section, _)| section)
    }

    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, name)| name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerListener {
    No,
    Yes,
    /// It can, but will not in the next major version.
    Deprecated,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// An integer within these inclusive bounds.
    Int(u32, u32),
    /// An integer within these inclusive bounds, or "auto".
    AutoInt(u32, u32),
    /// true or false.
    Flag,
    Text,
    Choice(&'static [&'static str]),
    List,
    /// A list of tables with `chain` and `key`, both paths.
    Certificates,
}

pub(crate) struct Section {
    /// Its name, as between brackets.
    pub(crate) name: &'static str,
    pub(crate) help: &'static [&'static str],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    /// The environment variable of this name.
    Environment(String),
    Api,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(variable) => write!(f, "{variable}"),
            Self::Api => write!(f, "api"),
        }
    }
}

/// A mistake in the configuration, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line of a file, or 0.
    line: usize,
    /// `FILE:LINE: `, an environment variable, or nothing for a default.
    place: String,
    text: String,
}

impl Problem {
    pub(super) fn new(origin: &Origin, text: String) -> Self {
        let (line, place) = match origin {
            Origin::Default => (0, String::new()),
            Origin::File { line, .. } => (*line, format!("{origin}: ")),
            Origin::Environment(_) | Origin::Api => (0, format!("{origin}: ")),
        };
        Self { line, place, text }
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let text = format!("cannot read the configuration file: {error}");
        Self { line: 0, place: format!("{}: ", path.display()), text }
    }

    pub(super) fn is_in_file(&self) -> bool {
        self.line > 0
    }

    /// Returns the sentence, without its place.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns each problem once, in the order of their lines.
    pub(super) fn sorted(problems: Vec<Self>) -> Vec<Self> {
        let mut problems = unique(problems);
        problems.sort_by_key(|problem| problem.line);
        problems
    }
}

pub(super) fn unique<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut unique = Vec::new();
    for one in all {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    unique
}

/// Escapes control characters: text from outside can neither start a line nor control the terminal.
pub fn escaped(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        if character.is_control() {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Names in a file or a variable may have control characters.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.place))?;
        f.write_str(&escaped(&self.text))
    }
}
