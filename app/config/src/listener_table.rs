//! `[[listener]]` tables: where each listens, and which keys it overrides.

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};
use types::limits;

use super::choices::{Choice, Transport};
use super::constants;
use super::key::{Key, Kind, Origin, PerListener, Problem};
use super::keys::Sections;
use super::setting::{AnySetting, Setting, refusal};
use super::source::{File, Remarks, each_key, json, unknown_section};

pub(super) static PROTOCOL: Key = Key::new(
    "protocol",
    Kind::Choice(Transport::WORDS),
    &["udp, http (with WebSocket) or tls (HTTPS and wss)"],
);
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
    fn title(&self) -> String {
        format!("[[listener]] {} {}", self.transport.label(), self.listen.value.join(" "))
    }

    /// Returns true if `other` listens at the same addresses with the same protocol.
    pub(super) fn is_same_listener(&self, other: &Self) -> bool {
        self.transport == other.transport && self.listen.value == other.listen.value
    }

    pub(super) fn overridden(&self) -> impl Iterator<Item = &dyn AnySetting> {
        self.overrides.all().into_iter().filter(|setting| is_override(*setting))
    }

    pub(super) fn take_reloadable(&mut self, new: &Self) {
        self.overrides.copy_from(&new.overrides, |setting| setting.key().reloadable);
    }

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

/// Reads all tables of a file, whose list is at the byte `at`. Constants are settings if `sets_constants`.
pub(super) fn read(
    file: &File<'_>,
    at: usize,
    value: &DeValue<'_>,
    sets_constants: bool,
    remarks: &mut Remarks,
) -> Vec<ListenerTable> {
    let Some(items) = value.as_array() else {
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
            Some(table) => tables.extend(read_one(file, at, table, sets_constants, remarks)),
            None => {
                let problem = file.problem(at, "[[listener]]: expected a table".into());
                remarks.problems.push(problem);
            }
        }
    }
    tables
}

fn read_one(
    file: &File<'_>,
    at: usize,
    table: &DeTable<'_>,
    sets_constants: bool,
    remarks: &mut Remarks,
) -> Option<ListenerTable> {
    let (mut protocol, mut listen) = (None, None);
    let mut overrides = Sections::default();
    let problems_before = remarks.problems.len();
    each_key("", table, &mut |name, at, value| {
        let (found, origin) = (json(value), file.origin(at));
        let read = match (name, overrides.find_mut(name)) {
            ("protocol", _) => {
                protocol = found.as_str().and_then(Transport::from_word);
                protocol.map(drop).ok_or_else(|| refused(&PROTOCOL, &found))
            }
            ("listen", _) => {
                let mut setting = Setting::by_default(&LISTEN, Vec::new());
                let read = setting.set(&found, origin);
                listen = Some(setting);
                read
            }
            (_, None) if value.is_table() => Err(unknown_section(name)),
            (_, Some(setting)) if is_for_all(setting.key(), sets_constants) => Err(format!(
                "{name}: applies to all listeners and cannot be set for one: move it to [{}]",
                setting.key().section()
            )),
            _ => overrides.set(name, |_| found, origin, sets_constants, &mut remarks.warnings),
        };
        remarks.problems.extend(read.err().map(|text| file.problem(at, text)));
    });
    let is_valid = remarks.problems.len() == problems_before;
    for (key, is_missing) in [(&PROTOCOL, protocol.is_none()), (&LISTEN, listen.is_none())] {
        if is_missing && is_valid {
            let text = format!("[[listener]]: missing key `{}`: {}", key.name, key.help.concat());
            remarks.problems.push(file.problem(at, text));
        }
    }
    let (transport, listen) = (protocol?, listen?);
    let table = ListenerTable { origin: file.origin(at), transport, listen, overrides };
    for setting in table.overridden() {
        let key = setting.key();
        let is_applicable = match transport {
            Transport::Udp => key.section() != "http",
            Transport::Http | Transport::Tls => key.section() != "udp",
        };
        if !is_applicable {
            let protocol = transport.label();
            let text = format!("{}: does not apply to a listener of protocol {protocol}", key.name);
            remarks.problems.push(Problem::new(setting.origin(), text));
        }
        remarks.warnings.extend(constants::listener_warning(key, setting.origin()));
    }
    Some(table)
}

fn is_for_all(key: &Key, sets_constants: bool) -> bool {
    key.per_listener == PerListener::No && (!key.constant || sets_constants)
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
