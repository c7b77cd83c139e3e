//! Alerts and messages that documents name exist in the program. A test of `app/config` looks for keys.

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
/// Each alert has a runbook, and links to it; each quoted message is in the sources.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = runbooks(tree)?;
    findings.extend(messages(tree));
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
        let folder = harness::Directory::new().unwrap();
        let file = folder.write("firewall.nft", example.unwrap()).unwrap();
        nft(&["--check", "--file", file.to_str().unwrap()]).unwrap();
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
