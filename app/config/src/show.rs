//! Writes the configuration: the file that `config init` makes, and what `config show` prints.

use serde_json::{Value as Json, json};

use super::key::{Kind, PerListener, Section};
use super::keys::{SECTIONS, Sections};
use super::listener_table::{LISTEN, PROTOCOL};
use super::memory_budget;
use super::read::Settings;
use super::setting::{AnySetting, toml};

const HEAD: &str = "\
# Configuration of tidegate. Every key is optional and has the default that its comment shows: to set another value,
# remove the # before the key. `tidegate config check` checks the file.
# An environment variable TIDEGATE_SECTION__KEY overrides the file, e.g. TIDEGATE_TRACKER__INTERVAL_S=900.
# Keys marked (reloadable) are applied on SIGHUP; changes to the others need a restart.
";

const LISTENERS_HEAD: &str = "
# Additional listeners, each with its own rules. Keys that a table does not set have the values of the
# sections above. The tables come last in the file, one per set of addresses, e.g.
# [[listener]]
";

const SHORT_HEAD: &str = "
# These are the keys that most users set. `tidegate config init` without --short writes all of them.
";

/// Returns a file with the documentation of every key, and its default as a comment. If `is_short`, it has only the keys
/// that most users set.
pub fn init(is_short: bool) -> String {
    let mut text = String::from(HEAD);
    if is_short {
        text.push_str(SHORT_HEAD);
    }
    let defaults = Sections::default();
    for Section { name, help } in used_sections(&defaults, is_short) {
        text.push('\n');
        comment(&mut text, help);
        text += &format!("[{name}]\n");
        for setting in written(&defaults, is_short) {
            let key = setting.key();
            if key.section() != *name {
                continue;
            }
            comment(&mut text, key.help);
            let mark = if key.reloadable { "  # (reloadable)" } else { "" };
            text += &format!("#{} = {}{mark}\n", key.short_name(), toml(&setting.json()));
        }
    }
    if !is_short {
        init_listeners(&mut text, &defaults);
    }
    text
}

fn written(defaults: &Sections, is_short: bool) -> impl Iterator<Item = &dyn AnySetting> {
    defaults.settable().filter(move |setting| !is_short || setting.key().common)
}

fn used_sections(defaults: &Sections, is_short: bool) -> impl Iterator<Item = &'static Section> {
    SECTIONS.iter().filter(move |section| {
        written(defaults, is_short).any(|setting| setting.key().section() == section.name)
    })
}

fn comment(text: &mut String, lines: &[&str]) {
    for line in lines {
        *text += &format!("# {}\n", line.trim_start());
    }
}

/// Writes the end of the file: an example of a `[[listener]]`, and the keys it can override.
fn init_listeners(text: &mut String, defaults: &Sections) {
    text.push_str(LISTENERS_HEAD);
    for (key, example) in [(&PROTOCOL, json!("http")), (&LISTEN, json!(["127.0.0.1:8080"]))] {
        *text += &format!("# {} = {}  # {}\n", key.name, toml(&example), key.help.concat());
    }
    text.push_str(
        "# http.trusted_proxies = [\"127.0.0.1\"]\n# access.mode = \"deny\"\n\
         # A table can set these keys, which have the same meaning as above:\n",
    );
    for Section { name: section, .. } in SECTIONS {
        let keys = defaults.settable().map(|setting| setting.key());
        let names: Vec<_> = keys
            .filter(|key| key.per_listener == PerListener::Yes && key.section() == *section)
            .map(|key| key.short_name())
            .collect();
        if !names.is_empty() {
            *text += &format!("# {section}.: {}\n", names.join(", "));
        }
    }
}

/// Returns every key with its value and where that comes from.
pub fn show(settings: &Settings) -> String {
    let mut text = String::new();
    let memory_mib = &settings.sections.limits.memory_mib;
    for setting in settings.sections.settable() {
        let (name, value) = (setting.key().name, toml(&setting.json()));
        text += &format!("{name} = {value}  # {}", setting.origin());
        if name == memory_mib.key.name && memory_mib.value.is_none() {
            let budget = memory_budget(None, net::process::memory_bytes()).unwrap_or(0);
            text += &format!(", {} here", budget >> 20);
        }
        text.push('\n');
    }
    for table in &settings.listeners {
        text += &format!("\n[[listener]]  # {}\n", table.origin);
        let protocol = toml(&json!(table.transport.label()));
        text += &format!("{} = {protocol}  # {}\n", PROTOCOL.name, table.origin);
        let listen = toml(&json!(table.listen.value));
        text += &format!("{} = {listen}  # {}\n", LISTEN.name, table.listen.origin);
        for setting in table.overridden() {
            let (name, value) = (setting.key().name, toml(&setting.json()));
            text += &format!("{name} = {value}  # {}\n", setting.origin());
        }
    }
    text
}

/// Returns them for the management API, without tables. `configured` are those as they were read last.
pub fn list(settings: &Settings, configured: &Settings) -> admin::Settings {
    let defaults = Sections::default();
    let all = settings.sections.settable();
    let all = all.zip(configured.sections.settable()).zip(defaults.settable());
    let list = all.map(|((setting, configured), default)| describe(setting, configured, default));
    let section = |Section { name, help }: &Section| admin::SettingSection {
        name: (*name).into(),
        help: paragraph(help),
    };
    let sections = used_sections(&defaults, false).map(section).collect();
    admin::Settings { settings: list.collect(), sections }
}

fn describe(
    setting: &dyn AnySetting,
    configured: &dyn AnySetting,
    default: &dyn AnySetting,
) -> admin::Setting {
    use admin::SettingKind;
    let key = setting.key();
    let (kind, bounds, choices) = match key.kind {
        Kind::Int(min, max) | Kind::AutoInt(min, max) => {
            (SettingKind::Integer, Some((min, max)), None)
        }
        Kind::Flag => (SettingKind::Boolean, None, None),
        Kind::Text => (SettingKind::Text, None, None),
        Kind::Choice(words) => (SettingKind::Choice, None, Some(words)),
        Kind::List => (SettingKind::List, None, None),
        Kind::Certificates => (SettingKind::Certificates, None, None),
    };
    let (value, pending) = (readable(setting.json()), readable(configured.json()));
    admin::Setting {
        name: key.name.into(),
        origin: setting.origin().to_string(),
        reloadable: key.reloadable,
        section: key.section().into(),
        help: paragraph(key.help),
        default: default.json(),
        kind,
        min: bounds.map(|(min, _)| min),
        max: bounds.map(|(_, max)| max),
        accepts_auto: matches!(key.kind, Kind::AutoInt(..)),
        choices: choices.map(|words| words.iter().copied().map(String::from).collect()),
        per_listener: key.per_listener == PerListener::Yes,
        pending: Some(pending).filter(|pending| *pending != value),
        value,
    }
}

/// Returns a value as tokens with `config:read` may see it: without what may be secret in a URL.
fn readable(value: Json) -> Json {
    match value {
        Json::String(text) if text.contains("://") => json!(without_secrets(&text)),
        value => value,
    }
}

/// Returns a URL without its user and query, which may be secret.
pub fn without_secrets(url: &str) -> String {
    let (shown, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = shown.split_once("://").unwrap_or(("", shown));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mark = if query.is_empty() { "" } else { "?…" };
    format!("{scheme}://{host}{path}{mark}")
}

fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_their_secrets() {
        for (url, shown) in [
            ("https://a.example/k.json?token=s", "https://a.example/k.json?…"),
            ("https://user:s@a.example:8443/k", "https://a.example:8443/k"),
            ("https://a.example?s@/", "https://a.example?…"),
            ("https://a.example", "https://a.example"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
        assert_eq!(readable(json!("file?name")), json!("file?name"));
    }
}
