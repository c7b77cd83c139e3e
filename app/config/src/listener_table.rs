//! `[[listener]]` tables: where each listens, and which keys it overrides.

use std::borrow::Cow;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use types::limits;

use super::choices::{Choice, Transport};
use super::constants;
use super::key::{Key, Kind, Origin, PerListener, Problem};
use super::keys::Sections;
use super::setting::{AnySetting, Setting, refusal};
use super::source::{File, Remarks, is_section, json, unknown_key, unknown_section};

/// The protocol of a `[[listener]]`.
pub(super) static PROTOCOL: Key = Key::new(
    "protocol",
    Kind::Choice(Transport::WORDS),
    &["udp, http (with WebSocket) or tls (HTTPS and wss)"],
);
/// The addresses of a `[[listener]]`.
pub(super) static LISTEN: Key =
    Key::new("listen", Kind::List, &[r#"addresses to listen on, e.g. ["127.0.0.1:8080"]"#]);

#[derive(Clone, Debug)]
pub(crate) struct ListenerTable {
    pub(super) origin: Origin,
    pub(super) transport: Transport,
    pub(super) listen: Setting<Vec<String>>,
    /// The keys it overrides; all others have their default value and origin here.
    overrides: Sections,
}

impl ListenerTable {
    /// Names it in messages.
    fn title(&self) -> String {
        format!("[[listener]] {} {}", self.transport.label(), self.listen.value.join(" "))
    }

    /// Returns true if `other` listens at the same addresses with the same protocol.
    pub(super) fn is_same_listener(&self, other: &Self) -> bool {
        self.transport == other.transport && self.listen.value == other.listen.value
    }

    /// Returns the settings that it overrides.
    pub(super) fn overridden(&self) -> impl Iterator<Item = &dyn AnySetting> {
        self.overrides.all().into_iter().filter(|setting| is_override(*setting))
    }

    /// Replaces the reloadable overrides with those of `new`.
    pub(super) fn take_reloadable(&mut self, new: &Self) {
        self.overrides.copy_from(&new.overrides, |setting| setting.key().reloadable);
    }

    /// Returns `sections` with what the table overrides.
    pub(super) fn apply(&self, sections: &Sections) -> Sections {
        let mut own = sections.clone();
        own.copy_from(&self.overrides, is_override);
        own.listen_mut(self.transport).clone_from(&self.listen);
        own
    }
}

fn is_override(setting: &dyn AnySetting) -> bool {
    *setting.origin() != Origin::Default
}

/// Reads all tables of a file. Constants are settings if `sets_constants`.
pub(super) fn read(
    file: &File<'_>,
    value: &Spanned<DeValue<'_>>,
    sets_constants: bool,
    remarks: &mut Remarks,
) -> Vec<ListenerTable> {
    let at = value.span().start;
    let Some(items) = value.get_ref().as_array() else {
        let text = "expected [[listener]] in double brackets: each listener is one table of a list";
        remarks.problems.push(file.problem(at, text.into()));
        return Vec::new();
    };
    if items.len() > limits::LISTENERS_MAX {
        let text = format!(
            "too many [[listener]] tables: expected at most {}, found {}",
            limits::LISTENERS_MAX,
            items.len()
        );
        remarks.problems.push(file.problem(at, text));
    }
    let mut tables = Vec::new();
    for item in items {
        let at = item.span().start;
        match item.get_ref().as_table() {
            Some(table) => {
                let reading = Reading { sets_constants, ..Reading::default() };
                tables.extend(reading.read_one(file, at, table, remarks));
            }
            None => {
                let problem = file.problem(at, "[[listener]]: expected a table".into());
                remarks.problems.push(problem);
            }
        }
    }
    tables
}

/// Values read from a table so far.
#[derive(Default)]
struct Reading {
    protocol: Option<Transport>,
    listen: Option<Setting<Vec<String>>>,
    overrides: Sections,
    /// True if a mistake has been reported.
    is_invalid: bool,
    /// True if constants are settings.
    sets_constants: bool,
}

impl Reading {
    /// Reads the table at the byte `at` of the file.
    fn read_one(
        mut self,
        file: &File<'_>,
        at: usize,
        table: &DeTable<'_>,
        remarks: &mut Remarks,
    ) -> Option<ListenerTable> {
        self.read(file, "", table, remarks);
        let Self { protocol, listen, overrides, is_invalid, .. } = self;
        for (key, is_missing) in [(&PROTOCOL, protocol.is_none()), (&LISTEN, listen.is_none())] {
            // An invalid one has been reported.
            if is_missing && !is_invalid {
                let text =
                    format!("[[listener]]: missing key `{}`: {}", key.name, key.help.concat());
                remarks.problems.push(file.problem(at, text));
            }
        }
        let table = ListenerTable {
            origin: file.origin(at),
            transport: protocol?,
            listen: listen?,
            overrides,
        };
        for setting in table.overridden() {
            let key = setting.key();
            let is_applicable = match table.transport {
                Transport::Udp => key.section() != "http",
                Transport::Http | Transport::Tls => key.section() != "udp",
            };
            if !is_applicable {
                let protocol = table.transport.label();
                let text =
                    format!("{}: does not apply to a listener of protocol {protocol}", key.name);
                remarks.problems.push(Problem::new(setting.origin(), text));
            }
            remarks.warnings.extend(constants::listener_warning(key, setting.origin()));
        }
        Some(table)
    }

    /// Reads the keys below `section`, or those at the top if it is empty.
    fn read(&mut self, file: &File<'_>, section: &str, table: &DeTable<'_>, remarks: &mut Remarks) {
        for (name, value) in table {
            let at = name.span().start;
            let name = match section {
                "" => Cow::from(name.get_ref().as_ref()),
                _ => format!("{section}.{}", name.get_ref()).into(),
            };
            let value = value.get_ref();
            if let DeValue::Table(table) = value
                && is_section(&name)
            {
                self.read(file, &name, table, remarks);
                continue;
            }
            let read = self.read_key(&name, value, file.origin(at), &mut remarks.warnings);
            if let Err(text) = read {
                remarks.problems.push(file.problem(at, text));
                self.is_invalid = true;
            }
        }
    }

    fn read_key(
        &mut self,
        name: &str,
        value: &DeValue<'_>,
        origin: Origin,
        warnings: &mut Vec<Problem>,
    ) -> Result<(), String> {
        if let Some(warning) = constants::gone(name, &origin) {
            warnings.push(warning);
            return Ok(());
        }
        let value_json = json(value);
        match (name, self.overrides.find_mut(name)) {
            ("protocol", _) => {
                let protocol = value_json.as_str().and_then(Transport::from_word);
                self.protocol = Some(protocol.ok_or_else(|| refused(&PROTOCOL, &value_json))?);
                Ok(())
            }
            ("listen", _) => {
                let mut listen = Setting::by_default(&LISTEN, Vec::new());
                listen.set(&value_json, origin)?;
                self.listen = Some(listen);
                Ok(())
            }
            (_, Some(setting)) if setting.key().constant && !self.sets_constants => {
                warnings.push(constants::warning(setting, &origin));
                Ok(())
            }
            (_, Some(setting)) if setting.key().per_listener != PerListener::No => {
                setting.set(&value_json, origin)
            }
            (_, Some(setting)) => Err(format!(
                "{name}: applies to all listeners and cannot be set for one: move it to [{}]",
                setting.key().section()
            )),
            (_, None) if value.is_table() => Err(unknown_section(name)),
            (_, None) => Err(unknown_key(name)),
        }
    }
}

fn refused(key: &Key, found: &Json) -> String {
    format!("{}: {}", key.name, refusal(key.kind, found))
}

/// Returns what differs between the tables of two configurations: what a reload applies, and what only
/// a restart does.
pub(super) fn changes(old: &[ListenerTable], new: &[ListenerTable]) -> (Vec<String>, Vec<String>) {
    let (mut reloadable, mut fixed) = (Vec::new(), Vec::new());
    for table in new {
        let Some(before) = old.iter().find(|other| other.is_same_listener(table)) else {
            fixed.push(table.title());
            continue;
        };
        let override_of = |table: &ListenerTable, name| {
            table.overridden().find(|setting| setting.key().name == name).map(AnySetting::json)
        };
        for setting in table.overrides.all() {
            let key = setting.key();
            if override_of(before, key.name) != override_of(table, key.name) {
                let list = if key.reloadable { &mut reloadable } else { &mut fixed };
                list.push(format!("{} of {}", key.name, table.title()));
            }
        }
    }
    let is_gone = |table: &&ListenerTable| !new.iter().any(|other| other.is_same_listener(table));
    fixed.extend(old.iter().filter(is_gone).map(ListenerTable::title));
    (reloadable, fixed)
}
