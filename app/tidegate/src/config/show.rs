//! Writing the configuration: the file that `config init` makes, and what `config show` prints.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use super::key::{Key, Kind};
use super::keys::{KEYS, LISTEN, PROTOCOL};
use super::read::{Origin, Settings, Value};
use super::sections::SECTIONS;
use super::tables::Table;

/// A file with every key at its default, and what it does. Writing to a `String` cannot fail.
pub(crate) fn init() -> String {
    let mut text = String::from(
        "# tidegate's configuration. Every key is optional; what stands here are the defaults.\n\
         # A variable TIDEGATE_SECTION__KEY overrides the file, as TIDEGATE_TRACKER__INTERVAL_S=900.\n\
         # Keys marked (live) are put in force by SIGHUP; the others by a restart.\n",
    );
    for (section, help) in SECTIONS {
        let help = help.replace('\n', "\n# ");
        let _ = writeln!(text, "\n# {help}\n[{section}]");
        for key in KEYS.iter().filter(|key| key.section() == *section) {
            for line in key.help.lines() {
                let _ = writeln!(text, "# {line}");
            }
            let name = key.name.rsplit('.').next().unwrap_or_default();
            let mark = if key.live { "  # (live)" } else { "" };
            let _ = writeln!(text, "{name} = {}{mark}", key.default);
        }
    }
    init_listeners(&mut text);
    text
}

/// Every key with its value in force and where that comes from.
pub(crate) fn show(settings: &Settings) -> String {
    let mut text = String::new();
    for key in KEYS {
        let value = settings.value(key.name);
        let _ = writeln!(
            text,
            "{} = {}  # {}",
            key.name,
            toml(key.kind, value),
            settings.origin(key.name)
        );
    }
    for table in settings.listeners() {
        let line = |name: &str, kind, value: &Value, origin: &Origin| {
            format!("{name} = {}  # {origin}\n", toml(kind, value))
        };
        let Table { origin, transport, listen: (listen, listen_origin), own } = table;
        let protocol = Value::Text(transport.label().into());
        let _ = writeln!(text, "\n[[listener]]  # {origin}");
        text += &line(PROTOCOL.name, PROTOCOL.kind, &protocol, origin);
        text += &line(LISTEN.name, LISTEN.kind, listen, listen_origin);
        own.iter().for_each(|(key, value, at)| text += &line(key.name, key.kind, value, at));
    }
    text
}

/// The same for the management API. Those of `[[listener]]` tables are not among them.
pub(crate) fn list(settings: &Settings) -> Vec<admin::Setting> {
    let keys = KEYS.iter();
    let setting = |key: &Key| admin::Setting {
        name: key.name.into(),
        value: json(key.kind, settings.value(key.name)),
        origin: settings.origin(key.name).to_string(),
        reloadable: key.live,
    };
    keys.map(setting).collect()
}

fn json(kind: Kind, value: &Value) -> Json {
    match value {
        Value::Int(value) => (*value).into(),
        Value::Flag(value) => (*value).into(),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.as_slice().into(),
        Value::Tables(tables) => {
            let keys = if let Kind::Tables(keys) = kind { keys } else { &[] };
            let table = |values: &Vec<String>| {
                let members = keys.iter().zip(values);
                let members = members.map(|(key, value)| ((*key).into(), value.as_str().into()));
                Json::Object(members.collect::<Map<_, _>>())
            };
            tables.iter().map(table).collect()
        }
    }
}

/// The end of the file: how to have more listeners, and which keys may be theirs.
fn init_listeners(text: &mut String) {
    *text += "\n# More listeners, each with rules of its own. What a table does not say, the sections above do.\n\
              # Tables stand at the end of the file; for each set of addresses there is one, as in\n";
    let _ = writeln!(text, "# [[listener]]");
    for key in [PROTOCOL, LISTEN] {
        let _ = writeln!(text, "# {} = {}  # {}", key.name, key.default, key.help);
    }
    *text += "# http.trusted_proxies = [\"127.0.0.1\"]\n# access.mode = \"deny\"\n\
              # Tables may have these keys, which mean what they mean above:\n";
    for section in SECTIONS.iter().map(|(section, _)| *section) {
        let own = KEYS.iter().filter(|key| key.own && key.section() == section);
        let names: Vec<_> = own.filter_map(|key| key.name.rsplit('.').next()).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "# {section}.: {}", names.join(", "));
        }
    }
}

fn toml(kind: Kind, value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Flag(value) => value.to_string(),
        Value::Text(text) => quoted(text),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Tables(tables) => {
            let keys = if let Kind::Tables(keys) = kind { keys } else { &[] };
            let table = |values: &Vec<String>| {
                let members = keys.iter().zip(values);
                let members: Vec<String> =
                    members.map(|(key, value)| format!("{key} = {}", quoted(value))).collect();
                format!("{{ {} }}", members.join(", "))
            };
            format!("[{}]", tables.iter().map(table).collect::<Vec<_>>().join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    ::toml::Value::String(text.to_owned()).to_string()
}
