//! Writes `docs/configure/reference.md` from the table of keys, and compares the page that is there with it.
//!
//! `TIDEGATE_WRITE_REFERENCE=1 cargo test -p tidegate-config reference` writes the page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Config;
use super::key::{Key, Kind, PerListener, Section};
use super::keys::{SECTIONS, Sections};
use super::listener_table::{LISTEN, PROTOCOL};
use super::setting::toml;
use super::tests::read;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configure/reference.md");
const LINE_MAX: usize = 120;

const HEAD: &str = "\
# Look up a configuration key

Every key is optional. [Configure](index.md) says where the file is and which value wins,
[Configure by task](by-task.md) has examples. `tidegate config init` writes a file with all of this as comments.

Below each key:

- its type and the values it accepts, and its default;
- *live* if a reload (SIGHUP) or the API applies a new value, *restart* if a restart or an upgrade (SIGUSR2) does;
- *per listener* if a [`[[listener]]`](#listener) table can set it for its own addresses;
- the environment variable that overrides the file.

Sections:

";

const LISTENER: &str = "\
## `[[listener]]`

Additional listeners, each with its own rules. Keys that a table does not set have the values of the sections above.
The tables come last in the file, one per set of addresses. They have no environment variables.\n\n```toml
[[listener]]
protocol = \"http\"
listen = [\"127.0.0.1:8080\"]
http.trusted_proxies = [\"127.0.0.1\"]\n```

";

fn page() -> String {
    let mut page = String::from(HEAD);
    let defaults = Sections::default();
    let is_documented = |section: &&Section| {
        defaults.settable().any(|setting| setting.key().section() == section.name)
    };
    let sections: Vec<&Section> = SECTIONS.iter().filter(is_documented).collect();
    for Section { name, help } in &sections {
        let first = help.concat();
        let first = first.split_once(". ").map_or(&*first, |(first, _)| first);
        let first = markdown(first.trim().trim_end_matches('.'), &[]);
        page += &format!("- [`[{name}]`](#{}): {first}\n", anchor(name));
    }
    page.push_str("- [`[[listener]]`](#listener): additional listeners with rules of their own\n");
    let names: Vec<&str> = defaults.settable().map(|setting| setting.key().name).collect();
    for Section { name, help } in &sections {
        page += &format!("\n## `[{name}]`\n\n{}\n", paragraph(help, &names));
        for setting in defaults.settable() {
            let key = setting.key();
            if key.section() == *name {
                page += &format!("\n### {}\n\n", key.name);
                page += &format!("{}\n\n", facts(key, &toml(&setting.json())));
                page += &format!("{}\n", paragraph(key.help, &names));
            }
        }
    }
    page += &format!("\n{LISTENER}");
    for key in [&PROTOCOL, &LISTEN] {
        page +=
            &format!("- `{}`: {}; {}. Required.\n", key.name, key.help.concat(), values(key.kind));
    }
    let own = defaults.settable().map(|setting| setting.key());
    let own = own.filter(|key| key.per_listener == PerListener::Yes);
    let own: Vec<String> = own.map(|key| link(key.name)).collect();
    page += &format!("{}\n", wrapped(&format!("- Optional: {}", own.join(", "))));
    page
}

/// Returns the line with all that the table says about a key besides its documentation.
fn facts(key: &Key, default: &str) -> String {
    let mut facts = vec![values(key.kind), format!("default `{default}`")];
    facts.push(if key.reloadable { "live" } else { "restart" }.into());
    if key.per_listener == PerListener::Yes {
        facts.push("per listener".into());
    }
    facts.push(format!("`TIDEGATE_{}`", key.name.replace('.', "__").to_uppercase()));
    wrapped(&facts.join(" · "))
}

/// Says which values a key of this kind accepts.
fn values(kind: Kind) -> String {
    match kind {
        Kind::Int(low, high) => format!("Integer from {low} to {high}"),
        Kind::AutoInt(low, high) => format!("`\"auto\"` or an integer from {low} to {high}"),
        Kind::Flag => "`true` or `false`".into(),
        Kind::Text => "String".into(),
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            format!("One of {}", words.join(", "))
        }
        Kind::List => "List of strings".into(),
        Kind::Certificates => "List of tables `{ chain = \"FILE\", key = \"FILE\" }`".into(),
    }
}

/// Returns lines of the table as Markdown, with links to the keys and pages that they name.
fn paragraph(help: &[&str], names: &[&str]) -> String {
    let text = help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    wrapped(&markdown(&text, names))
}

/// Escapes what Markdown has another meaning for. Adds links.
fn markdown(text: &str, names: &[&str]) -> String {
    let words = text.split(' ').map(|word| {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric());
        if names.contains(&name) {
            return word.replacen(name, &link(name), 1);
        }
        match name.strip_prefix("docs/") {
            Some(page) if page.ends_with(".md") => {
                word.replacen(name, &format!("[{page}](../{page})"), 1)
            }
            _ => word.replace('#', r"\#").replace('*', r"\*").replace('<', r"\<"),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn link(name: &str) -> String {
    format!("[`{name}`](#{})", anchor(name))
}

/// Returns the anchor of a heading, as mdBook and others make it.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect()
}

/// Breaks a paragraph into lines. No line begins with what would make it an item of a list.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        let is_marker = matches!(word, "-" | "+") || word.strip_suffix('.').is_some_and(is_number);
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= LINE_MAX || is_marker {
            *line += &format!(" {word}");
        } else {
            lines.push(word.into());
        }
    }
    lines.join("\n")
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

#[test]
fn reference_is_up_to_date() {
    let expected = page();
    if std::env::var_os("TIDEGATE_WRITE_REFERENCE").is_some() {
        fs::write(PAGE, &expected).unwrap();
    }
    let found = fs::read_to_string(PAGE).unwrap();
    assert!(
        found == expected,
        "docs/configure/reference.md is not what the table of keys says: run \
         TIDEGATE_WRITE_REFERENCE=1 cargo test -p tidegate-config reference"
    );
}

/// Returns the paths of the book's pages and of those in the repository's root, with their texts.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = files(&root).filter(|path| path.is_file()).collect();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for path in files(&folder) {
            let list = if path.is_dir() { &mut folders } else { &mut paths };
            list.push(path);
        }
    }
    let pages = paths.iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    let page = |path: &PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    pages.map(page).collect()
}

/// Documents contain configurations of tidegate in `toml` blocks: each must be valid. Those of other programs are
/// marked `toml,other`.
#[test]
fn examples_in_documents_are_valid() {
    let mut count = 0;
    for (path, text) in documents() {
        for (line, example) in examples(&text) {
            count += 1;
            let config = read(&example).and_then(|settings| Config::from_settings(&settings));
            assert!(config.is_ok(), "{path}:{line}: {}", config.unwrap_err()[0]);
        }
    }
    assert!(count > 10, "found {count}");
}

/// Pages that name keys of other programs, and history.
const OTHER_KEYS: [&str; 6] = [
    "CHANGELOG.md",
    "docs/compare.md",
    "docs/decisions/",
    "docs/install/helm.md",
    "docs/migrate/",
    "docs/releases/",
];
/// Ends of file names, which look like keys.
const ENDINGS: [&str; 11] =
    ["conf", "db", "json", "jsonl", "lock", "md", "mjs", "pem", "rs", "service", "toml"];
/// A key that docs/configure/index.md misspells on purpose.
const MISSPELT: &str = "intervall_s";

/// Keys in inline code, as `section.key` or `[section] key`, exist.
#[test]
fn documents_name_keys_that_exist() {
    let defaults = Sections::default();
    let keys: BTreeSet<&str> = defaults.settable().map(|setting| setting.key().name).collect();
    let sections: BTreeSet<&str> = SECTIONS.iter().map(|section| section.name).collect();
    let mut count = 0;
    for (path, text) in documents() {
        if OTHER_KEYS.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        for (line, text) in (1..).zip(text.lines()) {
            for (section, name) in text.split('`').skip(1).step_by(2).filter_map(named) {
                let full = format!("{section}.{name}");
                let is_known = keys.contains(&*full) || sections.contains(&*full);
                assert!(is_known || !sections.contains(section), "{path}:{line}: no key {full}");
                count += usize::from(is_known);
            }
        }
    }
    assert!(count > 100, "found {count}");
}

/// Splits inline code that begins with the name of a key.
fn named(code: &str) -> Option<(&str, &str)> {
    let (section, rest) = match code.strip_prefix('[') {
        Some(rest) => rest.split_once("] ")?,
        None => code.split([' ', '=']).next()?.rsplit_once('.')?,
    };
    let name = rest.split([' ', '=']).next()?;
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_key = !name.is_empty() && name.bytes().all(is_word) && !ENDINGS.contains(&name);
    (is_key && name != MISSPELT).then_some((section, name))
}

/// Returns the `toml` blocks of a page, each with its line.
fn examples(page: &str) -> Vec<(usize, String)> {
    let mut lines = (1..).zip(page.lines());
    let mut examples = Vec::new();
    while let Some((number, line)) = lines.next() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, text)| text);
            let text: Vec<_> = inside.take_while(|text| text.trim() != "```").collect();
            if info == "toml" {
                examples.push((number, text.join("\n") + "\n"));
            }
        }
    }
    examples
}
