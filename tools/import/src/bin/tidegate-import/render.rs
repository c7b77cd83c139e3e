//! Writes a draft as a commented configuration file.

use std::fmt::Write;

use serde_json::{Value, json};
use tidegate_import::{Draft, DraftKey, Rival};

/// Characters of a line of comments.
const WIDTH: usize = 100;

/// Sections that drafts have keys of, in the order of the tracker's table of keys.
const SECTIONS: &[&str] = &[
    "udp", "http", "tls", "tracker", "access", "limits", "bans", "admin", "state", "process",
    "log", "site",
];

/// A configuration file.
pub(super) struct Rendered {
    pub(super) text: String,
    /// The lines of keys in sections, from 1, with the keys' names.
    pub(super) keys: Vec<(usize, &'static str)>,
}

/// Writes the file. Panics if a key is in none of [`SECTIONS`].
// Writing to a `String` cannot fail, here and below.
pub(super) fn render(rival: Rival, sources: &str, draft: &Draft) -> Rendered {
    let mut file = Rendered { text: String::new(), keys: Vec::new() };
    let title = rival.title();
    file.comment(&format!(
        "Configuration of tidegate, made by `tidegate-import {}` from {}. Keys that are not here have their \
         defaults: `tidegate config show` prints all, docs/configure/reference.md explains them.",
        rival.label(),
        sources.replace(char::is_control, " ")
    ));
    file.text.push_str("#\n");
    file.comment(&format!("What {title} does otherwise:"));
    rival.differences().iter().for_each(|text| file.comment(&format!("- {text}")));
    if !draft.without.is_empty() {
        file.text.push_str("#\n");
        file.comment(&format!("Keys of {title} that have no counterpart here:"));
        for key in &draft.without {
            let theirs = key.theirs.replace(char::is_control, " ");
            file.comment(&format!("- {theirs} ({}): {}", key.place, key.reason));
        }
    }
    for key in &draft.keys {
        assert!(SECTIONS.contains(&section_of(key)), "{}: unknown section", key.name);
    }
    for section in SECTIONS {
        let keys = draft.keys.iter().filter(|key| section_of(key) == *section);
        let mut keys = keys.peekable();
        if keys.peek().is_some() {
            let _ = writeln!(file.text, "\n[{section}]");
        }
        for key in keys {
            let short = key.name.rsplit_once('.').map_or(key.name, |(_, short)| short);
            file.key(key, short);
        }
    }
    for listener in &draft.listeners {
        file.text.push('\n');
        listener.comments.iter().for_each(|text| file.comment(text));
        let listen = toml(&json!(listener.listen));
        let protocol = listener.protocol;
        let _ = writeln!(file.text, "[[listener]]\nprotocol = \"{protocol}\"\nlisten = {listen}");
        for key in &listener.keys {
            key.comments.iter().for_each(|text| file.comment(text));
            let _ = writeln!(file.text, "{} = {}", key.name, toml(&key.value));
        }
    }
    file
}

fn section_of(key: &DraftKey) -> &'static str {
    key.name.rsplit_once('.').map_or("", |(section, _)| section)
}

impl Rendered {
    fn key(&mut self, key: &DraftKey, short: &str) {
        key.comments.iter().for_each(|text| self.comment(text));
        let mark = if key.is_active { "" } else { "# " };
        if key.is_active {
            self.keys.push((self.text.lines().count() + 1, key.name));
        }
        let _ = writeln!(self.text, "{mark}{short} = {}", toml(&key.value));
    }

    /// Writes a comment of several lines.
    fn comment(&mut self, text: &str) {
        let mut line = String::from("#");
        // Items of lists are indented behind their hyphen.
        let indent = if text.starts_with("- ") { "#  " } else { "#" };
        for word in text.split_whitespace() {
            if line.chars().count() + word.chars().count() >= WIDTH && line.len() > indent.len() {
                let _ = writeln!(self.text, "{line}");
                line = indent.into();
            }
            line.push(' ');
            line.push_str(word);
        }
        let _ = writeln!(self.text, "{line}");
    }
}

fn toml(value: &Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}
