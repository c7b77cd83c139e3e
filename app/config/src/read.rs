//! Reads settings: defaults, then the file, then the environment. Every mistake is reported with its
//! place.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

use super::constants;
use super::key::{Key, Kind, Origin, Problem};
use super::keys::Sections;
use super::listener_table::{self, ListenerTable};
use super::place;
use super::source::{File, Remarks, each_key, is_section, json, unknown_key, unknown_section};

/// The settings of the sections, and of the `[[listener]]` tables.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub(super) sections: Sections,
    pub(super) listeners: Vec<ListenerTable>,
    /// Warnings about values that are ignored or deprecated.
    pub(super) warnings: Vec<Problem>,
    /// True if constants can be changed, for tests.
    pub(super) sets_constants: bool,
}

/// Reads the configuration: `file`, if there is one, and `environment`, which overrides it.
pub fn load(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Settings, Vec<Problem>> {
    let environment: Vec<_> = environment.collect();
    let sets_constants = constants::are_settable(&environment);
    let mut settings = Settings { sets_constants, ..Settings::default() };
    let mut remarks = Remarks::default();
    if let Some(path) = file {
        match fs::read_to_string(path) {
            Ok(text) => settings.read_file(&File { path, text: &text }, &mut remarks),
            Err(error) => remarks.problems.push(Problem::unreadable(path, &error)),
        }
    }
    settings.read_environment(&environment, &mut remarks);
    settings.find_place(&environment);
    settings.checked(remarks)
}

/// Reads a configuration from `text`, as if it were the file `path`.
pub fn parse(path: &Path, text: &str) -> Result<Settings, Vec<Problem>> {
    let mut settings = Settings::default();
    let mut remarks = Remarks::default();
    settings.read_file(&File { path, text }, &mut remarks);
    settings.checked(remarks)
}

/// Returns whether a value is a URL, or has one among its items. What the tracker connects to is the operator's choice,
/// not that of a token: a URL may be one of the machine itself, or of its private network.
fn names_url(value: &Json) -> bool {
    match value {
        Json::String(text) => text.contains("://"),
        Json::Array(items) => items.iter().any(names_url),
        _ => false,
    }
}

impl Settings {
    /// Replaces the reloadable values with those of `new`. Listeners are neither added nor removed.
    pub fn take_reloadable(&mut self, new: &Self) {
        for table in &mut self.listeners {
            if let Some(new) = new.listeners.iter().find(|new| new.is_same_listener(table)) {
                table.take_reloadable(new);
            }
        }
        self.sections.copy_from(&new.sections, |setting| setting.key().reloadable);
    }

    /// Returns the settings with the warnings, or the mistakes if there are any.
    fn checked(mut self, Remarks { problems, warnings }: Remarks) -> Result<Self, Vec<Problem>> {
        if !problems.is_empty() {
            return Err(Problem::sorted(problems));
        }
        self.warnings = Problem::sorted(warnings);
        Ok(self)
    }

    /// Returns true if this key is no longer a setting.
    pub fn is_constant(&self, name: &str) -> bool {
        let mut all = self.sections.all().into_iter();
        let is_fixed =
            !self.sets_constants && all.any(|it| it.key().name == name && it.key().constant);
        is_fixed || constants::is_gone(name)
    }

    /// Applies values set through the API, but for constants. Returns the mistakes, which are left out.
    pub fn apply_overrides(&mut self, values: &[(String, Json)]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, value) in values {
            if self.is_constant(name) {
                continue;
            }
            let applied = match self.sections.find_mut(name) {
                None => Err(unknown_key(name)),
                Some(setting) if !setting.key().reloadable => Err(format!(
                    "{name}: cannot be set through the API: change the file and restart"
                )),
                Some(_) if names_url(value) => Err(format!(
                    "{name}: cannot be set to a URL through the API, because the tracker would request it: write it \
                     to the configuration file and reload"
                )),
                Some(setting) => setting.set(value, Origin::Api),
            };
            problems.extend(applied.err().map(|text| Problem::new(&Origin::Api, text)));
        }
        problems
    }

    fn read_file(&mut self, file: &File<'_>, remarks: &mut Remarks) {
        let root = match DeTable::parse(file.text) {
            Ok(root) => root,
            Err(error) => return remarks.problems.push(file.syntax_problem(&error)),
        };
        let sets_constants = self.sets_constants;
        each_key("", root.get_ref(), &mut |name, at, value| {
            if name == "listener" {
                self.listeners = listener_table::read(file, at, value, sets_constants, remarks);
                return;
            }
            let is_key = self.sections.find_mut(name).is_some();
            let read = if value.is_table() && !is_key {
                Err(unknown_section(name))
            } else if is_section(name) {
                Err(format!("`{name}` is a section, not a key: put its keys below [{name}]"))
            } else if !name.contains('.') {
                Err(format!("`{name}` is outside any section, such as [tracker]"))
            } else {
                let origin = file.origin(at);
                let warnings = &mut remarks.warnings;
                self.sections.set(name, |_| json(value), origin, sets_constants, warnings)
            };
            remarks.problems.extend(read.err().map(|text| file.problem(at, text)));
        });
    }

    /// Replaces "auto" by the directory that it stands for, if there is one.
    fn find_place(&mut self, environment: &[(String, String)]) {
        let dir = &mut self.sections.state.dir.value;
        if dir == place::AUTO
            && let Some(found) = place::default_dir(environment, &self.sections.process.user.value)
        {
            *dir = found.display().to_string();
        }
    }

    fn read_environment(&mut self, environment: &[(String, String)], remarks: &mut Remarks) {
        for (variable, text) in environment {
            let Some(path) = variable.strip_prefix("TIDEGATE_") else { continue };
            let origin = Origin::Environment(variable.clone());
            // Variables without a section have other uses, such as TIDEGATE_ADMIN_TOKEN.
            if !path.contains("__") {
                if let Some(meant) = variable_with_section(&self.sections, path) {
                    let text = format!("no such variable: did you mean `{meant}`?");
                    remarks.problems.push(Problem::new(&origin, text));
                }
                continue;
            }
            let name = path.replace("__", ".").to_lowercase();
            let value = |key: &Key| variable_json(key, text);
            let (at, warnings) = (origin.clone(), &mut remarks.warnings);
            let read = self.sections.set(&name, value, at, self.sets_constants, warnings);
            remarks.problems.extend(read.err().map(|text| Problem::new(&origin, text)));
        }
    }
}

/// Returns the variable of the key that `path` names with single underscores, as in `UDP_LISTEN`.
fn variable_with_section(sections: &Sections, path: &str) -> Option<String> {
    let meant = sections
        .settable()
        .map(|setting| setting.key().name)
        .find(|name| path.eq_ignore_ascii_case(&name.replace('.', "_")))?;
    Some(format!("TIDEGATE_{}", meant.replace('.', "__").to_uppercase()))
}

/// Converts the text of a variable. It is TOML as in a file, but strings and the items of lists need no
/// quotes, and lists need no brackets.
fn variable_json(key: &Key, text: &str) -> Json {
    match key.kind {
        Kind::Text | Kind::Choice(_) => text.into(),
        Kind::List if !text.trim_start().starts_with('[') => {
            text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
        }
        _ => DeValue::parse(text).map_or_else(|_| text.into(), |value| json(value.get_ref())),
    }
}
