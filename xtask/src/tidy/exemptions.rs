//! The exemptions of `xtask/tidy.toml`.

use super::Finding;
use crate::tree::Tree;
use anyhow::{Context, Result, ensure};

const PATH: &str = "xtask/tidy.toml";

/// The list of exemptions, and which of them were needed.
#[derive(Debug, Default)]
pub(super) struct Exemptions {
    entries: Vec<Exemption>,
}

#[derive(Debug)]
struct Exemption {
    rule: String,
    /// A file, or a folder that ends in `/`.
    path: String,
    /// If not empty, only lines that contain it are exempted.
    line: String,
    used: bool,
}

/// Reads the list: `[[exempt]]` tables with `rule`, `path`, `why`, and optionally `line`.
pub(super) fn read(tree: &Tree) -> Result<Exemptions> {
    let Some(file) = tree.file(PATH) else { return Ok(Exemptions::default()) };
    let table: toml::Table = file.text.parse().context(PATH)?;
    let list = table.get("exempt").and_then(toml::Value::as_array);
    let mut entries = Vec::new();
    for entry in list.into_iter().flatten() {
        let text =
            |key: &str| entry.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
        for key in ["rule", "path", "why"] {
            ensure!(!text(key).is_empty(), "{PATH}: an exemption needs `{key}`, found {entry:?}");
        }
        let (rule, path, line) = (text("rule"), text("path"), text("line"));
        entries.push(Exemption { rule, path, line, used: false });
    }
    Ok(Exemptions { entries })
}

impl Exemption {
    fn covers(&self, rule: &str, tree: &Tree, finding: &Finding) -> bool {
        let in_path = match self.path.ends_with('/') {
            true => finding.path.starts_with(&self.path),
            false => finding.path == self.path,
        };
        self.rule == rule && in_path && (self.line.is_empty() || self.is_on_line(tree, finding))
    }

    fn is_on_line(&self, tree: &Tree, finding: &Finding) -> bool {
        let file = tree.file(&finding.path);
        let line = file.and_then(|file| file.text.lines().nth(finding.line.checked_sub(1)?));
        line.is_some_and(|line| line.contains(&self.line))
    }
}

impl Exemptions {
    /// Returns whether a finding of `rule` is exempted.
    pub(super) fn covers(&mut self, rule: &str, tree: &Tree, finding: &Finding) -> bool {
        let mut entries = self.entries.iter_mut();
        match entries.find(|entry| entry.covers(rule, tree, finding)) {
            Some(entry) => entry.used = true,
            None => return false,
        }
        true
    }

    /// Returns the exemptions that covered nothing.
    pub(super) fn unused(&self) -> Vec<Finding> {
        let unused = self.entries.iter().filter(|entry| !entry.used);
        unused
            .map(|Exemption { rule, path, line, .. }| {
                let place = if line.is_empty() { String::new() } else { format!(" at `{line}`") };
                let message =
                    format!("{path}{place} does not break {rule} any more: remove its exemption");
                Finding::new(PATH, 0, message)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &str)] = &[("a.rs", "one\ntwo\n"), ("b/c.rs", "")];

    fn list(entry: &str) -> (Tree, Exemptions) {
        let text = format!("[[exempt]]\nrule = 'links'\nwhy = 'old'\n{entry}\n");
        let tree = Tree::of(&[FILES, &[(PATH, text.as_str())]].concat());
        let list = read(&tree).unwrap();
        (tree, list)
    }

    #[test]
    fn covers_one_rule_in_one_file_and_must_be_needed() {
        let (tree, mut list) = list("path = 'a.rs'");
        assert_eq!(list.unused().len(), 1);
        assert!(!list.covers("links", &tree, &Finding::new("b/c.rs", 1, "")));
        assert!(!list.covers("names", &tree, &Finding::new("a.rs", 1, "")));
        assert!(list.covers("links", &tree, &Finding::new("a.rs", 1, "")));
        assert!(list.unused().is_empty());
    }

    #[test]
    fn covers_folders_and_single_lines() {
        let (tree, mut folder) = list("path = 'b/'");
        assert!(folder.covers("links", &tree, &Finding::new("b/c.rs", 0, "")));
        assert!(!folder.covers("links", &tree, &Finding::new("a.rs", 1, "")));
        let (tree, mut line) = list("path = 'a.rs'\nline = 'wo'");
        assert!(!line.covers("links", &tree, &Finding::new("a.rs", 1, "")));
        assert!(!line.covers("links", &tree, &Finding::new("a.rs", 0, "")));
        assert!(line.covers("links", &tree, &Finding::new("a.rs", 2, "")));
    }

    #[test]
    fn needs_a_reason() {
        let text = "[[exempt]]\nrule = 'links'\npath = 'a.rs'\n";
        assert!(read(&Tree::of(&[(PATH, text)])).is_err());
    }
}
