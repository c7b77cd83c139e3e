//! Reading: defaults, then the file, then the environment. Every mistake is named with its place.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Key, Kind};
use super::keys::{KEYS, find};
use super::sections::SECTIONS;
use super::tables::{self, Table};

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Int(u32),
    Flag(bool),
    Text(String),
    List(Vec<String>),
    /// A table's values stand in the order of its kind's keys.
    Tables(Vec<Vec<String>>),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    Environment(String),
    /// The management API has set it.
    Api,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `FILE:LINE`, an environment variable, or `default`.
    place: String,
    text: String,
}

/// A value for each of [`KEYS`], in their order, and the listeners that have some of their own.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    values: Vec<(Value, Origin)>,
    listeners: Vec<Table>,
}

/// Reads the configuration: `file` if there is one, and `environment`, which overrides it.
pub(crate) fn load(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Settings, Vec<Problem>> {
    let mut settings = Settings::default();
    let mut problems = Vec::new();
    if let Some(path) = file {
        match fs::read_to_string(path) {
            Ok(text) => settings.read_file(path, &text, &mut problems),
            Err(error) => problems.push(Problem {
                place: path.display().to_string(),
                text: format!("cannot be read: {error}"),
            }),
        }
    }
    settings.read_environment(environment, &mut problems);
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

impl Default for Settings {
    fn default() -> Self {
        let default = |key: &Key| (key.default_value(), Origin::Default);
        Self { values: KEYS.iter().map(default).collect(), listeners: Vec::new() }
    }
}

impl Settings {
    /// The value of a key, which must be in [`KEYS`].
    pub(crate) fn value(&self, name: &str) -> &Value {
        &self.entry(name).0
    }

    /// Where it comes from.
    pub(crate) fn origin(&self, name: &str) -> &Origin {
        &self.entry(name).1
    }

    pub(crate) fn is_default(&self, name: &str) -> bool {
        *self.origin(name) == Origin::Default
    }

    pub(super) fn int(&self, name: &str) -> u32 {
        if let Value::Int(value) = self.value(name) { *value } else { unreachable_kind(name) }
    }

    pub(super) fn size(&self, name: &str) -> usize {
        self.int(name) as usize
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        if let Value::Flag(value) = self.value(name) { *value } else { unreachable_kind(name) }
    }

    pub(super) fn text(&self, name: &str) -> &str {
        if let Value::Text(value) = self.value(name) { value } else { unreachable_kind(name) }
    }

    pub(super) fn list(&self, name: &str) -> &[String] {
        if let Value::List(value) = self.value(name) { value } else { unreachable_kind(name) }
    }

    pub(super) fn tables(&self, name: &str) -> &[Vec<String>] {
        if let Value::Tables(value) = self.value(name) { value } else { unreachable_kind(name) }
    }

    /// The `[[listener]]` tables, in their order.
    pub(crate) fn listeners(&self) -> &[Table] {
        &self.listeners
    }

    /// What holds for the listeners of a table: its own, and the rest from here.
    pub(super) fn with(&self, table: &Table) -> Self {
        let mut settings = Self { values: self.values.clone(), listeners: Vec::new() };
        for (key, value, origin) in &table.own {
            settings.set(key, value.clone(), origin.clone());
        }
        let (listen, origin) = table.listen.clone();
        if let Some(key) = find(table.transport.listen()) {
            settings.set(key, listen, origin);
        }
        settings
    }

    /// Something that is wrong with a key as a whole.
    pub(super) fn problem(&self, name: &str, text: String) -> Problem {
        Problem::new(self.origin(name).to_string(), format!("{name}: {text}"))
    }

    /// Takes over those values of `new` that a reload puts in force. No listener comes or goes.
    pub(crate) fn take_live(&mut self, new: &Self) {
        for table in &mut self.listeners {
            if let Some(new) = new.listeners.iter().find(|new| new.is(table)) {
                table.take_live(new);
            }
        }
        let pairs = self.values.iter_mut().zip(&new.values).zip(KEYS);
        for ((mine, new), _) in pairs.filter(|(_, key)| key.live) {
            mine.clone_from(new);
        }
    }

    /// Puts values of the API, as JSON, in the place of those that file and environment have. Gives what
    /// is wrong with them; those are left out.
    pub(crate) fn take_api(&mut self, values: &[(String, Json)]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, value) in values {
            let place = format!("api: {name}");
            match find(name) {
                None => problems.push(Problem::new(place, unknown(name))),
                Some(key) if !key.live => {
                    let text = "only the file and a restart can change it".into();
                    problems.push(Problem::new(place, text));
                }
                Some(key) => match key.read_json(value) {
                    Ok(value) => self.set(key, value, Origin::Api),
                    Err(text) => problems.push(Problem::new("api".into(), text)),
                },
            }
        }
        problems
    }

    fn entry(&self, name: &str) -> &(Value, Origin) {
        let at = KEYS.iter().position(|key| key.name == name);
        at.and_then(|at| self.values.get(at)).unwrap_or_else(|| unreachable_kind(name))
    }

    fn set(&mut self, key: &Key, value: Value, origin: Origin) {
        let at = KEYS.iter().position(|known| known.name == key.name);
        if let Some(slot) = at.and_then(|at| self.values.get_mut(at)) {
            *slot = (value, origin);
        }
    }

    fn read_file(&mut self, path: &Path, text: &str, problems: &mut Vec<Problem>) {
        let file = File { path, text };
        let root = match DeTable::parse(text) {
            Ok(root) => root,
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                return problems.push(file.problem(at, error.message().to_owned()));
            }
        };
        for (section, table) in root.get_ref() {
            let at = section.span().start;
            let section = section.get_ref();
            if section == "listener" {
                self.listeners = tables::read(&file, table, problems);
                continue;
            }
            match table.get_ref().as_table() {
                Some(table) if is_section(section) => {
                    self.read_section(&file, section, table, problems);
                }
                Some(_) => problems.push(file.problem(at, unknown_section(section))),
                None => {
                    let text = format!("`{section}` stands outside of a section such as [tracker]");
                    problems.push(file.problem(at, text));
                }
            }
        }
    }

    /// Reads the keys of a section, and the sections below it.
    fn read_section(
        &mut self,
        file: &File<'_>,
        section: &str,
        table: &DeTable<'_>,
        problems: &mut Vec<Problem>,
    ) {
        for (name, value) in table {
            let at = name.span().start;
            let name = format!("{section}.{}", name.get_ref());
            let read = match (find(&name), value.get_ref()) {
                (Some(key), _) => key.read(value).map(|value| (key, value)),
                (None, DeValue::Table(table)) if is_section(&name) => {
                    self.read_section(file, &name, table, problems);
                    continue;
                }
                (None, DeValue::Table(_)) => Err(unknown_section(&name)),
                (None, _) if is_section(&name) => {
                    Err(format!("`{name}` is a section: its keys stand below [{name}]"))
                }
                (None, _) => Err(unknown(&name)),
            };
            match read {
                Ok((key, value)) => self.set(key, value, file.origin(at)),
                Err(text) => problems.push(file.problem(at, text)),
            }
        }
    }

    fn read_environment(
        &mut self,
        environment: impl Iterator<Item = (String, String)>,
        problems: &mut Vec<Problem>,
    ) {
        for (variable, text) in environment {
            let Some(path) = variable.strip_prefix("TIDEGATE_") else { continue };
            // Only names with a section are ours to judge.
            if !path.contains("__") {
                continue;
            }
            let name = path.replace("__", ".").to_lowercase();
            let read = find(&name).ok_or_else(|| unknown(&name));
            match read.and_then(|key| Ok((key, key.read_plain(&text)?))) {
                Ok((key, value)) => self.set(key, value, Origin::Environment(variable)),
                Err(text) => problems.push(Problem { place: variable, text }),
            }
        }
    }
}

/// A configuration file, for telling where something stands in it.
pub(super) struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    pub(super) fn origin(&self, at: usize) -> Origin {
        Origin::File { path: self.path.to_owned(), line: self.line(at) }
    }

    pub(super) fn problem(&self, at: usize, text: String) -> Problem {
        Problem::new(self.origin(at).to_string(), text)
    }
}

/// Only a name or kind that disagrees with [`KEYS`] leads here: a mistake in this crate, which the
/// first test of all keys would meet.
fn unreachable_kind(name: &str) -> ! {
    unreachable!("no such key, or of another kind: {name}")
}

impl Key {
    fn default_value(&self) -> Value {
        // The table is written by hand and read by a test as a whole.
        let parsed = DeValue::parse(self.default).ok();
        let value = parsed.and_then(|value| self.plain(value.get_ref()));
        value.unwrap_or_else(|| unreachable_kind(self.name))
    }

    /// The value that stands in a file, if this key takes it.
    pub(super) fn read(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, String> {
        let value = value.get_ref();
        self.check(self.plain(value), || shown(value))
    }

    /// The value that a variable holds: as in a file, but texts and the items of lists may go
    /// without quotes, and lists without brackets.
    fn read_plain(&self, text: &str) -> Result<Value, String> {
        let parsed = match self.kind {
            Kind::Text | Kind::Choice(_) => Some(Value::Text(text.to_owned())),
            Kind::List if !text.trim_start().starts_with('[') => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::List(items.map(String::from).collect()))
            }
            _ => DeValue::parse(text).ok().and_then(|value| self.plain(value.get_ref())),
        };
        self.check(parsed, || format!("`{text}`"))
    }

    /// The value that the API has set.
    fn read_json(&self, value: &Json) -> Result<Value, String> {
        let parsed = match (self.kind, value) {
            (Kind::Text | Kind::Choice(_), Json::String(text)) => Some(Value::Text(text.clone())),
            (Kind::Flag, Json::Bool(value)) => Some(Value::Flag(*value)),
            (Kind::Int(..), Json::Number(number)) => {
                number.as_u64().and_then(|number| u32::try_from(number).ok()).map(Value::Int)
            }
            (Kind::List, Json::Array(items)) => {
                let text = |item: &Json| item.as_str().map(String::from);
                items.iter().map(text).collect::<Option<_>>().map(Value::List)
            }
            (Kind::Tables(keys), Json::Array(items)) => {
                let table = |item: &Json| {
                    let table = item.as_object().filter(|table| table.len() == keys.len())?;
                    let text = |key: &&str| table.get(*key)?.as_str().map(String::from);
                    keys.iter().map(text).collect::<Option<Vec<_>>>()
                };
                items.iter().map(table).collect::<Option<_>>().map(Value::Tables)
            }
            _ => None,
        };
        self.check(parsed, || format!("`{value}`"))
    }

    fn check(&self, value: Option<Value>, shown: impl Fn() -> String) -> Result<Value, String> {
        let refuse = |due: String| Err(format!("{} = {}: {due}", self.name, shown()));
        match (self.kind, value) {
            (Kind::Int(low, high), Some(Value::Int(value))) if (low..=high).contains(&value) => {
                Ok(Value::Int(value))
            }
            (Kind::Int(low, high), _) => refuse(format!("a number from {low} to {high} is due")),
            (Kind::Flag, Some(value @ Value::Flag(_))) => Ok(value),
            (Kind::Flag, _) => refuse("true or false is due".into()),
            (Kind::Text, Some(value @ Value::Text(_))) => Ok(value),
            (Kind::Text, _) => refuse("a text in quotes is due".into()),
            (Kind::List, Some(value @ Value::List(_))) => Ok(value),
            (Kind::Tables(_), Some(value @ Value::Tables(_))) => Ok(value),
            (Kind::Tables(keys), _) => {
                let example: Vec<String> =
                    keys.iter().map(|key| format!("{key} = \"…\"")).collect();
                refuse(format!("a list of tables is due, as in [{{ {} }}]", example.join(", ")))
            }
            (Kind::List, _) => refuse("a list of texts is due, as in [\"one\", \"two\"]".into()),
            (Kind::Choice(words), Some(Value::Text(word))) if words.contains(&&*word) => {
                match &*word {
                    "uring" | "xdp" => refuse("this engine is not built yet".into()),
                    _ => Ok(Value::Text(word)),
                }
            }
            (Kind::Choice(words), _) => refuse(format!("one of {} is due", words.join(", "))),
        }
    }
}

impl Key {
    /// The value, if it is of a kind that this key may take.
    fn plain(&self, value: &DeValue<'_>) -> Option<Value> {
        match (self.kind, value) {
            (Kind::Tables(keys), DeValue::Array(items)) => {
                let tables = items.iter().map(|item| table(item.get_ref(), keys));
                tables.collect::<Option<_>>().map(Value::Tables)
            }
            _ => plain(value),
        }
    }
}

/// The values of a table that has just these keys.
fn table(value: &DeValue<'_>, keys: &[&str]) -> Option<Vec<String>> {
    let table = value.as_table().filter(|table| table.len() == keys.len())?;
    let text = |key: &&str| table.get(*key)?.get_ref().as_str().map(String::from);
    keys.iter().map(text).collect()
}

/// The value, if it is of a kind that some key takes.
fn plain(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::Integer(value) => {
            u32::from_str_radix(value.as_str(), value.radix()).ok().map(Value::Int)
        }
        DeValue::Boolean(value) => Some(Value::Flag(*value)),
        DeValue::String(text) => Some(Value::Text(text.to_string())),
        DeValue::Array(items) => {
            let item = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(String::from);
            items.iter().map(item).collect::<Option<_>>().map(Value::List)
        }
        _ => None,
    }
}

/// A value as the operator wrote it, or nearly.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(value) => format!("`{}`", value.as_str()),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::String(text) => format!("`\"{text}\"`"),
        other => format!("({})", other.type_str()),
    }
}

pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|(known, _)| *known == name)
}

pub(super) fn unknown_section(name: &str) -> String {
    let known = SECTIONS.iter().map(|(known, _)| *known);
    format!("unknown section [{name}]{}", nearest(name, known))
}

pub(super) fn unknown(name: &str) -> String {
    let known = KEYS.iter().map(|key| key.name);
    format!("unknown key `{name}`{}", nearest(name, known))
}

/// A word of advice if `known` has something similar.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let scored = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    match scored.min() {
        Some((distance, known)) if distance <= 1 + name.len() / 4 => {
            format!(": did you mean `{known}`?")
        }
        _ => String::new(),
    }
}

impl Problem {
    /// What is wrong at a place.
    pub(super) fn new(place: String, text: String) -> Self {
        Self { place, text }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
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
