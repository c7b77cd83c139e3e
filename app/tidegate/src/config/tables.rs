//! `[[listener]]` tables, as they stand in the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use types::limits;

use super::key::Key;
use super::keys::{self, find};
use super::listeners::Transport;
use super::read::{File, Origin, Problem, Settings, Value, is_section, unknown, unknown_section};

/// A `[[listener]]`: where to listen, and what holds there alone.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) origin: Origin,
    pub(crate) transport: Transport,
    pub(crate) listen: (Value, Origin),
    pub(crate) own: Vec<(&'static Key, Value, Origin)>,
}

impl Table {
    /// Something that is wrong with its addresses.
    pub(crate) fn problem(&self, text: String) -> Problem {
        Problem::new(self.listen.1.to_string(), format!("listen: {text}"))
    }

    /// How messages call it.
    pub(crate) fn title(&self) -> String {
        let listen =
            if let Value::List(texts) = &self.listen.0 { texts.join(" ") } else { String::new() };
        format!("[[listener]] {} {listen}", self.transport.label())
    }

    /// Whether it is the listener that `other` is, too, whatever else they say.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.transport == other.transport && self.listen.0 == other.listen.0
    }

    /// What it has of its own for a key.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.own.iter().find(|(key, ..)| key.name == name).map(|(_, value, _)| value)
    }

    /// Takes over what of `new` a reload puts in force.
    pub(crate) fn take_live(&mut self, new: &Self) {
        self.own.retain(|(key, ..)| !key.live);
        self.own.extend(new.own.iter().filter(|(key, ..)| key.live).cloned());
    }
}

/// Reads all tables that stand in the file.
pub(super) fn read(
    file: &File<'_>,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Vec<Problem>,
) -> Vec<Table> {
    let at = value.span().start;
    let Some(items) = value.get_ref().as_array() else {
        let text = "listeners of their own stand below [[listener]], in double brackets";
        problems.push(file.problem(at, text.into()));
        return Vec::new();
    };
    if items.len() > limits::LISTENERS_MAX {
        let text = format!("{} [[listener]] tables are the most", limits::LISTENERS_MAX);
        problems.push(file.problem(at, text));
    }
    let mut tables = Vec::new();
    for item in items {
        let at = item.span().start;
        match item.get_ref().as_table() {
            Some(table) => tables.extend(read_one(file, at, table, problems)),
            None => problems.push(file.problem(at, "a [[listener]] is a table".into())),
        }
    }
    tables
}

fn read_one(
    file: &File<'_>,
    at: usize,
    table: &DeTable<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Table> {
    let mut found = Found::default();
    found.read(file, "", table, problems);
    let mut lacks = |key: &Key| {
        let text = format!("a [[listener]] needs `{}`: {}", key.name, key.help);
        problems.push(file.problem(at, text));
    };
    let transport = found.transport;
    let listen = found.listen;
    if transport.is_none() && !found.is_spoilt {
        lacks(&keys::PROTOCOL);
    }
    if listen.is_none() && !found.is_spoilt {
        lacks(&keys::LISTEN);
    }
    let (transport, listen) = (transport?, listen?);
    for (key, _, origin) in &found.own {
        let means_nothing = match transport {
            Transport::Udp => key.section() == "http",
            Transport::Http | Transport::Tls => key.section() == "udp",
        };
        if means_nothing {
            let text = format!("{} means nothing to a listener of {}", key.name, transport.label());
            problems.push(Problem::new(origin.to_string(), text));
        }
    }
    Some(Table { origin: file.origin(at), transport, listen, own: found.own })
}

/// What has been read of a table.
#[derive(Default)]
struct Found {
    transport: Option<Transport>,
    listen: Option<(Value, Origin)>,
    own: Vec<(&'static Key, Value, Origin)>,
    /// Whether there was a mistake, which has been named.
    is_spoilt: bool,
}

impl Found {
    /// Reads keys, which stand below `section`, or below nothing.
    fn read(
        &mut self,
        file: &File<'_>,
        section: &str,
        table: &DeTable<'_>,
        problems: &mut Vec<Problem>,
    ) {
        for (name, value) in table {
            let at = name.span().start;
            let name = match section {
                "" => name.get_ref().to_string(),
                _ => format!("{section}.{}", name.get_ref()),
            };
            let read = match (&*name, find(&name), value.get_ref()) {
                ("protocol", ..) => keys::PROTOCOL.read(value).map(|value| {
                    let Value::Text(word) = value else { return };
                    self.transport = Transport::of(&word);
                }),
                ("listen", ..) => keys::LISTEN.read(value).map(|value| {
                    self.listen = Some((value, file.origin(at)));
                }),
                (_, Some(key), _) if key.own => key.read(value).map(|value| {
                    self.own.push((key, value, file.origin(at)));
                }),
                (_, Some(key), _) => Err(format!(
                    "{name} is the same for all listeners: it stands in [{}]",
                    key.section()
                )),
                (_, None, DeValue::Table(table)) if is_section(&name) => {
                    self.read(file, &name, table, problems);
                    continue;
                }
                (_, _, DeValue::Table(_)) => Err(unknown_section(&name)),
                _ => Err(unknown(&name)),
            };
            if let Err(text) = read {
                problems.push(file.problem(at, text));
                self.is_spoilt = true;
            }
        }
    }
}

/// What differs between the tables of two configurations, by whether it can change while serving.
pub(super) fn changes(old: &Settings, new: &Settings) -> (Vec<String>, Vec<String>) {
    let (mut live, mut fixed) = (Vec::new(), Vec::new());
    for table in new.listeners() {
        let Some(before) = old.listeners().iter().find(|other| other.is(table)) else {
            fixed.push(table.title());
            continue;
        };
        for key in keys::KEYS.iter().filter(|key| before.value(key.name) != table.value(key.name)) {
            let list = if key.live { &mut live } else { &mut fixed };
            list.push(format!("{} of {}", key.name, table.title()));
        }
    }
    let gone = |table: &&Table| !new.listeners().iter().any(|other| other.is(table));
    fixed.extend(old.listeners().iter().filter(gone).map(Table::title));
    (live, fixed)
}
