//! Sources of values: a TOML file, environment variables. Locates mistakes and suggests near matches.

use std::path::Path;

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

use super::constants;
use super::key::{Origin, Problem};
use super::keys::{SECTIONS, Sections};

#[derive(Default)]
pub(super) struct Remarks {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// A configuration file, to tell the line of what is in it.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

/// Words for true and false in other formats, in lower case, and what to write in TOML.
const TRUTH_WORDS: [(&str, &str); 6] = [
    ("true", "true"),
    ("yes", "true"),
    ("on", "true"),
    ("false", "false"),
    ("no", "false"),
    ("off", "false, or \"off\" if the key expects words"),
];

/// The beginnings of the parser's messages about a value that is no number, no date and has no quotes.
const VALUE_ERRORS: [&str; 3] =
    ["string values must be quoted", "invalid boolean", "invalid float, expected `"];

impl File<'_> {
    /// Returns the line of the byte `at`, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    pub(super) fn origin(&self, at: usize) -> Origin {
        Origin::File { path: self.path.to_owned(), line: self.line(at) }
    }

    pub(super) fn problem(&self, at: usize, text: String) -> Problem {
        Problem::new(&self.origin(at), text)
    }

    /// Returns an error of the TOML parser as a mistake with a remedy.
    pub(super) fn syntax_problem(&self, error: &toml::de::Error) -> Problem {
        let span = error.span().unwrap_or_default();
        let at = span.start;
        let found = self.text.get(span).unwrap_or_default().trim();
        let message = error.message();
        if message == "duplicate key" {
            return self.problem(at, self.duplicate(at, found));
        }
        if !VALUE_ERRORS.iter().any(|begin| message.starts_with(begin)) || found.is_empty() {
            return self.problem(at, message.to_owned());
        }
        let truth = TRUTH_WORDS.iter().find(|(word, _)| found.eq_ignore_ascii_case(word));
        let text = match truth {
            Some((_, value)) => format!("expected true or false, found `{found}`: write {value}"),
            None => format!("expected a value, found `{found}` without quotes: write {found:?}"),
        };
        self.problem(at, text)
    }

    /// Says which key or section stands in the file for the second time at the byte `at`, and where it stands first.
    /// `name` is the last part of its name.
    fn duplicate(&self, at: usize, name: &str) -> String {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let (before, rest) = lines.split_at(self.line(at) - 1);
        let second = rest.first().copied().unwrap_or_default();
        let own = title(second);
        if is_header(second) {
            let first = before.iter().position(|line| title(line) == own);
            return match first {
                Some(first) => format!(
                    "{own} is there twice, first in line {}: put all its keys below one of them",
                    first + 1
                ),
                None => format!("`{name}` is there twice: remove one of them"),
            };
        }
        // A key of the same name in another section is another key.
        let section =
            before.iter().rposition(|line| is_header(line)).map_or(0, |header| header + 1);
        let first = before.iter().skip(section).position(|line| title(line) == own);
        match first {
            Some(first) => format!(
                "`{own}` is set twice, first in line {}: remove one of the two lines",
                section + first + 1
            ),
            None => format!("`{name}` is set twice: remove one of the two"),
        }
    }
}

/// Returns whether a line of a file begins a section.
fn is_header(line: &str) -> bool {
    line.starts_with('[')
}

/// Returns the section that a line begins, in brackets, or the key that it sets.
fn title(line: &str) -> &str {
    let end = if is_header(line) { '#' } else { '=' };
    line.split(end).next().unwrap_or_default().trim_end()
}

/// Passes each key of a table, and of the sections in it, to `visit`: its whole name, its place and its value. `section`
/// is the name of the table, or empty for the top of a file.
pub(super) fn each_key<'a>(
    section: &str,
    table: &DeTable<'a>,
    visit: &mut dyn FnMut(&str, usize, &DeValue<'a>),
) {
    for (name, value) in table {
        let at = name.span().start;
        let name = match section {
            "" => name.get_ref().to_string(),
            _ => format!("{section}.{}", name.get_ref()),
        };
        match value.get_ref() {
            DeValue::Table(table) if is_section(&name) => each_key(&name, table, visit),
            value => visit(&name, at, value),
        }
    }
}

/// Converts a TOML value. What no key accepts (dates, infinities) becomes null.
pub(super) fn json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::Integer(value) => {
            let small = i64::from_str_radix(value.as_str(), value.radix()).map(Json::from);
            small.unwrap_or_else(|_| float(value.as_str()))
        }
        DeValue::Float(value) => float(value.as_str()),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Datetime(_) => Json::Null,
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(members) => members
            .iter()
            .map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref())))
            .collect(),
    }
}

fn float(digits: &str) -> Json {
    digits.parse::<f64>().map_or(Json::Null, Json::from)
}

/// Returns true for the sections of this version and of earlier ones.
pub(super) fn is_section(name: &str) -> bool {
    constants::is_gone_section(name) || SECTIONS.iter().any(|section| section.name == name)
}

/// Says that there is no such section, and which one may be meant or which there are.
pub(super) fn unknown_section(name: &str) -> String {
    let known = SECTIONS.iter().map(|section| section.name);
    match nearest(name, known) {
        Some(near) => format!("unknown section [{name}]: did you mean [{near}]?"),
        None => format!("unknown section [{name}]: expected one of {}", section_names()),
    }
}

fn section_names() -> String {
    let sections = Sections::default();
    let of_keys = sections.settable().map(|setting| setting.key().section());
    let mut names: Vec<String> = of_keys.map(|section| format!("[{section}]")).collect();
    names.dedup();
    names.push("[[listener]]".into());
    names.join(", ")
}

/// Keys of 1.0.0 that are gone, and what takes their place.
const REMOVED: [(&str, &str); 10] = [
    ("cluster.name", IN_JOIN_FILE),
    ("cluster.node", IN_JOIN_FILE),
    ("cluster.servers", IN_JOIN_FILE),
    ("cluster.nkey", IN_JOIN_FILE),
    ("cluster.certificate", IN_JOIN_FILE),
    ("cluster.key", IN_JOIN_FILE),
    ("cluster.ca", IN_JOIN_FILE),
    ("cluster.secret", IN_JOIN_FILE),
    ("cluster.stream_mib", "is a setting of the stream now: `tidegate cluster set size 8GiB`"),
    ("cluster.replicas", "is a setting of the stream now: `tidegate cluster set replicas 3`"),
];
const IN_JOIN_FILE: &str = "is in the join file now: make one by `tidegate cluster init` and `tidegate cluster invite`, \
                            and name it in cluster.join";

/// Says that there is no such key, and what takes its place or may be meant.
pub(super) fn unknown_key(name: &str) -> String {
    if let Some((_, successor)) = REMOVED.iter().find(|(removed, _)| *removed == name) {
        return format!("`{name}` {successor}");
    }
    let sections = Sections::default();
    let known = sections.settable().map(|setting| setting.key().name);
    let suggestion = nearest(name, known).map(|near| format!(": did you mean `{near}`?"));
    format!("unknown key `{name}`{}", suggestion.unwrap_or_default())
}

/// Returns the most similar of `known`, if any is similar enough to be meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    let (distance, known) = scored.min()?;
    (distance <= 1 + name.len() / 4).then_some(known)
}
