//! Alerts, messages and configuration keys that documents name exist in the program.

use super::Finding;
use crate::tree::{File, Tree};
use anyhow::{Context, Result};
use std::collections::BTreeSet;

const ALERTS: &str = "dist/prometheus/alerts.yml";
const RUNBOOKS: &str = "docs/operate/alerts.md";
/// The word behind the backticks of blocks with messages of tidegate, one a line, with `…` for what varies.
const MESSAGES: &str = "text,tidegate";
/// Folders with what prints messages.
const SOURCES: &[&str] = &["app/", "core/", "edge/"];
/// Shorter pieces of a message are in every source.
const PIECE_MIN: usize = 4;
/// The table of configuration keys.
const KEYS: &str = "app/config/src/keys.rs";
/// Pages that name keys of other programs, and history.
const OTHER_KEYS: &[&str] = &[
    "bench/record/",
    "docs/compare.md",
    "docs/decisions/",
    "docs/install/helm.md",
    "docs/migrate/",
    "docs/releases/",
];
/// Ends of file names, which look like keys.
const ENDINGS: &[&str] =
    &["conf", "db", "json", "jsonl", "lock", "md", "mjs", "pem", "rs", "service", "toml"];
/// A key that docs/configure/index.md misspells on purpose.
const MISSPELT: &str = "intervall_s";

/// Each alert has a runbook, and links to it; each quoted message is in the sources; each key exists.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = runbooks(tree)?;
    findings.extend(messages(tree));
    findings.extend(unknown_keys(tree));
    Ok(findings)
}

/// Compares the alerts with the headings of their runbooks.
fn runbooks(tree: &Tree) -> Result<Vec<Finding>> {
    let alerts = tree.file(ALERTS).with_context(|| format!("{ALERTS} is missing"))?;
    let runbooks = tree.file(RUNBOOKS).with_context(|| format!("{RUNBOOKS} is missing"))?;
    let headings: BTreeSet<&str> =
        runbooks.text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let (mut names, mut findings) = (BTreeSet::new(), Vec::new());
    let lines: Vec<&str> = alerts.text.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = line.strip_prefix("- alert: ") else { continue };
        names.insert(name);
        let rule = lines.iter().skip(at + 1).take_while(|line| !line.starts_with("- alert: "));
        let link = format!("runbook: \"{RUNBOOKS}#{}\"", name.to_lowercase());
        if !headings.contains(name) {
            let message = format!("{name} has no heading in {RUNBOOKS}");
            findings.push(Finding::new(ALERTS, at + 1, message));
        }
        if !rule.into_iter().any(|line| *line == link) {
            let message = format!("expected the annotation `{link}`");
            findings.push(Finding::new(ALERTS, at + 1, message));
        }
    }
    for (line, text) in (1..).zip(runbooks.text.lines()) {
        if text.strip_prefix("## ").is_some_and(|name| !names.contains(name)) {
            findings.push(Finding::new(RUNBOOKS, line, "a runbook of no alert"));
        }
    }
    Ok(findings)
}

/// Searches the sources for the messages that documents quote.
fn messages(tree: &Tree) -> Vec<Finding> {
    let is_source = |file: &&File| SOURCES.iter().any(|folder| file.path.starts_with(folder));
    let sources: Vec<String> =
        tree.rust().filter(is_source).map(|file| joined(&file.text)).collect();
    let mut findings = Vec::new();
    for file in tree.with_extension(".md") {
        let mut is_quoted = false;
        for (line, text) in (1..).zip(file.text.lines()) {
            if let Some(word) = text.trim_start().strip_prefix("```") {
                is_quoted = word == MESSAGES;
                continue;
            }
            let pieces = text.split('…').map(str::trim).filter(|piece| piece.len() >= PIECE_MIN);
            let is_there = |piece: &str| sources.iter().any(|source| source.contains(piece));
            if let Some(piece) = pieces.into_iter().find(|piece| is_quoted && !is_there(piece)) {
                let message = format!("no source of tidegate has this message: {piece}");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// Finds keys in inline code, as `section.key` or `[section] key`, that the table of keys does not have.
fn unknown_keys(tree: &Tree) -> Vec<Finding> {
    let table = tree.file(KEYS).map_or("", |file| &file.text);
    let (mut sections, mut keys) = (BTreeSet::new(), BTreeSet::new());
    let mut section = "";
    // Constants are no keys.
    for line in table.lines().map(str::trim).filter(|line| !line.contains(", constant")) {
        if let Some((name, _)) = line.strip_prefix("[\"").and_then(|rest| rest.split_once("\"] ")) {
            section = name;
            sections.insert(name);
        } else if let Some((name, _)) = line.split_once(": ").filter(|(name, _)| is_word(name)) {
            keys.insert((section, name));
        }
    }
    let is_page = |file: &&File| !OTHER_KEYS.iter().any(|start| file.path.starts_with(start));
    let mut findings = Vec::new();
    for file in tree.with_extension(".md").filter(is_page) {
        for (line, text) in (1..).zip(file.text.lines()) {
            for code in text.split('`').skip(1).step_by(2) {
                let Some((section, name)) = key(code) else { continue };
                let is_known = keys.contains(&(section, name))
                    || sections.contains(&*format!("{section}.{name}"));
                if sections.contains(section) && !is_known {
                    let message = format!("no configuration key has the name {section}.{name}");
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    findings
}

/// Splits inline code that begins with a key.
fn key(code: &str) -> Option<(&str, &str)> {
    let words = match code.strip_prefix('[') {
        Some(rest) => rest.split_once("] ")?,
        None => code.split([' ', '=']).next()?.rsplit_once('.')?,
    };
    let (section, name) = (words.0, words.1.split([' ', '=']).next()?);
    (is_word(name) && name != MISSPELT && !ENDINGS.contains(&name)).then_some((section, name))
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Joins literals that continue on the next line.
fn joined(text: &str) -> String {
    let mut pieces = text.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |joined, piece| joined + piece.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trials::command::{command, output};

    fn lines(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let rest = [(ALERTS, ""), (RUNBOOKS, "")];
        let missing = rest.iter().filter(|(path, _)| !files.iter().any(|file| file.0 == *path));
        let all: Vec<_> = files.iter().chain(missing).copied().collect();
        let findings = check(&Tree::of(&all)).unwrap();
        findings.into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn compares_alerts_with_runbooks() {
        let rule = "- alert: Down\n  annotations:\n    runbook: \"docs/operate/alerts.md#down\"\n";
        assert!(lines(&[(ALERTS, rule), (RUNBOOKS, "# x\n\n## Down\n")]).is_empty());
        assert_eq!(lines(&[(ALERTS, rule), (RUNBOOKS, "# x\n")]), [(ALERTS.into(), 1)]);
        assert_eq!(lines(&[(ALERTS, ""), (RUNBOOKS, "## Gone\n")]), [(RUNBOOKS.into(), 1)]);
        let other = rule.replace("#down", "#up");
        assert_eq!(lines(&[(ALERTS, &other), (RUNBOOKS, "## Down\n")]), [(ALERTS.into(), 1)]);
    }

    /// In a network namespace of its own, without loading it. Skipped without nft or the right to make one.
    #[test]
    fn nft_accepts_the_example_of_a_firewall() {
        let nft = |words: &[&str]| {
            let all = [&["unshare", "--map-root-user", "--net", "nft"], words].concat();
            output(command(&all))
        };
        if nft(&["list", "ruleset"]).is_err() {
            return;
        }
        let tree = Tree::read().unwrap();
        let text = &tree.file("docs/operate/firewall.md").unwrap().text;
        let example = text.split("```nft\n").nth(1).and_then(|rest| rest.split("```").next());
        let file = std::env::temp_dir().join(format!("firewall-{}.nft", std::process::id()));
        std::fs::write(&file, example.unwrap()).unwrap();
        let checked = nft(&["--check", "--file", file.to_str().unwrap()]);
        std::fs::remove_file(&file).unwrap();
        checked.unwrap();
    }

    #[test]
    fn knows_the_keys() {
        let table = "    [\"tls\"] tls: TlsSection {\n        listen: List = [];\n    }\n    \
                     [\"tls.acme\"] acme: AcmeSection {\n        cache: Text = \"\";\n        agreed: Flag, constant = true;\n";
        let found = |text: &str| lines(&[(KEYS, table), ("docs/a.md", text)]);
        for good in [
            "`tls.listen = []`, `[tls] listen`, `tls.acme.cache`",
            "`tls.rs`, `tls.acme`, `a.b`, `[a] b`",
        ] {
            assert!(found(good).is_empty(), "{good}");
        }
        for bad in ["`tls.cache`", "`[tls.acme] listen = 1`", "`tls.acme.agreed`"] {
            assert_eq!(found(bad), [("docs/a.md".into(), 1)], "{bad}");
        }
        assert!(lines(&[(KEYS, table), ("docs/compare.md", "`tls.cache`")]).is_empty());
    }

    #[test]
    fn searches_sources_for_messages() {
        let source =
            ("edge/x/src/a.rs", "f(\"cannot read {file}: the disk \\\n         is full\");\n");
        let block =
            |message: &str| format!("# x\n\n```text,tidegate\n{message}\n```\n\nnot this\n");
        let found = |message: &str| lines(&[source, ("docs/a.md", &block(message))]);
        assert!(found("cannot read …: the disk is full").is_empty());
        assert_eq!(found("cannot write …: the disk is full"), [("docs/a.md".into(), 4)]);
    }
}
